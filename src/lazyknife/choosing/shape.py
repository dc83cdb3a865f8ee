"""Shapes of widths: how large errors are around x, learnt by every model or on rows set aside.

**By every model.** For model j, N_ij = |e_{i,−ij}|/σ_{i,−ij} are the errors with two rows left out
over their leverage widths, all i ≠ j. σ_{−j}(x) is the leverage width times one of

- 1;
- a local average, (c·mean N + Σ_i w(x, X_i) N_ij)/(c + Σ_i w(x, X_i)), for several kernels w;
- exp(b·level), where level is the prediction of model j at x less its mean prediction, in standard
  deviations of its y.

The model takes the one under which its own N are most likely: the least
mean log g_i + log mean N_ij/g_i over i ≠ j, plus a minimum gain for all but the first. Row i has no
part in its own average. All of it is a function of the rows without j and of x. Another shape is
another ``Offer`` of ``offers``.

**On rows set aside,** which no model leaves out: σ(x) = exp(k(x)ᵀc + β), a kernel ridge for the
logarithms of their left-out errors. Given those rows σ is fixed (``NoiseModel``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..networks import wide
from ..ridge.dual import DualSystem
from ..ridge.leave_one_out import two_left_out
from ..ridge.problem import System
from ..ridge.rounding import FIRST_ORDER, GAMMA
from ..ridge.system import Ridge
from ..tangent import Features, WideTangent
from .likelihood import replaced

AVERAGES = (
    wide("laplace", 1.0),
    wide("laplace", 3.0),
    wide("gaussian", 1.0),
    wide("gaussian", 2.0),
)
SLOPES = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)
PRIOR = 2.0  # c: how many rows the mean counts for
MINIMUM_GAIN = 2.0  # over the number of rows
FARTHEST = 2.5  # levels beyond this many standard deviations count as this many
TIE = 1e-6
HEAVY = 100.0  # times the errors of all other rows, above which r_j is replaced
# Relative error of the σ of rows set aside by rounding: far above what a few thousand terms of
# order one can add up to, and for larger terms this many times a random walk of as many roundings.
STRETCH, SAFETY = 1e-9, 8.0
LOWEST = 0.1  # part of the median that is added to errors before their logarithm is taken


class Errors(NamedTuple):
    """Errors of some models with two rows left out."""

    members: Tensor  # the models: the rows that they leave out, shape (k,)
    sizes: Tensor  # N_ij = |e_{i,−ij}|/σ_{i,−ij}, shape (n, k); 0 at a model's own row
    predicted: Tensor  # predictions with two rows left out, shape (n, k)
    own: Tensor  # predictions of the left-out rows, shape (k,)
    noise: Tensor  # bounds on the errors of N over their mean by rounding, shape (k,)

    @property
    def kept(self) -> Tensor:
        """1 at the model's own rows, 0 at the row that it leaves out, shape (n, k)."""
        kept = torch.ones_like(self.sizes)
        kept[self.members, torch.arange(len(self.members), device=kept.device)] = 0.0
        return kept


def joined(parts: Sequence[Errors]) -> Errors:
    """The errors of all these models together."""
    return Errors(*(torch.cat(each, dim=-1) for each in zip(*parts, strict=True)))


def errors_of(system: System, solved: Ridge, outputs: Tensor, members: Tensor) -> Errors:
    """Return the errors of some of the models at one λ.

    Nothing of model j depends on r_j, so it may be any number. Where the error of row j, left out,
    outweighs those of all others, they would lose their digits: then the prediction by the other
    rows takes the place of r_j.

    Parameters
    ----------
    system, solved
        The equations, and what they gave last.
    outputs
        f(X; θ0), shape (n,).
    members
        The models, shape (k,).

    """
    targets = system.targets
    found, own = _errors(system, solved, targets, outputs, members)
    for k in torch.nonzero(own > HEAVY * found.sizes.sum(dim=0))[:, 0].tolist():
        row = members[k : k + 1]
        lighter = replaced(targets[None], row, (found.own[k] - outputs[row])[None])[0]
        again, _ = _errors(system, solved, lighter, outputs, row)
        for every, one in zip(found[1:], again[1:], strict=True):
            every[..., k] = one[..., 0]
    return found


def _errors(
    system: System, solved: Ridge, targets: Tensor, outputs: Tensor, members: Tensor
) -> tuple[Errors, Tensor]:
    """Errors of the models, and |e_j|/σ_j at the rows that they leave out, shape (k,)."""
    if system.intercept:  # absorbs any constant: one of the targets, so that equal ones become 0
        middle = targets.median()
        targets, outputs = targets - middle, outputs + middle
    solved = system.again(solved, targets)
    errors, open_part = two_left_out(solved, members)
    predicted = (outputs + targets)[:, None] - errors
    sizes = errors.abs() * open_part.sqrt()  # σ²_{i,−ij} = 1/(d_i − A_ij²/d_j)
    sizes[members, torch.arange(len(members), device=sizes.device)] = 0.0
    residuals, widths = solved.left_out, solved.diagonal.abs().sqrt()
    own = solved.terms.own * widths
    share = torch.where(own.max() > 0, own.max() / _mean(sizes), 0.0)
    noise = 2 * GAMMA * (share + solved.strain)
    here = (outputs + (targets - residuals))[members]
    return Errors(members, sizes, predicted, here, noise), (residuals.abs() * widths)[members]


