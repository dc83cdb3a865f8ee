"""Several methods on one's own data, cross-validated, and which of them to use."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length
from threadpoolctl import threadpool_limits

from .base import privacy
from .compute import set_here, side_by_side, track
from .data.checks import check_choice, check_flag, check_positive, check_positive_int
from .data.rows import take
from .errors import one_line
from .estimators.base import IntervalRegressor
from .estimators.fit_input import Seeds
from .estimators.methods import DEFAULT, METHODS, MethodSettings
from .metrics import coverage, interval_score, mean_width
from .networks import Network
from .results import Intervals
from .shift import ShiftWarning

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("coverage", "width", "score", "r2", "fit_seconds", "predict_seconds", "certified")
COLUMNS = ("method", "fold", "n", "n_test", *MEASURES, "warning", "error")
WIDE_SPREAD = 20.0
SHORT = 2.33  # standard errors: 1 % of the methods that cover 1 − alpha fall shorter by chance
SAME = 0.05  # level of the paired test for differences in interval score
CLOSE = 1.1  # times the smallest interval score: what is close enough to matter little
Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
_warm: set[str] = set()  # methods that this process has fitted before


def compare_methods(
    X: Any,
    y: Any,
    methods: Sequence[str] | Mapping[str, IntervalRegressor] = tuple(DEFAULT),
    *,
    alpha: float = 0.1,
    network: Network | None = None,
    epochs: int = 10,
    batch_size: int = 10,
    epsilon: float = 0.01,
    scaling: Any = "standardize",
    folds: int = 5,
    train_rows: int = 500,
    test_rows: int = 5000,
    random_state: Any = 0,
    jobs: int = -1,
    scheduler: str | None = None,
    verbose: bool = False,
) -> pd.DataFrame:
    """Compare methods on the same folds of a data set. Requires pandas.

    Parameters
    ----------
    X, y
        Features, shape (n, p), and targets, shape (n,).
    methods
        Names, keys of ``lazyknife.estimators.methods.METHODS``; or a dict from names of your own
        to unfitted estimators, which keep their own settings except ``random_state``.
    alpha, network, epochs, batch_size, epsilon, scaling
        Settings of the methods given by name: the level; the network (None is
        ``mlp((64, 64), skip=True)``) and its training; the privacy of the DP-SGD bases; the scaling
        of the features, fitted on each fold's training and test rows together, without labels,
        which does not leak.
    folds
        Number of folds.
    train_rows, test_rows
        Largest number of rows in the two parts of a fold; more are sampled at random.
    random_state
        Seed of the folds; fold k of every method has the seed ``random_state + k``. None draws a
        seed, as does a generator of ``numpy.random``.
    jobs
        Number of fits at a time, each on one thread; -1 uses all cores.
    scheduler
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``: fits run on its workers.
    verbose
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        One row for each method and fold: coverage, mean width, interval score and R² on the test
        rows, seconds, certified coverage (NaN without a certificate), warnings, and the error of a
        fit that failed. ``lazyknife.compare.summarise_folds`` gives means and standard errors.

    """
    import pandas as pd

    settings = MethodSettings(alpha, network, epochs, batch_size, epsilon)
    for name, count in (("epochs", epochs), ("batch_size", batch_size)):
        check_positive_int(name, count)
    check_positive("epsilon", epsilon)
    if isinstance(methods, str | bytes) or not isinstance(methods, Iterable):
        raise TypeError(f"methods={methods!r}: give a list of names, or a dict of estimators")
    models = methods if isinstance(methods, Mapping) else _named(methods, settings, scaling)
    if not models:
        raise ValueError(f"methods={methods!r}: give at least one")
    for name, model in models.items():
        _check_model(name, model)
    X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
    check_consistent_length(X, y)
    check_flag("verbose", verbose)
    if isinstance(jobs, int) and jobs < 1 and jobs != -1:
        raise ValueError(f"jobs={jobs}: give 1 or more, or -1 for all cores")
    if jobs != -1:
        jobs = check_positive_int("jobs", jobs)
    drawn = Seeds.of(random_state).start
    seed = int(random_state) if isinstance(random_state, Integral) else drawn
    parts = make_folds(len(y), folds, train_rows, test_rows, seed)

    def calls() -> Iterator[tuple[Any, ...]]:
        for number, (train, test) in enumerate(parts):
            rows = take(X, train), y[train], take(X, test), y[test]
            for name, model in models.items():
                seeded = clone(model).set_params(random_state=seed + number)
                yield name, number, seeded, *rows

    total = len(parts) * len(models)
    jobs = min(jobs, total)
    rows = list(
        track(side_by_side(run_fold, calls(), jobs, scheduler), "comparing", total, verbose)
    )
    rows.sort(key=lambda row: (list(models).index(row["method"]), row["fold"]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def summarise_folds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard errors over the folds, one row a method, in the rows' order."""
    values = ["coverage", "width", "score", "seconds", "certified"]
    rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    grouped = rows.groupby("method", sort=False)[values]
    with np.errstate(invalid="ignore"):  # an infinite width has a mean, but no spread
        return grouped.mean().join(grouped.sem().add_suffix("_se")).reset_index()


