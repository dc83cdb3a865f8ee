"""Fits and predictions by partitions of Dask collections; Dask is imported where it is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .partitions import Partitions, check_rows, is_dask
from .passes import Reading, fit_parts
from .predictions import ends_by_partition, points_by_partition
