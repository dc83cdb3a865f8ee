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

Where errors are skewed, intervals of model j lie around f_{−j}(x) + c_j σ_{−j}(x): c_j is the
middle between the α/2 and 1 − α/2 quantiles of the model's own N_ij/g_i with their signs, or 0
where it does not lower their interval score by a part. Row j has the score |e_j/σ_{−j}(X_j) − c_j|.

**On rows set aside,** which no model leaves out: boosted quantile curves of their left-out
residuals e on a row x and its prediction p by the ridge of those rows. With the curves q₋ at α/2
and q₊ at 1 − α/2, an interval is f(x) + c ∓ R·σ, c = (q₋ + q₊)/2 and σ = (q₊ − q₋)/2, but no less
than a part of the median of |e|; the score of a row is |y − f(x) − c|/σ. Given those rows c and σ
are fixed functions of x (``QuantileShape``). Trees compare p with cuts: where rounding may decide,
a row is *doubtful*. One that is left out then has an infinite score, and a new one an infinite
interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import Machine
from ..data.own_scaling import SHIFT
from ..networks import wide
from ..ridge.leave_one_out import two_left_out
from ..ridge.problem import System
from ..ridge.rounding import FIRST_ORDER, GAMMA
from ..ridge.system import Ridge, joined
from ..tangent import WideTangent
from ..tangent.trees import Trees, grow
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
# Part of the interval score that a shift must gain, with so many rows or more; in total with fewer.
SHIFT_GAIN, SHIFT_ROWS = 0.01, 300
HEAVY = 100.0  # times the errors of all other rows, above which r_j is replaced
# Relative errors of c and σ by rounding. Trees have the same sums in every batch, so few operations
# round differently.
STRETCH = 1e-12
LOWEST = 0.1  # part of the median of |e| that σ is at least
FEWEST_SHAPED = 150  # rows that a shape is learnt from
LEAST_GAIN = 0.01  # of the interval score
FOLDS = 5
# Trees for few rows, and for many.
SMALL_TREES = {"max_iter": 60, "min_samples_leaf": 40, "max_leaf_nodes": 8}
LARGE_TREES = {"max_iter": 100, "min_samples_leaf": 20, "max_leaf_nodes": 15}
MANY_SHAPED = 4000
GRID_BITS, LEAST_SPREAD = 12, 1e-300


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
    shift: Tensor  # c of each model, shape (n,)
    shift_error: Tensor  # bounds on the errors of c by rounding, shape (n,)

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
    alpha: float,
) -> Factors:
    """Let every model choose its factor, and its shift for a level.

    All n rows are given; y on the scale of each group of models, which share it and a frame; their
    errors; and the frame of each group: from an infinitely wide network to its tangent.
    """
    own, names = torch.ones_like(targets[0]), [""] * len(X)
    doubtful = torch.zeros_like(own, dtype=torch.bool)
    shift, shift_error = torch.zeros_like(own), torch.zeros_like(own)
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
        rows = torch.stack([offer.rows for offer in shown])
        factors = rows.gather(0, chosen.expand_as(rows[:1]))[0]
        middle, off, unsure = _shifts(errors, y, factors, alpha)
        shift[errors.members], shift_error[errors.members] = middle, off
        doubtful[errors.members] |= unsure
    names = [name + ", shifted" * bool(c) for name, c in zip(names, shift.tolist(), strict=True)]
    return Factors(tuple(shapes), own, error, doubtful, tuple(names), shift, shift_error)


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


