"""Measuring: logs, forced decoding, bench, calibration, and other decoders to compare with."""
