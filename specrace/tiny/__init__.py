"""Trains the bundled models: `python -m specrace.tiny prepare|train|evaluate|export|characters|adapter`.

The model card is `assets/tiny/README.md`.
"""
