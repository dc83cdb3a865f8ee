"""Readers of the two data sets from the UCI Machine Learning Repository."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from .files import WrongHash, optional
from .record import Parsed

# The file has no header; its columns come in these groups.
BLOG_GROUPS = {"source": 50, "post": 12, "word": 200, "weekday": 14, "parent": 4}
BLOG_NAMES = tuple(
    f"{group}_{k}" for group, size in BLOG_GROUPS.items() for k in range(1, size + 1)
)

COMMUNITIES_NAMES_FILE = "communities.names"
NOT_PREDICTIVE = ["state", "county", "community", "communityname", "fold"]
CRIMES = "ViolentCrimesPerPop"
# Of the 128 names, one a line: the file around them holds words of the publisher.
NAMES_SHA256 = "b80f51109fa077568d2475ff11713bdb48ba5661db033f8b59ef5d14b619310f"


def read_blog_feedback(path: Path) -> Parsed:
    """X, shape (n, 280), and y = log(1 + comments), shape (n,), of blogData_train.csv."""
    table = optional("pandas").read_csv(path, header=None, dtype=np.float64).to_numpy()
    return table[:, :-1], np.log1p(table[:, -1]), BLOG_NAMES


def read_communities(path: Path, names_sha256: str = NAMES_SHA256) -> Parsed:
    """X, shape (n, 99), and y, shape (n,): the features that no row lacks.

    The publisher's communities.data has its column names in a file beside it.
    """
    header: dict[str, object] = {}
    if path.suffix == ".data":
        names = attribute_names(path.with_name(COMMUNITIES_NAMES_FILE), names_sha256)
        header = {"header": None, "names": names, "index_col": False}
    frame = optional("pandas").read_csv(path, na_values="?", **header)
    features = frame.drop(columns=[*NOT_PREDICTIVE, CRIMES]).dropna(axis="columns")
    return (
        features.to_numpy(np.float64),
        frame[CRIMES].to_numpy(np.float64),
        tuple(features.columns),
    )


def attribute_names(path: Path, sha256: str = NAMES_SHA256) -> list[str]:
    """Names of the columns, from lines such as ``@attribute population numeric``; by their hash."""
    lines = path.read_text(encoding="latin-1").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute ")]
    if len(names) != 128 or names[-1] != CRIMES:
        raise ValueError(
            f"{path} names {len(names)} attributes, the last {names[-1:]}: expected 128, the last "
            f"{CRIMES}. Put the publisher's file in its place"
        )
    found = hashlib.sha256("\n".join(names).encode()).hexdigest()
    if found != sha256:
        raise WrongHash(
            f"{path} has other names than the published ones: their hash (sha256) is {found}, "
            f"expected {sha256}. Put the publisher's file in its place"
        )
    return names
