"""What ``predict_interval`` and the metrics return."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .estimate import Estimate
from .intervals import Intervals