def wants_log(widths: pd.Series) -> bool:
    """Whether widths differ too much for a linear axis."""
    finite = widths[np.isfinite(widths)]
    return bool(finite.max() > WIDE_SPREAD * finite.min())


def _check_model(name: str, model: Any) -> None:
    if not isinstance(model, IntervalRegressor):
        raise TypeError(
            f"methods[{name!r}] is of type {type(model).__name__}: give an estimator of lazyknife; "
            "other methods are compared by a study of your own (docs/studies.md)"
        )
    model._check_settings()


def _named(
    names: Iterable[str], settings: MethodSettings, scaling: Any
) -> dict[str, IntervalRegressor]:
    found = {}
    for name in names:
        check_choice("method", name, METHODS)
        found[name] = METHODS[name](settings).set_params(scaling=scaling)
    return found


def make_folds(n: int, folds: int, train_rows: int, test_rows: int, seed: int) -> list[Fold]:
    """Cut n rows into folds; return training and test rows of each, at most as many as given."""
    check_positive_int("train_rows", train_rows)
    check_positive_int("test_rows", test_rows)
    if not 2 <= check_positive_int("folds", folds) <= n:
        raise ValueError(f"folds={folds}: give between 2 and the number of rows, {n}")
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(n), folds)
    others = [np.concatenate([*parts[:k], *parts[k + 1 :]]) for k in range(folds)]
    train = [rng.permutation(rows)[:train_rows] for rows in others]
    return [(rows, part[:test_rows]) for rows, part in zip(train, parts, strict=True)]


def run_fold(
    method: str, fold: int, model: IntervalRegressor, X: Any, y: Any, X_test: Any, y_test: Any
) -> dict[str, Any]:
    """Fit one method on one fold; return a row of ``COLUMNS``."""
    row = {"method": method, "fold": fold, "n": len(y), "n_test": len(y_test)}
    try:
        with one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warm_up(method, model, X, y)
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("ignore", ShiftWarning)  # folds are drawn at random
            measures = measure(model, X, y, X_test, y_test, X_pool=X_test)
    except Exception as error:
        return row | {"warning": "", "error": one_line(f"{type(error).__name__}: {error}")}
    said = "; ".join(dict.fromkeys(str(warning.message) for warning in caught))
    return row | measures | {"warning": said, "error": ""}


def measure(
    model: IntervalRegressor, X: Any, y: Any, X_test: Any, y_test: Any, X_pool: Any = None
) -> dict[str, float]:
    """Fit a model, predict the test rows, and return the values of ``MEASURES``."""
    forget_accounts()
    started = time.perf_counter()
    model.fit(X, y, X_pool=X_pool)
    fitted = time.perf_counter()
    intervals = model.predict_interval(X_test)
    ended = time.perf_counter()
    seconds = fitted - started, ended - fitted
    return measures_of(y_test, intervals, model.certificate_.coverage, *seconds)


def measures_of(
    y_test: Any,
    intervals: Intervals,
    certified: float | None,
    fit_seconds: float,
    predict_seconds: float,
) -> dict[str, float]:
    """Return the values of ``MEASURES`` for intervals at one level."""
    values = (
        coverage(y_test, intervals).value,
        mean_width(intervals).value,
        interval_score(y_test, intervals).value,
        float(r2_score(y_test, intervals.point)),
        fit_seconds,
        predict_seconds,
        math.nan if certified is None else certified,
    )
    return dict(zip(MEASURES, values, strict=True))


def warm_up(method: str, model: IntervalRegressor, X: Any, y: Any) -> None:
    """Fit once on a few rows: the first fit of a process also pays for loading libraries."""
    if method in _warm:
        return
    _warm.add(method)
    few = np.arange(min(30, len(y)))
    with suppress(Exception):  # what is wrong shows in the fit that counts
        model.fit(take(X, few), y[few]).predict_interval(take(X, few))


