"""MAPIE's CV+ around a regressor of scikit-learn, behind the same ``predict_interval``."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from ..certificate import Claim
from ..compute import PROCESSOR
from ..intervals.constructions import evaluation_slack
from ..records import Ends
from .base import IntervalRegressor, Levels
from .fit_input import Fitted, Given, Seeds

FOLDS = 10
UNIT = 2.0**-35  # of rounding, for models in float64: 2^17 times theirs


@dataclass(frozen=True)
class Conformalized:
    """A regressor of MAPIE after its fit."""

    wrapped: Any
    options: dict[str, Any]  # keywords of its prediction methods
    alpha: float  # the level that it was fitted for
    center: float  # median of y
    residuals: Tensor  # conformity scores of rows that no model was fitted to, shape (n,)

    @property
    def training_residuals(self) -> NoReturn:
        raise NotImplementedError("MAPIE keeps no errors on training rows")

    @property
    def rows_at_once(self) -> int:  # MAPIE has eight arrays of (rows × n) numbers at a time
        return max(1, PROCESSOR.block // (64 * len(self.residuals)))

    def point(self, X: Tensor) -> Tensor:
        return torch.from_numpy(self.wrapped.predict(X.numpy(), **self.options))

    def ends(self, X: Tensor) -> Ends:
        """Point and ends, rounded outwards."""
        found = self.wrapped.predict_interval(X.numpy(), allow_infinite_bounds=True, **self.options)
        point, ends = torch.from_numpy(found[0]), torch.from_numpy(found[1][:, :, 0])
        off = (point - self.center).abs()[:, None] + (ends - self.center).abs()
        slack = evaluation_slack(off, point.abs()[:, None] + ends.abs(), UNIT)
        return point, (ends - slack)[:, :1], (ends + slack)[:, 1:]


@dataclass(eq=False, repr=False)
class MapieRegressor(IntervalRegressor):
    """MAPIE's CV+ with ten folds, or one a row if there are fewer, around an unfitted ``model``.

    Seeds of the model come from ``random_state``. A seed that all folds share does not affect the
    theorem: exchangeable rows come in a random order, and a random order makes any algorithm
    symmetric.
    """

    model: Any
    scaling: Any = None
    alpha: float = 0.1
    random_state: Any = None
    loo_: Conformalized = field(init=False)
    construction, network, verbose = "plus", None, False

    def _check_settings(self) -> None:
        super()._check_settings()
        try:
            import_module("mapie.regression")
        except ImportError as error:
            raise ImportError("mapie_… needs MAPIE: pip install mapie") from error

    def _levels(self, alpha: Levels) -> float | tuple[float, ...]:
        if (asked := super()._levels(alpha)) != self.loo_.alpha:
            raise ValueError(
                f"alpha={asked}: MAPIE was fitted for alpha={self.loo_.alpha}. Set alpha first, "
                "then fit"
            )
        return asked

    def _ends(self, loo: Any, X: Tensor, ranks: Any) -> Ends:
        return self.loo_.ends(X)

    def _seeded(self, seeds: Seeds) -> Any:
        """The model with its seeds, to be put into a class of MAPIE."""
        model = clone(self.model)
        drawn = [name for name in model.get_params() if name.endswith("random_state")]
        return model.set_params(**dict.fromkeys(drawn, seeds.base))

    def _fit(self, given: Given) -> Fitted:
        n, folds = len(given.y), min(FOLDS, len(given.y))
        wrapped = import_module("mapie.regression").CrossConformalRegressor(
            self._seeded(given.seeds),
            complement(self.alpha),
            cv=folds,
            random_state=given.seeds.rows,
        )
        wrapped.fit_conformalize(given.X.numpy(), given.y.numpy())
        scores = torch.from_numpy(wrapped.conformity_scores)
        # The point is that of the model of all rows, as for the other methods.
        options = {"aggregate_point_predictions": None}
        center = float(np.median(given.y.numpy()))
        subject = f"MAPIE's CV+, {type(self.model).__name__}, {folds} folds, n = {n}"
        claim: dict[str, Any] = {"theorem": "cv_plus", "construction": "cv+", "folds": folds}
        certify = Claim(subject=subject, n=n, **claim, **given.stated)
        return Fitted(Conformalized(wrapped, options, self.alpha, center, scores), certify, {})


def complement(share: float) -> float:
    """1 − share in decimals, as MAPIE goes from a confidence level to its α."""
    return float(1 - Decimal(repr(float(share))))
