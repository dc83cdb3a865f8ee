"""MAPIE around scikit-learn's simple models, behind the same ``predict_interval``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from ..certificate import make_certificate
from ..compute import PROCESSOR
from ..data.checks import check_choice
from ..data.containers import give_back
from ..data.flavour import flavour_of
from ..data.inputs import row_labels, to_tensor
from ..intervals.ends import evaluation_slack
from ..records import INDEPENDENT
from ..results import Intervals
from .base import IntervalRegressor
from .fit_input import Fitted, Given, Seeds
from .models import MODELS
from .warn import warn_if_outside

FOLDS = 10
UNIT = 2.0**-35  # of rounding, for models in float64: 2^17 times theirs
CALIBRATION = 0.5  # share of the rows, as in ``SplitConformalRegressor``


@dataclass(frozen=True)
class Conformalized:
    """A regressor of MAPIE after its fit, with what the shared part of an estimator asks for."""

    wrapped: Any  # MAPIE's regressor
    alpha: float  # the level that it was fitted for
    options: Mapping[str, Any]  # keywords of its prediction methods
    trained: int  # number of models that were fitted
    center: float  # median of y

    @property
    def residuals(self) -> Tensor:
        """Conformity scores of rows that no model was fitted to, shape (n,)."""
        scores = np.atleast_2d(self.wrapped.conformity_scores)[-1]  # of quantiles: the larger one
        return torch.from_numpy(scores[~np.isnan(scores)])

    @property
    def training_residuals(self) -> NoReturn:
        """MAPIE keeps no errors on the rows that a model was fitted to."""
        raise NotImplementedError("MAPIE keeps no errors on training rows")

    @property
    def rows_at_once(self) -> int:
        """Rows for which MAPIE's (rows × n) arrays fit, eight of them at a time."""
        return max(1, PROCESSOR.block // (64 * len(self.residuals)))

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the model of all rows that are fitted to, shape (m,)."""
        return torch.from_numpy(self.wrapped.predict(X.numpy(), **self.options))

    def ends(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Point, lower and upper end of each row, shapes (m,), rounded outwards."""
        n = len(self.residuals)
        # Split conformal raises here even where infinite bounds are allowed. The rank is in
        # MAPIE's own floats: at a few levels one above n + 1 − κ, never below.
        if math.ceil((1 - complement(complement(self.alpha))) * (n + 1)) > n:
            point = self.point(X)
            return point, torch.full_like(point, -torch.inf), torch.full_like(point, torch.inf)
        point, ends = self.wrapped.predict_interval(
            X.numpy(), allow_infinite_bounds=True, **self.options
        )
        point, ends = torch.from_numpy(point), torch.from_numpy(ends[:, :, 0])
        off = (point - self.center).abs()[:, None] + (ends - self.center).abs()
        slack = evaluation_slack(off, point.abs()[:, None] + ends.abs(), UNIT)
        return point, ends[:, 0] - slack[:, 0], ends[:, 1] + slack[:, 1]


class MapieRegressor(IntervalRegressor):
    """What MAPIE's two schemes share."""

    loo_: Conformalized
    network = target = bounds = None
    progress = False

    def __init__(
        self,
        model: str = "ridge",
        scaling: Any = None,
        alpha: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.scaling = scaling
        self.alpha = alpha
        self.random_state = random_state

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("model", self.model, MODELS)
        _mapie()

    def _fit(self, given: Given) -> Fitted:
        X, y, scaling, regression = given.X.numpy(), given.y.numpy(), given.scaling, _mapie()
        with _global_state_kept():
            loo = self._conformalize(regression, X, y, given.seeds)
        terms = self._terms(len(y), len(loo.residuals))
        certify = partial(
            make_certificate,
            dependence=INDEPENDENT,
            assumptions=given.assumptions,
            objections=scaling.objections,
            rows=scaling.rows,
            new_rows=scaling.new_rows,
            **terms,
        )
        return Fitted(loo, certify, {})

    @abstractmethod
    def _conformalize(self, regression: Any, X: Any, y: Any, seeds: Seeds) -> Conformalized:
        """Fit a class of ``mapie.regression`` to scaled rows."""

    @abstractmethod
    def _terms(self, n: int, scores: int) -> dict[str, Any]:
        """What the certificate is about, with n rows, of which so many have a score."""

    def _intervals(
        self, X: Any, ranks: Sequence[int], asked: float | tuple[float, ...]
    ) -> Intervals:
        if asked != self.loo_.alpha:
            raise ValueError(
                f"alpha={asked}: MAPIE was fitted for alpha={self.loo_.alpha}. Set alpha first, "
                "then fit"
            )
        values = self._check_new(X)
        warn_if_outside(self.scaling_.outside_pool(values), len(values))
        parts = self._by_blocks(self.loo_.ends, to_tensor(self.scaling_(values)))
        point, lower, upper = (torch.cat(part) for part in zip(*parts, strict=True))
        ends = (give_back(lower, X, -1), give_back(upper, X, 1))
        return Intervals(give_back(point, X), *ends, asked, row_labels(X), flavour_of(X))


class MapieCVRegressor(MapieRegressor):
    """CV+ by MAPIE's ``CrossConformalRegressor`` with ten folds; below ten rows, one a fold.

    A seed that all folds share, such as that of a forest, does not affect the theorem:
    exchangeable rows come in a random order, and a random order makes any algorithm symmetric.

    Parameters
    ----------
    model
        A key of ``MODELS``.
    scaling, alpha, random_state
        As for ``CVPlusRegressor``.

    """

    construction = "plus"

    def _conformalize(self, regression: Any, X: Any, y: Any, seeds: Seeds) -> Conformalized:
        folds = min(FOLDS, len(y))
        wrapped = regression.CrossConformalRegressor(
            MODELS[self.model](seeds.base),
            complement(self.alpha),
            conformity_score="absolute",
            method="plus",
            cv=folds,
            random_state=seeds.rows,
        ).fit_conformalize(X, y)
        # The point is that of the model of all rows, as for the other methods.
        options = {"aggregate_point_predictions": None}
        return Conformalized(wrapped, float(self.alpha), options, folds + 1, float(np.median(y)))

    def _terms(self, n: int, scores: int) -> dict[str, Any]:
        folds = min(FOLDS, n)
        return {
            "subject": f"MAPIE's CV+ with {folds} folds, {self.model}, n = {n}",
            "construction": "cv+",
            "n": n,
            "folds": folds,
            "theorem": "cv_plus",
        }


class MapieSplitRegressor(MapieRegressor):
    """Split conformal by MAPIE's ``SplitConformalRegressor``, calibrated on half of the rows.

    The parameters are those of ``MapieCVRegressor``.
    """

    construction = "jackknife"  # point ± order statistic of errors on rows not fitted to
    scheme, trained = "split conformal", 1

    def _parts(self, n: int, seeds: Seeds) -> Any:
        """Rows to fit to, and rows to calibrate on."""
        return train_test_split(np.arange(n), test_size=CALIBRATION, random_state=seeds.rows)

    def _rows_apart(self, n: int, seeds: Seeds) -> Any:
        return self._parts(n, seeds)[0]

    def _rows_left(self, n: int) -> int:
        return math.ceil(CALIBRATION * n)

    def _conformalize(self, regression: Any, X: Any, y: Any, seeds: Seeds) -> Conformalized:
        learn, kept = self._parts(len(y), seeds)
        wrapped = self._wrap(regression, MODELS[self.model](seeds.base), seeds.base)
        wrapped.fit(X[learn], y[learn]).conformalize(X[kept], y[kept])
        return Conformalized(wrapped, float(self.alpha), {}, self.trained, float(np.median(y)))

    def _wrap(self, regression: Any, model: Any, seed: int) -> Any:
        """Put a class of ``mapie.regression`` around a model."""
        level = complement(self.alpha)
        return regression.SplitConformalRegressor(model, level, "absolute", prefit=False)

    def _terms(self, n: int, scores: int) -> dict[str, Any]:
        subject = f"MAPIE's {self.scheme}, {self.model}, {scores} calibration rows of {n}"
        # Full: the rank of one score among n + 1.
        terms = {"construction": "full", "n": scores, "theorem": "split_conformal"}
        return {"subject": subject, **terms}


SCHEMES: dict[str, type[MapieRegressor]] = {"cv": MapieCVRegressor, "split": MapieSplitRegressor}


def complement(share: float) -> float:
    """1 − share in decimals, as MAPIE goes from a confidence level to its α."""
    return float(1 - Decimal(repr(float(share))))


def is_installed() -> bool:
    """Whether MAPIE is there."""
    return find_spec("mapie") is not None


def _mapie() -> Any:
    try:
        return import_module("mapie.regression")
    except ImportError as error:
        raise ImportError("mapie_… needs MAPIE: pip install mapie") from error


@contextmanager
def _global_state_kept() -> Iterator[None]:
    """Leave numpy's global random state as it was: split conformal draws a number from it."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
