"""Several methods on one's own data, cross-validated, and which of them to use.

Methods given by name see features and targets on a scale of order one. Both scales are symmetric
functions of training and test rows together, so these stay exchangeable and certificates hold.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_consistent_length
from threadpoolctl import threadpool_limits

from .base import DPSGD, Plain
from .compute import side_by_side, track
from .data.checks import check_choice, check_flag, check_positive_int
from .data.rows import take
from .errors import listed, one_line
from .estimators.base import IntervalRegressor
from .estimators.baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
from .estimators.fit_input import Seeds
from .estimators.lazy import LazyJackknifeRegressor
from .estimators.mapie import MapieRegressor
from .metrics import coverage, interval_score, mean_width
from .networks import Network
from .results import Intervals
from .shift import ShiftWarning

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("coverage", "width", "score", "r2", "fit_seconds", "predict_seconds", "certified")
COLUMNS = ("method", "fold", "n", "n_test", *MEASURES, "warning", "error")
SHORT = 2.33  # standard errors: 1 % of the methods that cover 1 − alpha fall shorter by chance
SAME = 0.05  # level of the paired test for differences in interval score
CLOSE = 1.1  # times the smallest interval score: what is close enough to matter little
Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
_warm: set[str] = set()  # methods that this process has fitted before


class MaternProcess(GaussianProcessRegressor):  # type: ignore[misc]
    """A Gaussian process with one length scale for each feature, all chosen by likelihood."""

    def fit(self, X: Any, y: Any) -> Self:
        scales = Matern(np.ones(X.shape[1]), nu=1.5)
        self.kernel = ConstantKernel() * scales + WhiteKernel()
        with warnings.catch_warnings():
            # A feature that does not matter has a length scale at the upper bound.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)  # type: ignore[no-any-return]


PROCESS = make_pipeline(StandardScaler(), MaternProcess(normalize_y=True))
BOOSTING = HistGradientBoostingRegressor(min_samples_leaf=5)
PAPER: dict[str, Any] = {"ridge": 10.0, "readout": "network", "widths": "constant", "device": "cpu"}
DEFAULT: dict[str, IntervalRegressor] = {
    "naive": JackknifeRegressor(construction="naive"),
    "jackknife+": JackknifeRegressor(),
    "cv+": CVPlusRegressor(),
    "split_conformal": SplitConformalRegressor(),
    "lazy_finetune": LazyJackknifeRegressor(base=Plain(), **PAPER),
    "lazyknife": LazyJackknifeRegressor(device="cpu"),
}
PRIVATE: dict[str, IntervalRegressor] = {  # with the extra "dp"
    "lazy_dp": LazyJackknifeRegressor(base=DPSGD(), **PAPER)
}
PEERS: dict[str, IntervalRegressor] = {  # with MAPIE
    "mapie_cv_boosting": MapieRegressor(BOOSTING),
    "mapie_cv_forest": MapieRegressor(RandomForestRegressor()),
    "mapie_cv_gp": MapieRegressor(PROCESS),
}
METHODS = {**DEFAULT, **PRIVATE, **PEERS}
ABOUT = {
    "naive": "One network; widths from its errors on its own training rows. No guarantee.",
    "jackknife+": "As many networks as rows, each trained without one row.",
    "cv+": "Ten networks, each trained without one tenth of the rows.",
    "split_conformal": "One network trained on half of the rows; widths from the other half.",
    "lazy_finetune": "The paper's lazy jackknife+ around an ordinary training. No guarantee.",
    "lazyknife": "This library's default: every leave-one-out model chooses its wide network.",
    "lazy_dp": "The paper's lazy jackknife+ around a private training.",
    "mapie_cv_boosting": "MAPIE's CV+ with ten folds around gradient boosting.",
    "mapie_cv_forest": "MAPIE's CV+ with ten folds around a random forest.",
    "mapie_cv_gp": "MAPIE's CV+ with ten folds around a Gaussian process.",
}


def usual_methods() -> tuple[str, ...]:
    """Methods to compare by default, with peers if MAPIE is installed."""
    return tuple(DEFAULT) if find_spec("mapie") is None else (*DEFAULT, *PEERS)


def compare_methods(
    X: Any,
    y: Any,
    methods: Sequence[str] | Mapping[str, IntervalRegressor] | None = None,
    *,
    alpha: float = 0.1,
    network: Network | None = None,
    epochs: int = 10,
    batch_size: int = 10,
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
        Names, keys of ``lazyknife.compare.METHODS``; or a dict from names of your own to unfitted
        estimators, which keep their own settings except ``random_state``. None: all that need no
        privacy, and uses of MAPIE if it is installed.
    alpha, network, epochs, batch_size, scaling
        Settings of the methods given by name: the level; the network (None is
        ``mlp((64, 64), skip=True)``) and its training; the scaling of the features, fitted on each
        fold's training and test rows together. Targets are standardised by all rows, and widths
        and scores given back in their unit.
    folds, train_rows, test_rows
        Number of folds, and largest number of rows in both parts of one; more are sampled.
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
        fit that failed. ``summarise_folds`` of ``lazyknife.compare`` gives means and standard
        errors, ``recommend`` the method to use, ``messages`` each kind of warning once.

    """
    import pandas as pd

    check_positive_int("epochs", epochs)
    check_positive_int("batch_size", batch_size)
    check_flag("verbose", verbose)
    if jobs != -1:  # all cores
        check_positive_int("jobs", jobs)
    X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
    check_consistent_length(X, y)
    drawn = Seeds.of(random_state).start
    seed = int(random_state) if isinstance(random_state, Integral) else drawn
    parts = make_folds(len(y), folds, train_rows, test_rows, seed)
    if methods is None:
        methods = usual_methods()
    if isinstance(methods, str | bytes) or not isinstance(methods, Iterable):
        raise TypeError(f"methods={methods!r}: give a list of names, or a dict of estimators")
    if not methods:
        raise ValueError(f"methods={methods!r}: give at least one")
    unit = 1.0
    if isinstance(methods, Mapping):
        models = dict(methods)
    else:
        given = {"alpha": alpha, "network": network, "scaling": scaling}
        given |= {"epochs": epochs, "batch_size": batch_size}
        models = {name: named_method(name, given) for name in methods}
        if np.issubdtype(y.dtype, np.number) and np.isfinite(y).all():  # else each fit refuses y
            unit = float(y.std()) or 1.0
            y = (y - y.mean()) / unit
    for name, model in models.items():
        if not isinstance(model, IntervalRegressor):
            raise TypeError(
                f"methods[{name!r}] is of type {type(model).__name__}: give an estimator of "
                "lazyknife; other methods are compared by a study of your own (docs/studies.md)"
            )
        model._check_settings()

    def calls() -> Iterator[tuple[Any, ...]]:
        for number, (train, test) in enumerate(parts):
            rows = take(X, train), y[train], take(X, test), y[test]
            for name, model in models.items():
                yield name, number, clone(model).set_params(random_state=seed + number), *rows

    total = len(parts) * len(models)
    running = side_by_side(run_fold, calls(), min(jobs, total), scheduler)
    rows = list(track(running, "comparing", total, verbose))
    rows.sort(key=lambda row: (list(models).index(row["method"]), row["fold"]))
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    found[["width", "score"]] *= unit
    return found


