"""The default from 100 to 200,000 rows against split conformal around gradient boosting.

    python -m benchmarks.sizes default 4000     # one fit in a process of its own, as JSON

Each method runs in its own process, in turn: seconds of the fit and of all intervals at
alpha = .1 (not of imports), the peak of the whole process, and the interval score on new rows.
Of 50 features six matter, one of them for the noise alone.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyknife import LazyJackknifeRegressor
from lazyknife.intervals import kappa

SIZES = (100, 300, 1_000, 2_000, 4_000, 20_000, 200_000)
FEATURES, ALPHA = 50, 0.1
MANY = 1_000  # rows from which a size is measured once
Array = NDArray[np.float64]
Row = dict[str, Any]


class Ends(NamedTuple):
    """Ends of intervals."""

    lower: Array
    upper: Array


def rows_of(n: int, seed: int) -> tuple[Array, Array]:
    """sin(2x₀)x₁ + |x₂| + .5x₃[x₄ > 0] + (.3 + .3[x₅ > 0])·noise of standard normal features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, FEATURES))
    a, b, c, d, e, f = X[:, :6].T
    noise = (0.3 + 0.3 * (f > 0)) * rng.normal(size=n)
    return X, np.sin(2 * a) * b + np.abs(c) + 0.5 * d * (e > 0) + noise


def new_rows(n: int) -> int:
    """How many new rows a size is measured with."""
    return 20_000 if n >= 200_000 else 5_000


def default(X: Array, y: Array, new: Array) -> Ends:
    """Intervals of the library's defaults."""
    found = LazyJackknifeRegressor(alpha=ALPHA, random_state=0).fit(X, y).predict_interval(new)
    return Ends(found.lower, found.upper)


def boosting(X: Array, y: Array, new: Array) -> Ends:
    """Split conformal around gradient boosting: half of the rows for each."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    half = len(y) // 2
    model = HistGradientBoostingRegressor(random_state=0).fit(X[:half], y[:half])
    errors = np.sort(np.abs(y[half:] - model.predict(X[half:])))[::-1]
    point, margin = model.predict(new), errors[kappa(ALPHA, len(errors)) - 1]
    return Ends(point - margin, point + margin)


METHODS: dict[str, Callable[[Array, Array, Array], Ends]] = {
    "default": default,
    "boosting": boosting,
}


def measure(method: str, n: int) -> Row:
    """One method at one size, in this process."""
    (X, y), (new, outcome) = rows_of(n, seed=0), rows_of(new_rows(n), seed=1)
    start = time.perf_counter()
    ends = METHODS[method](X, y, new)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "score": score(ends, outcome),
        "coverage": float(np.mean((ends.lower <= outcome) & (outcome <= ends.upper))),
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def score(ends: Ends, y: Array) -> float:
    """Mean interval score: the width, and 2/alpha times the distance of a y outside."""
    outside = np.maximum(ends.lower - y, 0) + np.maximum(y - ends.upper, 0)
    return float(np.mean(ends.upper - ends.lower + 2 / ALPHA * outside))


def apart(method: str, n: int) -> Row:
    """One method at one size, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.sizes", method, str(n)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Row = json.loads(finished.stdout.splitlines()[-1])
    return found


def sizes(repeats: int, which: Sequence[int] = SIZES) -> list[Row]:
    """Both methods in turn at every size: medians, ratios, and growth from the size before."""
    return list(_with_growth([_size(n, 1 if n >= MANY else repeats) for n in which]))


def _size(n: int, repeats: int) -> Row:
    rounds = [{name: apart(name, n) for name in METHODS} for _ in range(repeats)]
    middle = {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in first}
        for name, first in rounds[0].items()
    }
    ratios = [each["default"]["seconds"] / each["boosting"]["seconds"] for each in rounds]
    return {"size": n, "new": new_rows(n), "ratio": statistics.median(ratios), **middle}


def _with_growth(rows: list[Row]) -> Iterator[Row]:
    """Rows with the exponent of n in the default's seconds since the size before."""
    for before, row in zip([None, *rows], rows, strict=False):
        exponent = None
        if before is not None:
            times = row["default"]["seconds"] / before["default"]["seconds"]
            exponent = float(np.log(times) / np.log(row["size"] / before["size"]))
        yield {**row, "exponent": exponent}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
