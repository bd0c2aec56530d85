"""Logs: their formats, their fields, and the transcripts read from them."""
