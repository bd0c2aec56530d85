"""Plots of a sweep and of the paper's tables: numbers with their intervals, as SVG, PNG and CSV."""
