"""Measured speed: ``make bench``."""
