"""The benchmark, calibration, and other decoders to compare with."""
