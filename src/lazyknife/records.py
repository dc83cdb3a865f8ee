"""The frozen records that one stage hands to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]
Ends = tuple[Tensor, Tensor, Tensor]  # point (m,), lower (m, levels), upper (m, levels)
# Which end of an interval is asked for: an interval, or a limit that y is above or below.
Side = Literal["both", "lower", "upper"]


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

    @property
    def add_remove(self) -> tuple[float, float]:
        """One (ε, δ) under adding or removing one point, at the δ of ``replace_one`` or below."""
        delta = min(self.replace_one[1], max(self.deltas))
        if delta < min(self.deltas):
            return float("inf"), delta
        order = np.argsort(self.deltas)  # δ is convex in e^ε, so a line between two points is above
        points = np.asarray(self.deltas)[order], np.exp(self.epsilons)[order]
        return float(np.log(np.interp(delta, *points))), delta

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
    """A full-data model, and the residuals of its training rows.

    ``residuals`` are Y_j − f_{−j}(X_j) and ``training_residuals`` Y_i − f(X_i), shape (n,) each;
    ``rows_at_once`` is how many rows to predict at a time, and ``point`` gives the full-data
    model's predictions, shape (m,).
    """

    @property
    def residuals(self) -> Tensor: ...
    @property
    def training_residuals(self) -> Tensor: ...
    @property
    def rows_at_once(self) -> int: ...
    def point(self, X: Tensor) -> Tensor: ...


class RoundedModels(Predictor, Protocol):
    """Models with bounds on what rounding may have changed in them.

    Of ``undetermined`` leave-one-out models rounding leaves nothing known. ``typical_error`` is
    that of predictions and residuals by rounding, and the relative one of widths.
    """

    @property
    def undetermined(self) -> int: ...
    def typical_error(self) -> tuple[float, float]: ...


class Predictions(NamedTuple):
    """Predictions of all leave-one-out models for m rows, and what rounding may have changed."""

    point: Tensor  # of the full-data model, (m,)
    each: Tensor  # of the leave-one-out models, (m, n)
    scales: Tensor  # σ_{−j}(x), (m, n), or a single 1
    stretch: Tensor  # bounds on the relative errors of a row's σ by rounding, (m,), or a single 0
    slack: Tensor  # bounds on the errors of a row's predictions by rounding, (m,), or one for all
    # From the predictions to the middle of intervals, (m,), or one for all.
    shift: Tensor = torch.zeros(())
    lean: Tensor = torch.zeros(())  # the same of each model alone, (m, n), or one for all
    # Models that were fitted on another scale of y, and from there to that of the full one, which
    # moves both ends outwards.
    elsewhere: Sequence[tuple[Tensor, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = ()

    def ends(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """f_{−j}(x) ∓ R_j σ_{−j}(x), each (m, n), for scores R, shape (n,), or a single one.

        Around f_{−j}(x) + c_j σ_{−j}(x) where models shift their intervals.
        """
        margins = rounded_up(scores * self.scales, self.stretch[..., None])
        middle = self.each + self.lean.to(self.each)
        lower, upper = middle - margins, middle + margins
        slack = self.slack.expand(len(lower))[:, None]
        for members, convert in self.elsewhere:
            ends = lower[:, members] - slack, upper[:, members] + slack
            lower[:, members], upper[:, members] = convert(*ends)
        return lower, upper


def errors_on(errors: Tensor, side: Side) -> Tensor:
    """What is large where an end of this side misses: the size of an error, or the error."""
    return errors.abs() if side == "both" else errors if side == "upper" else -errors


def rounded_up(values: Tensor, relative: Tensor | float) -> Tensor:
    """Return values of any sign, larger by so much of their size."""
    if bool((values < 0).any()):
        return values * (1 + values.sign() * relative)
    return values * (1 + relative)


class LeaveOneOut(Predictor, Protocol):
    """n leave-one-out models and the full-data model, however they were computed.

    ``scores`` are R_j = |Y_j − f_{−j}(X_j)| / σ_{−j}(X_j), rounded up, shape (n,); where ``side``
    is the upper end alone the error takes the place of its size, for the lower one its negative.
    ``scaled`` gives everything that intervals are computed from.
    """

    @property
    def side(self) -> Side: ...
    @property
    def scores(self) -> Tensor: ...
    def scaled(self, X: Tensor) -> Predictions: ...


class Conformal(Predictor, Protocol):
    """A full-data model to which candidates for y can be added.

    ``accepted`` gives point predictions, and the ends of the accepted candidates for each rank κ.
    """

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends: ...


def to_array(values: ArrayLike | Tensor) -> Array:
    """Return numbers as a float64 array, from any container or device."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    if np.ma.is_masked(values):
        raise TypeError("a masked array has masked values, which are no data: remove them")
    return np.asarray(values, dtype=np.float64)
