"""The bundled target model: its tokenizer, its first weights, its task, its training and its evaluation.

`python -m specrace.tiny prepare|train|evaluate|export` is the whole recipe; `assets/tiny/README.md` is its card.
"""