def _shifts(
    errors: Errors, y: Tensor, factors: Tensor, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Shifts c of the models, bounds on their rounding, and where that decided, each (k,).

    ``factors`` are those that the models chose, at their own rows, (n, k).
    """
    count = len(y) - 1
    signed = errors.sizes * (y[:, None] - errors.predicted).sign() / factors
    ordered = torch.where(errors.kept > 0, signed, torch.inf).sort(dim=0).values[:count]
    rank = int(alpha / 2 * count)
    middle = (ordered[rank] + ordered[count - 1 - rank]) / 2
    plain, moved = (_interval_score(ordered - c, alpha) for c in (0.0, middle))
    margin = moved - (1 - SHIFT_GAIN * max(1.0, SHIFT_ROWS / count)) * plain
    noise = errors.noise * (_mean(errors.sizes) / factors).amax(dim=0)
    unsure = (margin.abs() <= 4 * (1 + 2 / alpha) * noise) & (plain > 0)
    chosen = (margin < 0) & (middle != 0)
    return torch.where(chosen, middle, 0.0), torch.where(chosen, noise, 0.0), unsure


def _interval_score(errors: Tensor, alpha: float) -> Tensor:
    """Of intervals around 0 whose width these errors set, for each column."""
    sizes = errors.abs().sort(dim=0).values
    margin = sizes[math.ceil((1 - alpha) * len(sizes)) - 1]
    return 2 * margin + 2 / alpha * (sizes - margin).clamp(min=0.0).mean(dim=0)


def _averaged(sums: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    """The local average over the mean; 1 where all errors are 0."""
    ratio = (PRIOR + sums / mean.clamp(min=torch.finfo(mean.dtype).tiny)) / (PRIOR + weights)
    return torch.where(mean > 0, ratio, 1.0)


def _mean(sizes: Tensor) -> Tensor:
    """Of each model's own rows, where the one that it leaves out has 0."""
    return sizes.sum(dim=0) / (len(sizes) - 1)


class Shaped(NamedTuple):
    """The shape at m rows; every field has shape (m,)."""

    shift: Tensor  # c
    scale: Tensor  # σ
    error: Tensor  # bounds on the errors of c by rounding; infinite where it may decide

    @classmethod
    def constant(cls, like: Tensor) -> Shaped:
        """Intervals around f(x) of one width, at as many rows as another tensor has."""
        zero = like.new_zeros(()).expand(len(like))
        return cls(zero, zero + 1, zero)


@dataclass(frozen=True)
class QuantileShape:
    """c(x) and σ(x), learnt on rows set aside."""

    low: Trees  # q₋, of the features and p
    high: Trees
    floor: float  # the least σ

    def at(self, X: Tensor, levels: Tensor, errors: Tensor) -> Shaped:
        """The shape at rows whose p are given, with bounds on their errors, all on one device."""
        rows = torch.cat([X, levels[:, None]], dim=1)
        low, high = self.low(rows), self.high(rows)
        shift, scale = (low + high) / 2, ((high - low) / 2).clamp(min=self.floor)
        cuts = torch.cat([trees.cuts_of(X.shape[1]) for trees in (self.low, self.high)])
        ends = cuts.new_tensor([-torch.inf, torch.inf])
        cuts = torch.cat([ends, cuts]).sort().values
        above = torch.searchsorted(cuts, levels).clamp(1, len(cuts) - 1)
        clear = torch.minimum(levels - cuts[above - 1], cuts[above] - levels) > errors
        return Shaped(shift, scale, torch.where(clear, STRETCH * shift.abs(), torch.inf))


def fit_shape(
    X: Tensor, levels: Tensor, errors: Tensor, alpha: float, seed: int, machine: Machine
) -> QuantileShape | None:
    """Learn the shape of intervals from left-out residuals of rows, in a random order.

    None if constant widths give about the same interval score, or a lower one, on rows that were
    not learnt from. Rounding hardly ever moves ``levels`` across a cut: trees see them on a grid.
    """
    count, floor = len(errors), LOWEST * float(errors.abs().median())
    if count < FEWEST_SHAPED or not floor > 0 or not bool(errors.isfinite().all()):
        return None
    size = SMALL_TREES if count < MANY_SHAPED else LARGE_TREES
    rows = torch.cat([X, _on_grid(levels)[:, None]], dim=1)

    def learnt(kept: Tensor) -> QuantileShape:
        low, high = (
            grow(rows[kept], errors[kept], seed, machine, loss="quantile", quantile=q, **size)
            for q in (alpha / 2, 1 - alpha / 2)
        )
        return QuantileShape(low, high, floor)

    folds = torch.arange(count, device=X.device) % FOLDS
    nothing, parts = torch.zeros_like(errors), list[Shaped]()
    for k in range(FOLDS):
        held = folds == k
        parts.append(learnt(~held).at(X[held], levels[held], nothing[held]))
    errors_held = torch.cat([errors[folds == k] for k in range(FOLDS)])
    found, plain = joined(parts), Shaped.constant(errors)
    gain = 1 - _score(errors_held, found, alpha) / _score(errors_held, plain, alpha)
    return learnt(folds >= 0) if gain >= LEAST_GAIN else None


def _score(errors: Tensor, shape: Shaped, alpha: float) -> float:
    """Interval score of a shape whose scale is set by the same rows."""
    sizes = (errors - shape.shift).abs()
    margins = (sizes / shape.scale).quantile(1 - alpha) * shape.scale
    return float((2 * margins + 2 / alpha * (sizes - margins).clamp(min=0.0)).mean())


def _on_grid(values: Tensor) -> Tensor:
    """Values on a grid far finer than their spread, a power of 2, which few sums hit exactly."""
    spread = float(values.quantile(0.75) - values.quantile(0.25)) or float(values.std())
    if not spread > LEAST_SPREAD:
        return values
    grid = 2.0 ** (round(math.log2(spread)) - GRID_BITS)
    return ((values / grid - SHIFT).round() + SHIFT) * grid
