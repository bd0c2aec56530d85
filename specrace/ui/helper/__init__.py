"""Work on visitors' files and logs in separate processes; the gallery of recordings; the fetching of models."""
