"""How the bundled target model is made: `python -m specrace.tiny prepare|train|evaluate|export`.

The model card is `assets/tiny/README.md`.
"""
