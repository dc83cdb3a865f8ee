"""Factors of the leverage widths, chosen by every model: how large errors are around x.

For model j, N_ij = |e_{i,−ij}|/σ_{i,−ij} are the errors with two rows left out over their leverage
widths, all i ≠ j. σ_{−j}(x) is the leverage width times one of

- 1;
- a local average, (c·mean N + Σ_i w(x, X_i) N_ij)/(c + Σ_i w(x, X_i)), for several kernels w;
- exp(b·level), where level is the prediction of model j at x less its mean prediction, in standard
  deviations of its y.

The model takes the one under which its own N are most likely: the least
mean log g_i + log mean N_ij/g_i over i ≠ j, plus a toll on all but the first. Row i has no part in
its own average. All of it is a function of the rows without j and of x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..networks import wide
from ..tangent import WideTangent
from .pairs import Errors
from .rounding import FIRST_ORDER

AVERAGES = (
    wide("laplace", 1.0),
    wide("laplace", 3.0),
    wide("gaussian", 1.0),
    wide("gaussian", 2.0),
)
SLOPES = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)
PRIOR = 2.0  # c: how many rows the mean counts for
TOLL = 2.0  # over the number of rows
FARTHEST = 2.5  # levels beyond this many standard deviations count as this many
TIE = 1e-6


Frame = Callable[[wide], WideTangent]


class _Factor(NamedTuple):
    """A factor for some models: at their rows, (n, k), and at the rows left out, (k,)."""

    rows: Tensor
    own: Tensor


@dataclass(frozen=True)
class Averages:
    """A local average that some models chose."""

    members: Tensor
    tangent: WideTangent
    X: Tensor
    sizes: Tensor
    kept: Tensor

    def at(self, X: Tensor) -> Tensor:
        tangent = self.tangent
        weights = tangent.kernel(tangent.features(X), tangent.features(self.X))
        return _averaged(weights @ self.sizes, weights @ self.kept, _mean(self.sizes))


@dataclass(frozen=True)
class Levels:
    """Factors that follow the prediction."""

    members: Tensor
    slopes: Tensor
    middle: Tensor
    unit: Tensor

    def at(self, each: Tensor) -> Tensor:
        """From predictions (m, n) to factors (m, members)."""
        return level(each[:, self.members], self.middle, self.unit, self.slopes)


@dataclass(frozen=True)
class Factors:
    """Factors of all n models.

    Attributes
    ----------
    averages, levels
        What the models chose; the factor of all others is 1.
    own
        At each model's left-out row, shape (n,).
    error
        Bound on the relative error of factors by rounding.
    doubtful, names
        Whether rounding may have decided what a model chose, shape (n,), and what that is.

    """

    averages: tuple[Averages, ...]
    levels: tuple[Levels, ...]
    own: Tensor
    error: float
    doubtful: Tensor
    names: tuple[str, ...]

    @property
    def steepness(self) -> float:
        """Largest relative change of a factor for a change of predictions by one."""
        return max((float((of.slopes / of.unit).abs().max()) for of in self.levels), default=0.0)

    def at(self, X: Tensor, each: Tensor) -> Tensor:
        """Factors at new rows, shape (m, n), given the predictions of all models, (m, n)."""
        found = torch.ones_like(each)
        for part in self.averages:
            found[:, part.members] = part.at(X)
        for kind in self.levels:
            found[:, kind.members] = kind.at(each)
        return found


def level(values: Tensor, middle: Tensor, unit: Tensor, slopes: Tensor | float) -> Tensor:
    """exp(b·level), shape of ``values``."""
    return torch.exp(slopes * ((values - middle) / unit).clamp(-FARTHEST, FARTHEST))


def choose_factors(
    X: Tensor, y: Tensor, groups: Sequence[Errors], frames: Sequence[Frame]
) -> Factors:
    """Let every model choose its factor.

    Parameters
    ----------
    X, y
        All n rows.
    groups
        Errors of the models, in groups that share a frame.
    frames
        The frame of each group: from an infinitely wide network to its tangent.

    """
    own, names = torch.ones_like(y), ["leverage"] * len(y)
    doubtful = torch.zeros_like(y, dtype=torch.bool)
    averages, levels, error = list[Averages](), list[Levels](), 0.0
    for errors, frame in zip(groups, frames, strict=True):
        offers = _Offers.of(errors, X, y, frame)
        chosen, unsure = _most_likely(errors, offers.factors)
        members = errors.members
        unknown = ~(errors.noise < FIRST_ORDER)
        doubtful[members] |= unsure | unknown
        every = torch.stack([factor.own for factor in offers.factors])
        own[members] = every.gather(0, chosen[None])[0]
        averages += offers.averages(errors, X, chosen)
        levels += offers.levels(errors, chosen)
        for member, k in zip(members.tolist(), chosen.tolist(), strict=True):
            names[member] = _NAMES[k]
        error = max(error, float(torch.where(unknown, 0.0, errors.noise).max()))
    return Factors(tuple(averages), tuple(levels), own, error, doubtful, tuple(names))


class _Offers(NamedTuple):
    """The factors that models of one group choose from, in the order of ``_NAMES``."""

    tangents: list[WideTangent]
    middle: Tensor
    unit: Tensor
    factors: list[_Factor]

    @classmethod
    def of(cls, errors: Errors, X: Tensor, y: Tensor, frame: Frame) -> _Offers:
        tangents, (middle, unit) = [frame(network) for network in AVERAGES], _levels(errors, y)
        ones = _Factor(torch.ones_like(errors.sizes), torch.ones_like(errors.own))
        local = [_average(errors, tangent, X) for tangent in tangents]
        steep = [
            _Factor(*(level(f, middle, unit, slope) for f in (errors.predicted, errors.own)))
            for slope in SLOPES
        ]
        return cls(tangents, middle, unit, [ones, *local, *steep])

    def averages(self, errors: Errors, X: Tensor, chosen: Tensor) -> list[Averages]:
        """The local averages that were chosen."""
        found = []
        for k, tangent in enumerate(self.tangents, start=1):
            took = chosen == k
            if took.any():
                sizes, kept = errors.sizes[:, took], errors.kept[:, took]
                found.append(Averages(errors.members[took], tangent, X, sizes, kept))
        return found

    def levels(self, errors: Errors, chosen: Tensor) -> list[Levels]:
        """The factors by level that were chosen."""
        first = 1 + len(self.tangents)
        took = chosen >= first
        slopes = self.middle.new_tensor(SLOPES)[(chosen - first)[took]]
        found = Levels(errors.members[took], slopes, self.middle[took], self.unit[took])
        return [found] if took.any() else []


_NAMES = (
    "leverage",
    *(f"leverage × local average ({network} {network.scale:g})" for network in AVERAGES),
    *(f"leverage × level ({slope:+g})" for slope in SLOPES),
)


def _most_likely(errors: Errors, offers: Sequence[_Factor]) -> tuple[Tensor, Tensor]:
    """Which factor each model takes, shape (k,), and where rounding may have decided."""
    kept, count = errors.kept, len(errors.sizes) - 1
    best = torch.full_like(errors.own, torch.inf)
    chosen, unsure = torch.zeros_like(errors.members), torch.zeros_like(best, dtype=torch.bool)
    for k, offer in enumerate(offers):
        scaled = (errors.sizes / offer.rows).sum(dim=0) / count
        value = (offer.rows.log() * kept).sum(dim=0) / count + scaled.log()
        value = value + (TOLL / count if k else 0.0)
        margin = value - (best - TIE)
        unsure = unsure | (margin.abs() <= 4 * errors.noise)
        chosen = torch.where(margin < 0, k, chosen)
        best = torch.where(margin < 0, value, best)
    return chosen, unsure


def _average(errors: Errors, tangent: WideTangent, X: Tensor) -> _Factor:
    rows = tangent.features(X)
    weights, kept = tangent.gram(rows), errors.kept
    mean, members = _mean(errors.sizes), errors.members
    beside = weights.clone().fill_diagonal_(0.0)
    mine = weights[members].T
    return _Factor(
        _averaged(beside @ errors.sizes, beside @ kept, mean),
        _averaged((mine * errors.sizes).sum(dim=0), (mine * kept).sum(dim=0), mean),
    )


def _averaged(sums: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    """The local average over the mean; 1 where all errors are 0."""
    ratio = (PRIOR + sums / mean.clamp(min=torch.finfo(mean.dtype).tiny)) / (PRIOR + weights)
    return torch.where(mean > 0, ratio, 1.0)


def _mean(sizes: Tensor) -> Tensor:
    return sizes.sum(dim=0) / (len(sizes) - 1)


def _levels(errors: Errors, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean prediction, and standard deviation of y, of each model's own rows, each (k,)."""
    kept, count = errors.kept, len(y) - 1
    means = (y[:, None] * kept).sum(dim=0) / count
    spread = ((y[:, None] - means) * kept).square().sum(dim=0).div(count).sqrt()
    middle = (errors.predicted * kept).sum(dim=0) / count
    return middle, spread.clamp(min=torch.finfo(spread.dtype).tiny)
