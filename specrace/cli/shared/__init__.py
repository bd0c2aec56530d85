"""Code of several commands: their arguments, what these name (models, servers, questions), tables, the terminal."""
