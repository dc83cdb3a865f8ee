"""Readers of the Medical Expenditure Panel Survey of 2016 (HC-192), and the papers' derivation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lazyknife.records import Array

from .record import Parsed

if TYPE_CHECKING:
    import pandas as pd

# Totals and their parts are both in the papers' sum.
UTILISATION = (
    *("OBTOTV16", "OBCHIR16", "OBNURS16", "OBOPTO16", "OBASST16", "OBTHER16"),
    *("OPTOTV16", "AMCHIR16", "AMNURS16", "AMOPTO16", "AMASST16", "AMTHER16"),
    *("ERTOT16", "IPDIS16", "IPNGTD16", "DVTOT16", "HHTOTD16", "RXTOT16"),
)
NUMERIC = ("AGE53X", "EDUCYR", "HIDEG", "FAMINC16", "RTHLTH53", "MNHLTH53", "NOINSTM")
INAPPLICABLE = -1
_YES_NO = (INAPPLICABLE, 1, 2)
_TO_FOUR = (INAPPLICABLE, 1, 2, 3, 4)

# The categorical variables with the levels that are left in the papers' file, 100 in all.
LEVELS: dict[str, tuple[int, ...]] = {
    "REGION53": _TO_FOUR,
    "RACEV2X": (1, 2, 3, 4, 5, 6, 10, 12),
    "HISPANX": (1, 2),
    "MARRY53X": (INAPPLICABLE, *range(1, 11)),
    "ACTDTY53": _TO_FOUR,
    "HONRDC53": _TO_FOUR,
    "LANGSPK": _YES_NO,
    "FILEDR16": _YES_NO,
    "PREGNT53": _YES_NO,
    "WLKLIM53": _YES_NO,
    "WLKDIF53": _TO_FOUR,
    "AIDHLP53": _YES_NO,
    "SOCLIM53": _YES_NO,
    "COGLIM53": _YES_NO,
    "WRGLAS42": _YES_NO,
    "EMPST53": _TO_FOUR,
    "MORJOB53": _YES_NO,
    "OCCCT53H": (INAPPLICABLE, *range(1, 10), 11),
    "INDCT53H": (INAPPLICABLE, *range(1, 16)),
}
NEEDED = (*NUMERIC, *LEVELS, *UTILISATION)


def derive(frame: pd.DataFrame) -> Parsed:
    """Derive the papers' features and response from the survey's codes.

    A row goes if a utilisation is negative or a feature below -1; a -1, "inapplicable", becomes 0
    in a numeric feature and a level of its own in a categorical one.

    Parameters
    ----------
    frame
        One row a person, with the columns ``NEEDED``, in any order and among others.

    Returns
    -------
    X, y, names
        Numeric features, then a dummy for each level present, in ascending order, shape (n, p);
        log(1 + sum of the utilisation), shape (n,); the p names.

    """
    values = frame[list(NEEDED)].to_numpy(np.float64)
    _check_present(values)
    # Zeros of a transport file may come out as tiny numbers: take the whole part, as the papers do.
    whole = values.astype(np.int64)
    numeric, codes, counts = np.split(whole, [len(NUMERIC), len(NUMERIC) + len(LEVELS)], axis=1)
    kept = (counts >= 0).all(axis=1)
    kept &= (numeric >= INAPPLICABLE).all(axis=1) & (codes >= INAPPLICABLE).all(axis=1)
    numeric, codes, counts = numeric[kept], codes[kept], counts[kept]

    blocks, names = [np.where(numeric == INAPPLICABLE, 0, numeric)], list(NUMERIC)
    for variable, column in zip(LEVELS, codes.T, strict=True):
        present = np.unique(column)
        blocks.append(column[:, None] == present)
        names += [f"{variable}={level}" for level in present.tolist()]
    return np.hstack(blocks).astype(np.float64), np.log1p(counts.sum(axis=1)), tuple(names)


def read_2016(path: Path) -> Parsed:
    """X, shape (n, 107), and y, shape (n,), from the survey's file."""
    X, y, names = derive(read_survey(path))
    _check_levels(path, names)
    return X, y, names


def read_survey(path: Path) -> pd.DataFrame:
    """Return the columns ``NEEDED`` of h192.csv or h192.ssp, a SAS transport file."""
    import pandas

    if path.suffix == ".csv":
        frame = pandas.read_csv(path, usecols=lambda name: name.upper() in NEEDED)
        return frame.rename(columns=str.upper)
    # The file has nearly 2000 columns: only a part of it fits into a small memory.
    with pandas.read_sas(path, format="xport", encoding="latin-1", chunksize=5000) as chunks:
        return pandas.concat([chunk[list(NEEDED)] for chunk in chunks], ignore_index=True)


def read_panel21(path: Path) -> Parsed:
    """X, shape (n, 139), and y = log(1 + utilisation), shape (n,), of panel 21."""
    with np.load(path, allow_pickle=False) as arrays:
        names = tuple(map(str, arrays["feature_names"]))
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.float64), names


def _check_present(values: Array) -> None:
    missing = [NEEDED[k] for k in np.flatnonzero(np.isnan(values).any(axis=0))]
    if missing:
        raise ValueError(
            f"the survey's columns {', '.join(missing)} have missing values: expected codes only. "
            "Read the published file"
        )


def _check_levels(path: Path, names: Sequence[str]) -> None:
    """Refuse a derivation with other numbers of levels than the papers'."""
    found = Counter(name.split("=")[0] for name in names if "=" in name)
    wrong = [
        f"{variable} {found[variable]} for {len(levels)}"
        for variable, levels in LEVELS.items()
        if found[variable] != len(levels)
    ]
    if wrong:
        raise ValueError(
            f"{path} gives other numbers of levels than the papers have: {', '.join(wrong)}. "
            "Put the published file in its place"
        )
