"""Data sets: the paper's simulation, and real data with known hashes."""

from __future__ import annotations

from .files import DataNotFound, WrongHash
from .record import DataSet, Entry
from .registry import (
    DATASETS,
    blog_feedback,
    communities,
    find,
    load,
    meps,
    meps_2016,
    meps_2016_panel21,
)
from .simulation import simulated

__all__ = [
    "DATASETS",
    "DataNotFound",
    "DataSet",
    "Entry",
    "WrongHash",
    "blog_feedback",
    "communities",
    "find",
    "load",
    "meps",
    "meps_2016",
    "meps_2016_panel21",
    "simulated",
]