@dataclass(frozen=True)
class LocalAverage:
    """Errors around a row, which some models average."""

    members: Tensor
    tangent: WideTangent
    X: Tensor
    sizes: Tensor  # N of these models, shape (n, members)

    def some(self, which: Tensor) -> LocalAverage:
        """Those of some of the models."""
        return replace(self, members=self.members[which], sizes=self.sizes[:, which])

    def at(self, X: Tensor, each: Tensor) -> Tensor:
        """Factors at new rows, (m, members), given the predictions of all models, (m, n)."""
        tangent = self.tangent
        return self.averages(tangent.kernel(tangent.features(X), tangent.features(self.X)))

    def averages(self, weights: Tensor) -> Tensor:
        """Local averages over the mean, (m, members), with weights (m, n)."""
        others = weights.sum(dim=1, keepdim=True) - weights[:, self.members]
        return _averaged(weights @ self.sizes, others, _mean(self.sizes))


@dataclass(frozen=True)
class Level:
    """exp(b·level), of some models, which follows their predictions."""

    members: Tensor
    slope: float
    middle: Tensor
    unit: Tensor

    def some(self, which: Tensor) -> Level:
        """Those of some of the models."""
        return Level(self.members[which], self.slope, self.middle[which], self.unit[which])

    def at(self, X: Tensor, each: Tensor) -> Tensor:
        """Factors at new rows, (m, members), given the predictions of all models, (m, n)."""
        return self.of(each[:, self.members])

    def of(self, values: Tensor) -> Tensor:
        """Factors where the models predict these values, (..., members)."""
        levels = (values - self.middle) / self.unit
        return torch.exp(self.slope * levels.clamp(-FARTHEST, FARTHEST))


@dataclass(frozen=True)
class Factors:
    """Factors of all n models: those that some chose; that of all others is 1."""

    shapes: tuple[LocalAverage | Level, ...]
    own: Tensor  # at each model's left-out row, shape (n,)
    error: float  # bound on the relative error of factors by rounding
    doubtful: Tensor  # whether rounding may have decided what a model chose, shape (n,)
    names: tuple[str, ...]  # what each model chose

    @property
    def steepness(self) -> float:
        """Largest relative change of a factor for a change of predictions by one."""
        levels = [shape for shape in self.shapes if isinstance(shape, Level)]
        return max((float((of.slope / of.unit).abs().max()) for of in levels), default=0.0)

    def at(self, X: Tensor, each: Tensor) -> Tensor:
        """Factors at new rows, shape (m, n), given the predictions of all models, (m, n)."""
        found = torch.ones_like(each)
        for shape in self.shapes:
            found[:, shape.members] = shape.at(X, each)
        return found


class Offer(NamedTuple):
    """A factor that k models may choose."""

    name: str
    shape: LocalAverage | Level | None  # for new rows; None: 1
    rows: Tensor  # at each model's own rows, shape (n, k)
    own: Tensor  # at the rows left out, shape (k,)


def choose_factors(
    X: Tensor,
    targets: Sequence[Tensor],
    groups: Sequence[Errors],
    frames: Sequence[Callable[[wide], WideTangent]],
) -> Factors:
    """Let every model choose its factor.

    All n rows are given; y on the scale of each group of models, which share it and a frame; their
    errors; and the frame of each group: from an infinitely wide network to its tangent.
    """
    own, names = torch.ones_like(targets[0]), [""] * len(X)
    doubtful = torch.zeros_like(own, dtype=torch.bool)
    shapes, error = list[LocalAverage | Level](), 0.0
    for errors, frame, y in zip(groups, frames, targets, strict=True):
        shown = list(offers(errors, X, y, frame))
        chosen, unsure = _most_likely(errors, [offer.rows for offer in shown])
        unknown = ~(errors.noise < FIRST_ORDER)
        doubtful[errors.members] |= unsure | unknown
        error = max(error, float(torch.where(unknown, 0.0, errors.noise).max()))
        for k, offer in enumerate(shown):
            took = torch.nonzero(chosen == k)[:, 0]
            own[errors.members[took]] = offer.own[took]
            for member in errors.members[took].tolist():
                names[member] = offer.name
            if offer.shape is not None and len(took):
                shapes.append(offer.shape.some(took))
    return Factors(tuple(shapes), own, error, doubtful, tuple(names))


