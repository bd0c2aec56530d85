"""The command line: `python -m specrace`."""
