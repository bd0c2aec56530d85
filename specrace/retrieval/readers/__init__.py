"""Readers: one module for each family of file kinds, from a file's bytes to text with addresses."""
