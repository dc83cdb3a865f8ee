"""From leave-one-out models to intervals: order statistics, and the constructions."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .constructions import (
    AUTO,
    CONSTRUCTIONS,
    Bound,
    Construction,
    check_construction,
    find_construction,
    is_own,
    is_parted,
    resolved,
)
from .order import kappa, kth_largest, kth_smallest, rows_needed
