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
    """Rows to learn from. The loaders' arrays are read-only, because they are shared.

    Attributes
    ----------
    name
        The key of ``DATASETS``, or ``"simulated_p16"``.
    X, y
        Features, shape (n, p), and response, shape (n,), both float64.
    feature_names
        p names.
    target
        What y is, for instance ``"log(1 + comments)"``.
    transform
        What was done to X: None or ``"symlog"``.
    source
        Publisher and terms, in one line.
    title
        The name for people, without the transform.

    """

    name: str
    X: Array
    y: Array
    feature_names: tuple[str, ...]
    target: str
    transform: str | None
    source: str
    title: str = ""

    @property
    def label(self) -> str:
        """The name for people, ``"BlogFeedback"`` or ``"BlogFeedback, symlog"``."""
        title = self.title or self.name
        return title if self.transform is None else f"{title}, {self.transform}"

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Copy:
    """A form in which the data may lie in a folder.

    Attributes
    ----------
    name
        The file's name.
    hash
        ``"sha256:…"``, or ``"git:…"`` for the id of a git blob.
    beside
        Files that must lie in the same folder.

    """

    name: str
    hash: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Archive:
    """A publisher's zip file: the members to unpack, and its hash where that is known."""

    members: tuple[str, ...]
    hash: str | None = None


@dataclass(frozen=True)
class Entry:
    """What is known of a data set without reading it.

    Attributes
    ----------
    name, title
        The key of ``DATASETS``, and the name for people.
    rows, columns
        The shape of X.
    response
        What y is.
    publisher, terms
        Who published it, and on which terms.
    url
        Where the publisher offers it.
    archive
        What to unpack from ``url``; None if the data cannot be fetched there.
    copies
        The forms that can be read, the best first.
    read
        The reader of a copy, chosen by the file's name if there are several.

    """

    name: str
    title: str
    rows: int
    columns: int
    response: str
    publisher: str
    terms: str
    url: str
    archive: Archive | None
    copies: tuple[Copy, ...]
    read: Callable[[Path], Parsed]

    @property
    def source(self) -> str:
        """Publisher and terms, in one line."""
        return f"{self.publisher}; {self.terms}"


def read_only(values: Any) -> Array:
    """Return numbers as a contiguous float64 array that nobody can change by accident."""
    array: Array = np.ascontiguousarray(values, dtype=np.float64)
    array.setflags(write=False)
    return array
