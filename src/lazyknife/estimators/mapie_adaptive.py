"""MAPIE's intervals whose width follows the noise; they calibrate on half of the rows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .mapie import MapieSplitRegressor, complement
from .models import LEAF, MODELS


class MapieQuantileRegressor(MapieSplitRegressor):
    """Conformalised quantile regression: each end is corrected by its own errors, at α/2.

    The model needs a quantile loss, and MAPIE more than 2/α calibration rows. Each end misses with
    probability κ(α/2)/(n + 1) at most; twice that is at most the bound of split conformal, which
    the certificate states.
    """

    scheme, trained = "conformalised quantile regression", 3  # both ends and the median

    def _wrap(self, regression: Any, model: Any, seed: int) -> Any:
        quantile = model.set_params(loss="quantile")
        return regression.ConformalizedQuantileRegressor(quantile, complement(self.alpha))


class MapieNormalisedRegressor(MapieSplitRegressor):
    """Split conformal with errors divided by their predicted size.

    A quarter of the calibration rows, MAPIE's default, trains the model of the size, a forest with
    large leaves: with so few rows MAPIE's linear regression and boosting are far worse.
    """

    scheme, trained = "residual-normalised score", 2

    def _rows_left(self, n: int) -> int:
        return 3 * super()._rows_left(n) // 4

    def _wrap(self, regression: Any, model: Any, seed: int) -> Any:
        scores = import_module("mapie.conformity_scores")
        size = MODELS["forest"](seed).set_params(min_samples_leaf=LEAF)
        score = scores.ResidualNormalisedScore(size, random_state=seed)
        return regression.SplitConformalRegressor(
            model, complement(self.alpha), score, prefit=False
        )


ADAPTIVE: dict[str, type[MapieSplitRegressor]] = {
    "quantile": MapieQuantileRegressor,
    "normalised": MapieNormalisedRegressor,
}
