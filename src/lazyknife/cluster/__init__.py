"""Fits and predictions by partitions of Dask collections; Dask is imported where it is used."""

from .fit import fit_parts
from .partitions import Partitions, check_rows, is_dask, parts_of
from .predictions import ends_by_partition, points_by_partition

__all__ = [
    "Partitions",
    "check_rows",
    "ends_by_partition",
    "fit_parts",
    "is_dask",
    "parts_of",
    "points_by_partition",
]
