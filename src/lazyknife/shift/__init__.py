"""Whether new rows look like the training rows: a test of what every certificate assumes."""

from .check import (
    LEVEL,
    Shift,
    ShiftWarning,
    check_exchangeable,
    compare_rows,
    kept_places,
    kept_rows,
)

__all__ = [
    "LEVEL",
    "Shift",
    "ShiftWarning",
    "check_exchangeable",
    "compare_rows",
    "kept_places",
    "kept_rows",
]