def named_method(name: str, given: Mapping[str, Any]) -> IntervalRegressor:
    """Return a method of ``METHODS`` with those settings that it, or its base, has."""
    check_choice("method", name, METHODS)
    model: IntervalRegressor = clone(METHODS[name])
    own = {key: key.removeprefix("base__") for key in model.get_params()}
    return model.set_params(**{key: given[of] for key, of in own.items() if of in given})


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
    """Fit one method on one fold, on one thread; return a row of ``COLUMNS``."""
    row = {"method": method, "fold": fold, "n": len(y), "n_test": len(y_test)}
    try:
        with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
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
    started = time.perf_counter()
    model.fit(X, y, X_pool=X_pool)
    fitted = time.perf_counter()
    intervals = model.predict_interval(X_test)
    seconds = {"fit_seconds": fitted - started, "predict_seconds": time.perf_counter() - fitted}
    return measures_of(y_test, intervals, model.certificate_.coverage) | seconds


def measures_of(y_test: Any, intervals: Intervals, certified: float | None) -> dict[str, float]:
    """Return the values of ``MEASURES`` but for times, for intervals at one level."""
    return {
        "coverage": coverage(y_test, intervals).value,
        "width": mean_width(intervals).value,
        "score": interval_score(y_test, intervals).value,
        "r2": float(r2_score(y_test, intervals.point)),
        "certified": math.nan if certified is None else certified,
    }


