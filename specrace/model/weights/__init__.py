"""From a model's name to its tensors: folders, files, fetching, adapters."""