def forget_accounts() -> None:
    """Empty the caches of the privacy accounting, so that every fit pays for its own."""
    for cached in vars(privacy).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run on one thread, so that times are comparable whatever the number of jobs."""
    before = torch.get_num_threads()
    set_here(1)
    try:
        with threadpool_limits(1):  # scikit-learn's own threads
            yield
    finally:
        set_here(before)


@dataclass(frozen=True)
class Recommendation:
    """The method with the smallest interval score among those that cover enough.

    Attributes
    ----------
    method
        Its name; None if no method covers enough.
    same
        Methods with interval scores at most 10 % larger, a difference within noise.
    unclear
        Methods with larger interval scores, though that may be noise: more folds would tell.
    short
        Methods whose coverage is significantly below 1 − alpha.
    certified
        The coverage that the method certifies on average over the folds; None without a guarantee.
    alpha
        The level of the intervals.

    """

    method: str | None
    same: tuple[str, ...]
    unclear: tuple[str, ...]
    short: tuple[str, ...]
    certified: float | None
    alpha: float

    def __str__(self) -> str:
        return " ".join([self.claim, *self.reasons])

    @property
    def claim(self) -> str:
        """The advice in a sentence."""
        if self.method is None:
            return "No method covers enough on these data."
        if self.same:
            return f"Use {self.method}; {_listed(self.same)} did about as well."
        if self.unclear:
            return f"Use {self.method}, which has the smallest interval score."
        return f"Use {self.method}: it did better than all others by more than noise."

    @property
    def reasons(self) -> tuple[str, ...]:
        """The rule, and what else to know, in sentences."""
        aim = f"{100 * (1 - self.alpha):.3g} %"
        rule = (
            "The rule: the smallest interval score (width, plus a penalty for each miss) among the "
            f"methods whose coverage is not significantly below {aim}; others did about as well if "
            "theirs is at most 10 % larger and the difference is within noise."
        )
        found = [rule]
        if self.method is not None:
            found.append(
                f"{self.method} has no coverage guarantee."
                if self.certified is None
                else f"{self.method} guarantees a coverage of at least {self.certified:.3f}."
            )
        if self.unclear:
            found.append(f"More folds would tell whether {_listed(self.unclear)} can do as well.")
        if self.short:
            found.append(f"Too little coverage: {_listed(self.short)}.")
        return tuple(found)


def recommend(rows: pd.DataFrame, alpha: float) -> Recommendation:
    """Recommend one of the methods in the rows of ``compare_methods``.

    Among the methods without errors whose coverage is not significantly below 1 − alpha (one-sided,
    1 %), the one with the smallest mean interval score is recommended. Another method is about as
    good if its score is at most 10 % larger and a paired t-test over the folds, at 5 %, does not
    tell the two apart.
    """
    table = rows.pivot(index="fold", columns="method", values="score")
    table = table[list(dict.fromkeys(rows["method"]))]
    works = [name for name in table if np.isfinite(table[name]).all()]
    short = [name for name in works if falls_short(rows[rows["method"] == name], alpha)]
    left = [name for name in works if name not in short]
    if not left:
        return Recommendation(None, (), (), tuple(short), None, alpha)
    best = min(left, key=lambda name: float(table[name].mean()))
    others = [name for name in left if name != best]
    noise = [name for name in others if not differs((table[name] - table[best]).to_numpy())]
    same = [name for name in noise if table[name].mean() <= CLOSE * table[best].mean()]
    unclear = [name for name in noise if name not in same]
    certified = float(rows.loc[rows["method"] == best, "certified"].mean())
    known = None if math.isnan(certified) else certified
    return Recommendation(best, tuple(same), tuple(unclear), tuple(short), known, alpha)


def falls_short(rows: pd.DataFrame, alpha: float) -> bool:
    """Whether the coverage of a method's folds is significantly below 1 − alpha.

    Given the training rows of a fold, coverage varies with variance α(1 − α)/(n + 2); folds share
    training rows, so this does not become smaller with their number.
    """
    tested = rows["n_test"].sum()
    coverage = float((rows["coverage"] * rows["n_test"]).sum() / tested)
    error = math.sqrt(alpha * (1 - alpha) * (1 / tested + 1 / (rows["n"].min() + 2)))
    return coverage < 1 - alpha - SHORT * error


def differs(differences: np.ndarray) -> bool:
    """Whether differences, one a fold, have a mean that is not 0, by a two-sided t-test."""
    from scipy.stats import t

    count = len(differences)
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    return abs(float(differences.mean())) > float(t.isf(SAME / 2, count - 1)) * error


def _listed(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
