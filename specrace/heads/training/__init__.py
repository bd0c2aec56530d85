"""Training of heads: data, trainer, evaluation, export."""
