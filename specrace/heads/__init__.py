"""Trained heads: drafters that read the states of the target."""
