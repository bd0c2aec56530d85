"""Fusion: several drafters in one tree."""
