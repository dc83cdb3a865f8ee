"""What widths depend on beside leverage, chosen by every model: how large errors are around x.

For model j, N_ij = |e_{i,−ij}|/σ_{i,−ij} are the errors with two rows left out over their leverage
widths, all i ≠ j. σ_{−j}(x) is the leverage width times one of

- 1;
- a local average, (c·mean N + Σ_i w(x, X_i) N_ij)/(c + Σ_i w(x, X_i)), for several kernels w;
- exp(b·level), where level is the prediction of model j at x less its mean prediction, in standard
  deviations of its y.

The model takes the one under which its own N are most likely: the least
mean log g_i + log mean N_ij/g_i over i ≠ j, plus a minimum gain for all but the first. Row i has no
part in its own average. All of it is a function of the rows without j and of x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..networks import wide
from ..ridge.leave_one_out import strips, two_left_out, two_left_out_diagonal
from ..ridge.rounding import FIRST_ORDER, GAMMA
from ..ridge.system import Ridge, System, left_out
from ..tangent import WideTangent
from .likelihood import replaced

AVERAGES = (
    wide("laplace", 1.0),
    wide("laplace", 3.0),
    wide("gaussian", 1.0),
    wide("gaussian", 2.0),
)
SLOPES = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)
NAMES = (
    "leverage",
    *(f"leverage × local average ({network} {network.scale:g})" for network in AVERAGES),
    *(f"leverage × level ({slope:+g})" for slope in SLOPES),
)
PRIOR = 2.0  # c: how many rows the mean counts for
MINIMUM_GAIN = 2.0  # over the number of rows
FARTHEST = 2.5  # levels beyond this many standard deviations count as this many
TIE = 1e-6
HEAVY = 100.0  # times the errors of all other rows, above which r_j is replaced


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
    if system.intercept:  # absorbs any constant: one of the targets, so that equal ones become 0
        middle = targets.median()
        targets, outputs = targets - middle, outputs + middle
    found, own = _errors(system, system.again(solved, targets), targets, outputs, members)
    for k in torch.nonzero(own > HEAVY * found.sizes.sum(dim=0))[:, 0].tolist():
        row = members[k : k + 1]
        lighter = replaced(targets[None], row, (found.own[k] - outputs[row])[None])[0]
        if system.intercept:
            middle = lighter.median()
            lighter, here = lighter - middle, outputs + middle
        else:
            here = outputs
        again, _ = _errors(system, system.again(solved, lighter), lighter, here, row)
        for every, one in zip(found[1:], again[1:], strict=True):
            every[..., k] = one[..., 0]
    return found


def _errors(
    system: System, solved: Ridge, targets: Tensor, outputs: Tensor, members: Tensor
) -> tuple[Errors, Tensor]:
    """Errors of the models, and |e_j|/σ_j at the rows that they leave out, shape (k,)."""
    n = len(outputs)
    sizes, predicted = targets.new_empty(n, len(members)), targets.new_empty(n, len(members))
    spans = torch.empty_like(targets)
    for rows in strips(n, system.machine):
        strip = solved.inverse_rows(rows)
        spans[rows] = solved.spans(rows, strip)
        # σ²_{i,−ij} = 1/(d_i − A_ij²/d_j)
        open_part = two_left_out_diagonal(strip.clone(), rows, solved.diagonal)[:, members]
        errors = two_left_out(strip, rows, solved)[:, members]
        predicted[rows] = (outputs + targets)[rows, None] - errors
        sizes[rows] = errors.abs() * open_part.sqrt()
    sizes[members, torch.arange(len(members), device=sizes.device)] = 0.0
    residuals, widths = left_out(solved), solved.diagonal.abs().sqrt()
    own = solved.sensitivity(spans).own * widths
    share = torch.where(own.max() > 0, own.max() / _mean(sizes), 0.0)
    noise = 2 * GAMMA * (share + solved.strain)
    here = (outputs + (targets - residuals))[members]
    return Errors(members, sizes, predicted, here, noise), (residuals.abs() * widths)[members]


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
        return _level(each[:, self.members], self.middle, self.unit, self.slopes)


@dataclass(frozen=True)
class Factors:
    """Factors of all n models: averages and levels that some chose; that of all others is 1."""

    averages: tuple[Averages, ...]
    levels: tuple[Levels, ...]
    own: Tensor  # at each model's left-out row, shape (n,)
    error: float  # bound on the relative error of factors by rounding
    doubtful: Tensor  # whether rounding may have decided what a model chose, shape (n,)
    names: tuple[str, ...]  # what each model chose

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


def choose_factors(
    X: Tensor, y: Tensor, groups: Sequence[Errors], frames: Sequence[Callable[[wide], WideTangent]]
) -> Factors:
    """Let every model choose its factor.

    All n rows are given, the errors of the models in groups that share a frame, and the frame of
    each group: from an infinitely wide network to its tangent.
    """
    own, names = torch.ones_like(y), [NAMES[0]] * len(y)
    doubtful = torch.zeros_like(y, dtype=torch.bool)
    averages, levels, error = list[Averages](), list[Levels](), 0.0
    for errors, frame in zip(groups, frames, strict=True):
        members, kept, sizes = errors.members, errors.kept, errors.sizes
        tangents, (middle, unit) = [frame(network) for network in AVERAGES], _levels(errors, y)
        # At the rows, (n, k), and at the rows left out, (k,), in the order of NAMES.
        offers = [(torch.ones_like(sizes), torch.ones_like(errors.own))]
        offers += [_average(errors, tangent, X) for tangent in tangents]
        both = (errors.predicted, errors.own)
        for slope in SLOPES:
            rows, left = (_level(values, middle, unit, slope) for values in both)
            offers.append((rows, left))
        chosen, unsure = _most_likely(errors, [rows for rows, _ in offers])
        unknown = ~(errors.noise < FIRST_ORDER)
        doubtful[members] |= unsure | unknown
        error = max(error, float(torch.where(unknown, 0.0, errors.noise).max()))
        own[members] = torch.stack([left for _, left in offers]).gather(0, chosen[None])[0]
        for member, k in zip(members.tolist(), chosen.tolist(), strict=True):
            names[member] = NAMES[k]
        for k, tangent in enumerate(tangents, start=1):
            if bool((took := chosen == k).any()):
                of = (tangent, X, sizes[:, took], kept[:, took])
                averages.append(Averages(members[took], *of))
        steep = chosen - 1 - len(tangents)
        if bool((took := steep >= 0).any()):
            slopes = middle.new_tensor(SLOPES)[steep[took]]
            levels.append(Levels(members[took], slopes, middle[took], unit[took]))
    return Factors(tuple(averages), tuple(levels), own, error, doubtful, tuple(names))


def _most_likely(errors: Errors, offers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Which factor each model takes, shape (k,), and where rounding may have decided."""
    kept, count = errors.kept, len(errors.sizes) - 1
    best = torch.full_like(errors.own, torch.inf)
    chosen, unsure = torch.zeros_like(errors.members), torch.zeros_like(best, dtype=torch.bool)
    for k, rows in enumerate(offers):
        value = (rows.log() * kept).sum(dim=0) / count + _mean(errors.sizes / rows).log()
        value = value + (MINIMUM_GAIN / count if k else 0.0)
        margin = value - (best - TIE)
        unsure = unsure | (margin.abs() <= 4 * errors.noise)
        chosen = torch.where(margin < 0, k, chosen)
        best = torch.where(margin < 0, value, best)
    return chosen, unsure


