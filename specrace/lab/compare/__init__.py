"""Compares servers that answered the same questions: what was measured, its summary, forecasts and a verdict."""
