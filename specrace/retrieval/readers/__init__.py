"""Readers turn the bytes of a file into text with addresses; one module for each family of file kinds."""
