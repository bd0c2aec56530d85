"""Heads as torch modules: pure functions of the states and tokens of a batch, with the names of published weights."""