def offers(
    errors: Errors, X: Tensor, y: Tensor, frame: Callable[[wide], WideTangent]
) -> Iterator[Offer]:
    """All shapes, in the order in which they are compared."""
    members, sizes, kept = errors.members, errors.sizes, errors.kept
    yield Offer("leverage", None, torch.ones_like(sizes), torch.ones_like(errors.own))
    for network in AVERAGES:
        average = LocalAverage(members, frame(network), X, sizes)
        weights = average.tangent.gram(average.tangent.features(X))
        mine = weights[members].T
        own = _averaged((mine * sizes).sum(dim=0), (mine * kept).sum(dim=0), _mean(sizes))
        rows = average.averages(weights.fill_diagonal_(0.0))
        name = f"leverage × local average ({network} {network.scale:g})"
        yield Offer(name, average, rows, own)
    means = _mean(y[:, None] * kept)
    spread = _mean(((y[:, None] - means) * kept).square()).sqrt()
    middle, unit = _mean(errors.predicted * kept), spread.clamp(min=torch.finfo(y.dtype).tiny)
    for slope in SLOPES:
        level = Level(members, slope, middle, unit)
        name = f"leverage × level ({slope:+g})"
        yield Offer(name, level, level.of(errors.predicted), level.of(errors.own))


def _most_likely(errors: Errors, factors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Which factor each model takes, shape (k,), and where rounding may have decided."""
    kept, count = errors.kept, len(errors.sizes) - 1
    best = torch.full_like(errors.own, torch.inf)
    chosen, unsure = torch.zeros_like(errors.members), torch.zeros_like(best, dtype=torch.bool)
    for k, rows in enumerate(factors):
        value = (rows.log() * kept).sum(dim=0) / count + _mean(errors.sizes / rows).log()
        value = value + (MINIMUM_GAIN / count if k else 0.0)
        margin = value - (best - TIE)
        unsure = unsure | (margin.abs() <= 4 * errors.noise)
        chosen = torch.where(margin < 0, k, chosen)
        best = torch.where(margin < 0, value, best)
    return chosen, unsure


def _averaged(sums: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    """The local average over the mean; 1 where all errors are 0."""
    ratio = (PRIOR + sums / mean.clamp(min=torch.finfo(mean.dtype).tiny)) / (PRIOR + weights)
    return torch.where(mean > 0, ratio, 1.0)


def _mean(sizes: Tensor) -> Tensor:
    """Of each model's own rows, where the one that it leaves out has 0."""
    return sizes.sum(dim=0) / (len(sizes) - 1)


@dataclass(frozen=True)
class NoiseModel:
    """σ(x) = exp(k(x)ᵀc + β), learnt on rows set aside, the exponent kept within limits."""

    tangent: WideTangent
    points: Features  # the rows
    coefficients: Tensor  # c, shape (rows,)
    intercept: Tensor  # β, a single number
    limits: tuple[float, float] = (-math.inf, math.inf)  # the smallest and the largest log σ
    error: float = STRETCH  # bound on the relative error of σ by rounding

    def __call__(self, X: Tensor) -> Tensor:
        """σ of each row, shape (m,)."""
        kernel = self.tangent.kernel(self.tangent.features(X), self.points)
        return torch.exp((kernel @ self.coefficients + self.intercept).clamp(*self.limits))


def log_errors(errors: Tensor) -> Tensor:
    """log(|e| + ε), shape (m,), where ε is a small part of the median of |e|."""
    sizes = errors.abs()
    tiny = torch.finfo(sizes.dtype).tiny
    return (sizes + LOWEST * sizes.median()).clamp(min=tiny).log()


def fit_noise_model(
    tangent: WideTangent, X: Tensor, errors: Tensor, ridge: float
) -> NoiseModel | None:
    """Return σ, from a kernel ridge for the logarithms of left-out errors of rows, with this λ.

    None if a constant describes the errors as well, compared by mean log σ_i + log mean |e_i|/σ_i,
    where σ_i is that of the row, left out.
    """
    points, targets = tangent.features(X), log_errors(errors)
    kernel = tangent.gram(points)
    largest = float(kernel.abs().max())
    solved = DualSystem(kernel, targets, True, tangent.machine).solve(ridge)
    logs, sizes = targets - solved.left_out, errors.abs()
    gain = sizes.mean().log() - logs.mean() - (sizes * torch.exp(-logs)).mean().log()
    if not float(gain) > math.log(len(X)) / len(X):
        return None
    terms = largest * float(solved.dual.abs().sum())
    error = SAFETY * torch.finfo(targets.dtype).eps * math.sqrt(len(X)) * terms
    limits = float(targets.min()), float(targets.max())
    return NoiseModel(tangent, points, solved.dual, solved.intercept, limits, max(STRETCH, error))
