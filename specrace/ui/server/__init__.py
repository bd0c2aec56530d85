"""The HTTP server: who may send what, how much, and what is logged."""
