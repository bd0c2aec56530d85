"""Forced decoding of transcripts: scores, sweeps, and their processes."""
