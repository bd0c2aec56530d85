"""Recommendations: forecasts, candidates, halving, and other engines' settings."""
