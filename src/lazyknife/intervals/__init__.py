"""From leave-one-out models to intervals: order statistics, and the constructions."""

from .constructions import (
    CONSTRUCTIONS,
    Bound,
    Construction,
    check_construction,
    find_construction,
    is_own,
    miss_bound,
)
from .fit import LazyModels
from .order import kappa, kth_largest, kth_smallest, rows_needed

__all__ = [
    "CONSTRUCTIONS",
    "Bound",
    "Construction",
    "LazyModels",
    "check_construction",
    "find_construction",
    "is_own",
    "kappa",
    "kth_largest",
    "kth_smallest",
    "miss_bound",
    "rows_needed",
]
