"""Whether new rows look like the training rows: a test of what every certificate assumes."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .check import Shift, ShiftWarning, check_exchangeable, compare_rows, kept_places, kept_rows
