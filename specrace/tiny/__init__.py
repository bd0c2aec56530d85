"""The making of the bundled target model: `python -m specrace.tiny prepare|train|evaluate|export`.

The model card is `assets/tiny/README.md`.
"""
