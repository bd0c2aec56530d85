"""Chat models: templates, tokenizers, and where an answer begins."""
