"""The frozen records that one stage hands to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Ends = tuple[Tensor, Tensor, Tensor]  # point (m,), lower (m, levels), upper (m, levels)


@dataclass(frozen=True)
class PrivacyCurve:
    """Bounds on how much one more data point can change the distribution of a random output A.

    For every k and every set S, with D any data set and z one more point,

        P(A(D) ∈ S) ≤ exp(epsilons[k]) · P(A(D + z) ∈ S) + deltas[k].

    Attributes
    ----------
    epsilons, deltas
        Points of the curve δ(ε). A single point (0, 0) means no dependence at all.
    replace_one
        One (ε, δ) under replacing one point by another, the convention of the paper's Theorem 1.

    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    replace_one: tuple[float, float]

    def transfer(self, miss: float) -> float:
        """Bound an event's probability under A(D) by its probability ``miss`` under A(D + z)."""
        return float(np.min(np.exp(self.epsilons) * miss + np.asarray(self.deltas)))

    @property
    def total_variation(self) -> float:
        """τ, the largest possible difference in the probability of an event."""
        return float(np.min(1 - np.exp(-np.asarray(self.epsilons)) * (1 - np.asarray(self.deltas))))

    @classmethod
    def from_dp(cls, epsilon: float, delta: float = 0.0) -> PrivacyCurve:
        """Return the curve for which only one add/remove (ε, δ) is known."""
        return cls((epsilon,), (delta,), (2 * epsilon, (1 + float(np.exp(epsilon))) * delta))


INDEPENDENT = PrivacyCurve((0.0,), (0.0,), (0.0, 0.0))


@dataclass(frozen=True)
class Base:
    """Base weights θ0, how they depend on the data, and how they were obtained.

    Attributes
    ----------
    module
        The network at θ0.
    dependence
        The privacy curve of θ0; None where nothing is known (training without privacy).
    details
        Details of the run, for instance sampling rate, noise multiplier, steps and seed of DP-SGD.

    """

    module: nn.Module
    dependence: PrivacyCurve | None
    details: Mapping[str, Any] = field(default_factory=dict)


class Predictor(Protocol):
    """A full-data model, and the residuals of its training rows."""

    @property
    def residuals(self) -> Tensor:
        """Y_j − f_{−j}(X_j), shape (n,)."""

    @property
    def training_residuals(self) -> Tensor:
        """Y_i − f(X_i) of the full-data model, shape (n,)."""

    @property
    def rows_at_once(self) -> int:
        """Number of rows to predict at a time."""

    def point(self, X: Tensor) -> Tensor:
        """Full-data predictions, shape (m,)."""


class RoundedModels(Predictor, Protocol):
    """Models with bounds on what rounding may have changed in them."""

    @property
    def conceded(self) -> int:
        """Number of conceded leave-one-out models: rounding leaves nothing known of them."""

    def typical_error(self) -> tuple[float, float]:
        """Typical error of predictions and residuals by rounding; relative error of widths."""


class Predictions(NamedTuple):
    """Predictions of all leave-one-out models for m rows, and what rounding may have changed.

    Attributes
    ----------
    point
        Full-data predictions, shape (m,).
    each
        Leave-one-out predictions less ``shift``, shape (m, n).
    shift
        Added to ``each`` in float64 where that is in a coarser floating type; a single number.
    scales
        σ_{−j}(x), shape (m, n), or a single 1.
    stretch
        Bounds on the relative errors of a row's σ by rounding, shape (m,), or a single 0.
    slack
        Bounds on the errors of a row's predictions by rounding, shape (m,) or a single number.

    """

    point: Tensor
    each: Tensor
    shift: Tensor
    scales: Tensor
    stretch: Tensor
    slack: Tensor


class LeaveOneOut(Predictor, Protocol):
    """n leave-one-out models and the full-data model, however they were computed."""

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Full-data predictions (m,) and leave-one-out predictions (m, n)."""

    @property
    def scores(self) -> Tensor:
        """R_j = |Y_j − f_{−j}(X_j)| / σ_{−j}(X_j), rounded up, shape (n,)."""

    def scaled(self, X: Tensor) -> Predictions:
        """Return everything that intervals are computed from."""


class Conformal(Predictor, Protocol):
    """A full-data model to which candidates for y can be added."""

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, and the ends of the accepted candidates for each rank κ."""


@dataclass(frozen=True)
class Intervals:
    """Prediction intervals for m rows, at one level or several.

    ``point``, ``lower`` and ``upper`` are numpy arrays, or tensors on the device of the rows if the
    rows were a tensor.

    Attributes
    ----------
    point
        Point predictions, shape (m,).
    lower, upper
        Ends of the intervals, shape (m,), or (m, levels) when several levels were asked for.
        They are −inf and inf if there are too few training rows for the level.
    alpha
        The level, or the tuple of levels.
    index
        The row labels of the caller's frame, if it had any.

    """

    point: Any
    lower: Any
    upper: Any
    alpha: float | tuple[float, ...]
    index: Any = None

    @property
    def width(self) -> Any:
        """Upper minus lower end; 0 where the interval is empty (alpha above one half only)."""
        return (self.upper - self.lower).clip(min=0.0)

    def covers(self, y: ArrayLike | Tensor) -> NDArray[np.bool_]:
        """Whether each interval contains the true y; an array of the shape of ``lower``."""
        truth, (point, lower, upper) = to_array(y), self._arrays()
        if truth.shape != point.shape:
            raise ValueError(
                f"y has shape {truth.shape}, but there are {len(point)} intervals: "
                f"pass y with shape ({len(point)},)"
            )
        if lower.ndim == 2:
            truth = truth[:, None]
        return (lower <= truth) & (truth <= upper)

    def to_numpy(self) -> Array:
        """Lower and upper ends, shape (m, 2), or (m, 2, levels)."""
        return np.stack(self._arrays()[1:], axis=1)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: point, lower, upper (several levels: lower_0.1, upper_0.1, …)."""
        import pandas as pd

        point, lower, upper = self._arrays()
        columns: dict[str, Array] = {"point": point}
        if isinstance(self.alpha, tuple):
            for k, alpha in enumerate(self.alpha):
                columns[f"lower_{alpha:g}"] = lower[:, k]
                columns[f"upper_{alpha:g}"] = upper[:, k]
        else:
            columns |= {"lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=self.index)

    def with_arrays(self) -> Intervals:
        """Return the same intervals in numpy arrays."""
        return Intervals(*self._arrays(), self.alpha, self.index)

    def _arrays(self) -> tuple[Array, Array, Array]:
        return to_array(self.point), to_array(self.lower), to_array(self.upper)

    def __len__(self) -> int:
        return len(self.point)


def to_array(values: ArrayLike | Tensor) -> Array:
    """Return numbers as a float64 array, from any container or device."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float64)
