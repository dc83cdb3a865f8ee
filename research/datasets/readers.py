"""Readers of files: X, y and the names of the features. The survey's are in ahrq.py."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from .files import WrongHash
from .record import Parsed

# BlogFeedback has no header; its columns come in these groups.
BLOG_GROUPS = {"source": 50, "post": 12, "word": 200, "weekday": 14, "parent": 4}
BLOG_NAMES = tuple(
    f"{group}_{k}" for group, size in BLOG_GROUPS.items() for k in range(1, size + 1)
)
COMMUNITIES_NAMES_FILE = "communities.names"
NOT_PREDICTIVE = ["state", "county", "community", "communityname", "fold"]
CRIMES = "ViolentCrimesPerPop"
# Of the 128 names, one a line: the file around them holds words of the publisher.
NAMES_SHA256 = "b80f51109fa077568d2475ff11713bdb48ba5661db033f8b59ef5d14b619310f"
BOSTON_NAMES = (
    *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE"),
    *("DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"),
)
AIRFOIL_NAMES = ("log frequency", "angle", "chord", "velocity", "log thickness")
LOGARITHMS = [0, 4]  # of the airfoils, as in the comparison


def read_blog_feedback(path: Path) -> Parsed:
    """X, shape (n, 280), and y = log(1 + comments), shape (n,), of blogData_train.csv."""
    table = _read_csv(path, header=None, dtype=np.float64).to_numpy()
    return table[:, :-1], np.log1p(table[:, -1]), BLOG_NAMES


def read_communities(path: Path, names_sha256: str = NAMES_SHA256) -> Parsed:
    """X, shape (n, 99), and y, shape (n,): the features that no row lacks.

    The publisher's communities.data has its column names in a file beside it.
    """
    header: dict[str, object] = {}
    if path.suffix == ".data":
        names = attribute_names(path.with_name(COMMUNITIES_NAMES_FILE), names_sha256)
        header = {"header": None, "names": names, "index_col": False}
    frame = _read_csv(path, na_values="?", **header)
    features = frame.drop(columns=[*NOT_PREDICTIVE, CRIMES]).dropna(axis="columns")
    y = frame[CRIMES].to_numpy(np.float64)
    return features.to_numpy(np.float64), y, tuple(features.columns)


def attribute_names(path: Path, sha256: str = NAMES_SHA256) -> list[str]:
    """Names of the columns, from lines such as ``@attribute population numeric``; by their hash."""
    lines = path.read_text(encoding="latin-1").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute ")]
    found = hashlib.sha256("\n".join(names).encode()).hexdigest()
    if found != sha256:
        raise WrongHash(
            f"{path} has {len(names)} names of attributes, other ones than published: their hash "
            f"(sha256) is {found}, expected {sha256}. Put the publisher's file in its place"
        )
    return names


def read_table(path: Path, response: str = "y", separator: str = ",") -> Parsed:
    """X and y of a table of numbers with a header."""
    frame = _read_csv(path, dtype=np.float64, sep=separator)
    y = frame.pop(response).to_numpy()
    return frame.to_numpy(), y, tuple(frame.columns)


def read_frame(path: Path) -> Any:
    """X, a frame as it is, and y, its last column."""
    frame = _read_csv(path)
    y = frame.pop(frame.columns[-1]).to_numpy(np.float64)
    return frame, y, tuple(frame.columns)


def read_boston(path: Path) -> Parsed:
    """X, shape (506, 13), and y, shape (506,), from numbers without a header."""
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1], BOSTON_NAMES


def read_airfoil(path: Path) -> Parsed:
    """X, shape (1503, 5), two columns as logarithms, and y, shape (1503,)."""
    table = np.loadtxt(path)
    table[:, LOGARITHMS] = np.log(table[:, LOGARITHMS])
    return table[:, :-1], table[:, -1], AIRFOIL_NAMES


def _read_csv(path: Path, **options: Any) -> Any:
    import pandas as pd

    return pd.read_csv(path, **options)