def _average(errors: Errors, tangent: WideTangent, X: Tensor) -> tuple[Tensor, Tensor]:
    weights, kept = tangent.gram(tangent.features(X)), errors.kept
    mean, mine = _mean(errors.sizes), weights[errors.members].T
    own = _averaged((mine * errors.sizes).sum(dim=0), (mine * kept).sum(dim=0), mean)
    beside = weights.fill_diagonal_(0.0)
    return _averaged(beside @ errors.sizes, beside @ kept, mean), own


def _averaged(sums: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    """The local average over the mean; 1 where all errors are 0."""
    ratio = (PRIOR + sums / mean.clamp(min=torch.finfo(mean.dtype).tiny)) / (PRIOR + weights)
    return torch.where(mean > 0, ratio, 1.0)


def _mean(sizes: Tensor) -> Tensor:
    """Of each model's own rows, where the one that it leaves out has 0."""
    return sizes.sum(dim=0) / (len(sizes) - 1)


def _levels(errors: Errors, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean prediction, and standard deviation of y, of each model's own rows, each (k,)."""
    kept = errors.kept
    means = _mean(y[:, None] * kept)
    spread = _mean(((y[:, None] - means) * kept).square()).sqrt()
    return _mean(errors.predicted * kept), spread.clamp(min=torch.finfo(spread.dtype).tiny)


def _level(values: Tensor, middle: Tensor, unit: Tensor, slopes: Tensor | float) -> Tensor:
    """exp(b·level), shape of ``values``."""
    return torch.exp(slopes * ((values - middle) / unit).clamp(-FARTHEST, FARTHEST))
