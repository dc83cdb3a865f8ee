"""What ``predict_interval`` returns."""

from .intervals import Intervals

__all__ = ["Intervals"]
