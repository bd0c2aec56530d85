"""Drafters whose trees are all a trained head's."""