def warm_up(method: str, model: IntervalRegressor, X: Any, y: Any) -> None:
    """Fit once on a few rows: the first fit of a process also pays for loading libraries."""
    if method in _warm:
        return
    _warm.add(method)
    few = np.arange(min(30, len(y)))
    with suppress(Exception):  # what is wrong shows in the fit that counts
        model.fit(take(X, few), y[few]).predict_interval(take(X, few))


def summarise_folds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard errors over the folds, one row a method, in the rows' order."""
    values = ["coverage", "width", "score", "seconds", "certified"]
    rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    grouped = rows.groupby("method", sort=False)[values]
    with np.errstate(invalid="ignore"):  # an infinite width has a mean, but no spread
        return grouped.mean().join(grouped.sem().add_suffix("_se")).reset_index()


def messages(rows: pd.DataFrame, column: str) -> list[str]:
    """Each kind of ``"warning"`` or ``"error"`` once, with its methods; numbers may differ."""
    some, found = rows[rows[column] != ""], []
    for _, part in some.groupby(some[column].str.replace(r"\d+", "", regex=True), sort=False):
        names = tuple(dict.fromkeys(part["method"]))
        folds = f"{len(part)} of {rows['method'].isin(names).sum()} folds"
        found.append(f"{listed(names)}, {folds}: {part[column].iloc[0]}")
    return found


@dataclass(frozen=True)
class Recommendation:
    """The method with the smallest interval score among those that cover enough."""

    method: str | None  # its name; None if no method covers enough
    same: tuple[str, ...]  # interval scores at most 10 % larger, a difference within noise
    unclear: tuple[str, ...]  # larger ones, though that may be noise: more folds would tell
    short: tuple[str, ...]  # coverage significantly below 1 − alpha
    certified: float | None  # what the method certifies, mean over the folds; None: no guarantee
    alpha: float

    def __str__(self) -> str:
        return " ".join([self.claim, *self.reasons])

    @property
    def claim(self) -> str:
        if self.method is None:
            return "No method has finite intervals that cover enough on these data."
        if self.same:
            return f"Use {self.method}; {listed(self.same)} did about as well."
        if self.unclear:
            return f"Use {self.method}, which has the smallest interval score."
        return f"Use {self.method}: it did better than all others by more than noise."

    @property
    def reasons(self) -> tuple[str, ...]:
        """The rule, and what else to know."""
        found = [
            "The rule: the smallest interval score (width, plus a penalty for each miss) among the "
            f"methods whose coverage is not significantly below {100 * (1 - self.alpha):.3g} %; "
            "others did about as well if theirs is at most 10 % larger and the difference is "
            "within noise."
        ]
        if self.method is not None and self.certified is None:
            found.append(f"{self.method} has no coverage guarantee.")
        elif self.method is not None:
            found.append(f"{self.method} guarantees a coverage of at least {self.certified:.3f}.")
        if self.unclear:
            found.append(f"More folds would tell whether {listed(self.unclear)} can do as well.")
        if self.short:
            found.append(f"Too little coverage: {listed(self.short)}.")
        return tuple(found)


def recommend(rows: pd.DataFrame, alpha: float) -> Recommendation:
    """Recommend one of the methods in the rows of ``compare_methods``.

    The rule is that of ``Recommendation.reasons``: coverage is tested one-sided at 1 %, differences
    in score by a paired t-test over the folds at 5 %. Methods with an error are left out.
    """
    table = rows.pivot(index="fold", columns="method", values="score")
    table = table[list(dict.fromkeys(rows["method"]))]
    works = [name for name in table if np.isfinite(table[name]).all()]
    short = tuple(name for name in works if falls_short(rows[rows["method"] == name], alpha))
    left = [name for name in works if name not in short]
    if not left:
        return Recommendation(None, (), (), short, None, alpha)
    best = min(left, key=lambda name: float(table[name].mean()))
    others = [name for name in left if name != best]
    noise = [name for name in others if not differs((table[name] - table[best]).to_numpy())]
    same = tuple(name for name in noise if table[name].mean() <= CLOSE * table[best].mean())
    unclear = tuple(name for name in noise if name not in same)
    certified = float(rows.loc[rows["method"] == best, "certified"].mean())
    known = None if math.isnan(certified) else certified
    return Recommendation(best, same, unclear, short, known, alpha)


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
    count = len(differences)
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    return abs(float(differences.mean())) > float(student.isf(SAME / 2, count - 1)) * error
