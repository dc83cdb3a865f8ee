"""How well a kernel explains rows: its restricted likelihood, in closed form.

With G = K + λI, A the inverse of the bordered system where there is an intercept, c = A r and ν
degrees of freedom, n or n − 1 with an intercept, it is over all constant multiples of the kernel

    value = −2 log likelihood/ν = log(rᵀc/ν) + (log det)/ν

up to a constant. ``det`` is det G, or det G·1ᵀG⁻¹1 with an intercept. Lower is more likely.

**All leave-one-out models from one factorisation.** With d = diag A the rows without j have
rᵀc − c_j²/d_j for rᵀc, log det + log d_j for log det, and ν − 1 for ν: a function of the rows
without j alone. Without a set S of rows it is c_Sᵀ(A_SS)⁻¹c_S and log det A_SS instead. Since
nothing depends on r_S, it may be any number. Where r_S makes up nearly all of rᵀc, the difference
would lose its digits: then the prediction by the other rows takes its place. d_j takes one column
of L⁻¹, G = LLᵀ: a few models cost little more than L.

**Several outputs** of the same rows share the factorisation. With a scale of their own each, their
log-likelihoods add up; with one scale, as classes have it, their rᵀc do: log Σ exp(value). Outputs
that are 0 then count for nothing, such as a class that a model has no rows of.

**Gradients.** ∂value/∂K = A/ν − c cᵀ/(rᵀc), since dA = −A dK A and d log det = tr(A dK); from K to
the weights of the features torch differentiates.

**All λ of one kernel.** With K = U diag(l) Uᵀ, a = Uᵀ1 and b = Uᵀr all parts are sums over the
eigenvalues: rᵀG⁻¹r = Σ b²/(l + λ), and likewise rᵀG⁻¹1 and 1ᵀG⁻¹1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import steps
from ..networks import Kind
from ..ridge.rounding import GAMMA

# Share of rᵀc that the rows of a set explain by themselves, above which r_S is replaced.
HEAVY = 0.99
COLUMNS = 64  # of L⁻¹, solved for at a time: they need only the rows of L from the first of them on
ENTRIES, GPU_ENTRIES = 2**18, 2**24  # of a tile of a kernel
KEPT_BYTES = 2**28  # of kernels of single features, which do not depend on weights


class Values(NamedTuple):
    """−2 log likelihood over its degrees of freedom, and a bound on its error by rounding.

    Both have shape (kernels, models); the last model has all rows. For a kernel that is not
    positive definite to rounding both are infinite: any row may have caused it.
    """

    values: Tensor
    noise: Tensor


Together = Callable[[Values], Values]  # from (kernels, outputs, models) to (kernels, 1, models)


def of_own_scales(found: Values) -> Values:
    """The criterion of several outputs, each with its own scale, over their number."""
    return Values(*(part.mean(dim=1, keepdim=True) for part in found))


def of_one_scale(found: Values) -> Values:
    """The criterion of several outputs that have one scale."""
    value = found.values.logsumexp(dim=1, keepdim=True)
    share = (found.values - value).exp()
    noise = torch.where(share > 0, share * found.noise, 0.0).sum(dim=1, keepdim=True)
    return Values(value, torch.where(value.isfinite(), noise + GAMMA, torch.inf))


def leave_one_out_values(
    kernels: Tensor,
    ridges: Tensor,
    targets: Tensor,
    intercept: bool,
    folds: Sequence[Tensor] | Tensor | None = None,
) -> Values:
    """Return the criterion of each kernel for each model.

    Where only some rows are left out, kernels must be positive semidefinite.

    Parameters
    ----------
    kernels
        K for several candidates, shape (kernels, n, n); they are overwritten.
    ridges
        λ of each, shape (kernels,).
    targets
        r for each kernel, shape (kernels, n); or several, (kernels, scales, n), whose values then
        have shape (kernels, scales, models).
    intercept
        Whether there is an unpenalised intercept.
    folds
        Rows that each model leaves out; a tensor: some rows, ascending, one for each model; None:
        each row in turn.

    """
    rows = folds if isinstance(folds, Tensor) else torch.arange(targets.shape[-1])
    factor = Factor.of(kernels, ridges, intercept, rows.to(targets.device))
    sets = None
    if not (folds is None or isinstance(folds, Tensor)):
        sets = [rows.to(targets.device) for rows in folds]
    if targets.dim() == 2:
        return factor.values(targets, sets)
    found = [factor.values(each, sets) for each in targets.unbind(1)]
    return Values(*(torch.stack(part, dim=1) for part in zip(*found, strict=True)))


def _criterion(quadratic: Tensor, logs: Tensor, freedom: Tensor | int) -> Tensor:
    """log(rᵀc/ν) + (log det)/ν."""
    tiny = torch.finfo(quadratic.dtype).tiny
    return (quadratic.clamp(min=tiny) / freedom).log() + logs / freedom


def replaced(targets: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """Targets with other numbers in some rows, but within the range of those of the others."""
    others = torch.ones_like(targets[0], dtype=torch.bool)
    others[rows] = False
    least, most = (
        ends(targets[:, others], dim=1, keepdim=True) for ends in (torch.amin, torch.amax)
    )
    return targets.index_copy(1, rows, wanted.clamp(least, most))


class _Side(NamedTuple):
    """What is needed of a solution for targets times 2^−exponent, so that no square overflows.

    ``quadratic`` is rᵀc, ``whole`` the same before the intercept was eliminated, and ``load`` is
    |c|ᵀ√diag G; each has shape (kernels,), or (kernels, models).
    """

    quadratic: Tensor
    whole: Tensor
    load: Tensor
    exponent: Tensor


class Factor(NamedTuple):
    """Several kernels, factored, the intercept eliminated.

    ``lower`` is L, (kernels, n, n); ``half`` has the columns of L⁻¹ for some ``rows``, ascending,
    and ``diagonal`` their d. ``ones`` (L⁻¹1, or 0 without an intercept), ``sums`` (G⁻¹1), ``share``
    (over its total) and ``roots`` (√diag G) have shape (kernels, n); ``logs`` is log det.
    """

    lower: Tensor
    ridges: Tensor
    rows: Tensor
    half: Tensor
    diagonal: Tensor
    ones: Tensor
    sums: Tensor
    share: Tensor
    roots: Tensor
    logs: Tensor
    failed: Tensor
    intercept: bool

    @classmethod
    def of(cls, kernels: Tensor, ridges: Tensor, intercept: bool, rows: Tensor) -> Factor:
        diagonal = kernels.diagonal(dim1=1, dim2=2)
        diagonal.add_(ridges[:, None])
        roots = diagonal.sqrt()
        lower, failed = torch.linalg.cholesky_ex(kernels)
        n = lower.shape[1]
        half = lower.new_zeros(len(lower), len(rows), n).mT
        for some in steps(len(rows), COLUMNS):
            first = int(rows[some.start])  # above it columns are 0
            unit = torch.arange(first, n, device=rows.device)[:, None] == rows[some]
            half[:, first:, some] = torch.linalg.solve_triangular(
                lower[:, first:, first:], unit.to(lower).expand(len(lower), -1, -1), upper=False
            )
        ones, sums = _solved(lower, torch.full_like(roots, float(intercept)))
        total = ones.square().sum(dim=1) if intercept else torch.ones_like(ridges)
        share = sums / total[:, None]
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1) + total.log()
        inverse = torch.linalg.vector_norm(half, dim=1).square() - (sums * share)[:, rows]
        terms = (half, inverse, ones, sums, share, roots, logs, failed != 0, intercept)
        return cls(lower, ridges, rows, *terms)

    def solve(self, targets: Tensor) -> tuple[Tensor, _Side]:
        """Return c times 2^−exponent, shape (kernels, n), for targets (kernels, n)."""
        if self.intercept:  # absorbs any constant: one of the targets, which saves digits
            targets = targets - targets.median(dim=1, keepdim=True).values
        exponent = torch.frexp(targets.abs().amax(dim=1)).exponent
        half, dual = _solved(self.lower, torch.ldexp(targets, -exponent[:, None]))
        whole = half.square().sum(dim=1)
        quadratic = whole
        if self.intercept:
            total = self.ones.square().sum(dim=1)
            slope = (half * self.ones).sum(dim=1) / total
            dual, quadratic = dual - slope[:, None] * self.sums, whole - slope.square() * total
        load = (dual.abs() * self.roots).sum(dim=1)
        return dual, _Side(quadratic, whole, load, exponent)

    def values(self, targets: Tensor, folds: Sequence[Tensor] | None) -> Values:
        """The criterion for some targets, (kernels, n), without each of ``rows``, or each fold."""
        dual, whole = self.solve(targets)
        if folds is None:
            lost, logs = dual[:, self.rows].square() / self.diagonal, self.diagonal.log()
            counts = torch.ones_like(lost[0])
        else:
            found = [self.without(dual, rows) for rows in folds]
            lost, logs = (torch.stack(part, dim=1) for part in list(zip(*found, strict=True))[:2])
            counts = targets.new_tensor([len(rows) for rows in folds])
        freedom = targets.shape[1] - int(self.intercept) - torch.cat([counts, counts.new_zeros(1)])
        lost, logs = (torch.nn.functional.pad(part, (0, 1)) for part in (lost, logs))  # full model
        sides = _Side(*(part[:, None].repeat(1, lost.shape[1]) for part in whole))
        heavy = (lost > HEAVY * sides.quadratic)[:, :-1].any(dim=0)  # the full model loses nothing
        for k in torch.nonzero(heavy)[:, 0].tolist():
            places = torch.tensor([k], device=dual.device) if folds is None else folds[k]
            rows = self.rows[places]
            residuals = torch.ldexp(self.without(dual, places)[2], whole.exponent[:, None])
            own, side = self.solve(replaced(targets, rows, targets[:, rows] - residuals))
            lost[:, k] = self.without(own, places)[0]
            for every, one in zip(sides, side, strict=True):
                every[:, k] = one
        left = sides.quadratic - lost
        shift = 2 * math.log(2) * sides.exponent.to(left.dtype)
        values = _criterion(left, self.logs[:, None] + logs, freedom) + shift
        noise = self.noise(sides, lost, left, freedom) + GAMMA * shift.abs()
        bad = self.failed[:, None] | ~torch.isfinite(values)
        return Values(*(torch.where(bad, torch.inf, part) for part in (values, noise)))

    def without(self, dual: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """c_Sᵀ(A_SS)⁻¹c_S, log det A_SS, each (kernels,), and (A_SS)⁻¹c_S, (kernels, rows).

        S are those of ``rows`` at some places.
        """
        columns, rows = self.half[:, :, places], self.rows[places]
        inverse = columns.mT @ columns - self.sums[:, rows, None] * self.share[:, None, rows]
        lower, _ = torch.linalg.cholesky_ex(inverse)
        own = torch.linalg.solve_triangular(lower, dual[:, rows, None], upper=False)
        residuals = torch.linalg.solve_triangular(lower.mT, own, upper=True)[:, :, 0]
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        return own.square().sum(dim=(1, 2)), logs, residuals

    def noise(self, sides: _Side, lost: Tensor, left: Tensor, freedom: Tensor) -> Tensor:
        """Bound the errors by rounding, as in rounding.py, with |A_ij| ≤ √(d_i d_j).

        |c_{−j}| is then at most |c| plus √d times √(c_j²/d_j). Where not all d are known, d ≤ 1/λ.
        """
        known = self.diagonal.clamp(min=0.0)
        inverse = known if len(self.rows) == self.roots.shape[1] else 1 / self.ridges[:, None]
        spread = (inverse.sqrt() * self.roots).sum(dim=1, keepdim=True)
        load = sides.load + spread * lost.clamp(min=0.0).sqrt()
        sizes = (load.square() + 2 * sides.whole) / left.clamp(min=0.0)
        sizes = torch.where(load > 0, sizes, 0.0)  # targets that are all equal
        return GAMMA * (sizes + spread.square() / freedom + 4)


def _solved(lower: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
    """L⁻¹ and G⁻¹ times a vector for each kernel, (kernels, n)."""
    half = torch.linalg.solve_triangular(lower, sides[:, :, None], upper=False)
    return half[:, :, 0], torch.linalg.solve_triangular(lower.mT, half, upper=True)[:, :, 0]


def value_and_derivative(
    kernel: Tensor, ridge: float, y: Tensor, intercept: bool
) -> tuple[float, Tensor]:
    """Return the criterion of a kernel (m, m) for all its rows, and its derivative by K, (m, m).

    It is infinite if the kernel is not positive definite.
    """
    system = kernel.clone()
    system.diagonal().add_(ridge)
    lower, failed = torch.linalg.cholesky_ex(system)
    if int(failed) or not bool(lower.diagonal().isfinite().all()):
        return math.inf, torch.zeros_like(kernel)
    freedom, logs = len(y) - int(intercept), 2 * lower.diagonal().log().sum()
    inverse = torch.cholesky_inverse(lower)
    if intercept:
        sums = inverse.sum(dim=1)
        total = sums.sum()
        inverse.addr_(sums, sums / total, alpha=-1)
        logs, y = logs + total.log(), y - y.mean()
    dual = inverse @ y
    quadratic = (y @ dual).clamp(min=torch.finfo(y.dtype).tiny)
    value = float(_criterion(quadratic, logs, freedom))
    derivative = inverse.div_(freedom).addr_(dual, dual / quadratic, alpha=-1)
    return value if math.isfinite(value) else math.inf, derivative


@dataclass(frozen=True)
class PairKernel:
    """The kernel of all pairs of some rows, k(x, x) = 1, as a function of the weights."""

    kind: Kind  # of kernels with slopes
    X: Tensor  # rows as the kernel takes them, shape (m, features)
    nominal: Sequence[bool]  # which features are nominal
    entries: int | None = None  # numbers in a tile; None: by the device
    # What kernels of all weights share, by first row of a tile.
    kept: dict[int, dict[int, Tensor]] = field(default_factory=dict)

    def tiles(self, weights: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Rows of each tile, and the kernel with all rows up to the last of them.

        Tiles on and below the diagonal, which stay in a processor's caches.
        """
        X, nominal = self.X, self.nominal
        entries = self.entries or (ENTRIES if X.device.type == "cpu" else GPU_ENTRIES)
        fits = X.shape[1] * len(X) ** 2 * X.element_size() // 2 <= KEPT_BYTES
        for rows in steps(len(X), max(1, entries // max(len(X), 1))):
            kept = self.kept.setdefault(rows.start, {}) if fits else None
            yield rows, self.kind.kernel(weights, X[rows], X[: rows.stop], nominal, kept)


def value_and_gradient(
    pairs: PairKernel,
    weights: Tensor,
    ridge: float,
    y: Tensor,
    intercept: bool,
    used: Sequence[int],
) -> tuple[float, Tensor, float]:
    """Return the criterion, and its derivatives by log w, shape (features,), and by log λ.

    Features that are not ``used`` are left out; derivatives by their weights are 0.
    """
    own = torch.zeros_like(weights)
    own[used] = weights[used]
    with torch.enable_grad():
        tiles = list(pairs.tiles(own.requires_grad_()))
    kernel = pairs.X.new_zeros(len(y), len(y))
    for rows, tile in tiles:
        kernel[rows, : rows.stop] = tile.detach()
    kernel.tril_(-1)
    kernel = (kernel + kernel.T).fill_diagonal_(1.0)
    value, derivative = value_and_derivative(kernel, ridge, y, intercept)
    # Both triangles are alike, and nothing changes the diagonal.
    pulls = [2 * derivative[rows, : rows.stop].tril(rows.start - 1) for rows, _ in tiles]
    (slopes,) = torch.autograd.grad([tile for _, tile in tiles], own, pulls)
    return value, own.detach() * slopes, ridge * float(derivative.trace())


def values_of_ridges(kernel: Tensor, ridges: Tensor, y: Tensor, intercept: bool) -> Tensor:
    """Return the criterion of a kernel (m, m) for each λ, infinite where it is not defined."""
    if not bool(kernel.isfinite().all()):
        return torch.full_like(ridges, torch.inf)
    values, vectors = torch.linalg.eigh(kernel)
    shifted = values + ridges[:, None]
    own, ones = torch.stack([y - y.mean() if intercept else y, torch.ones_like(y)]) @ vectors
    quadratic, logs = (own.square() / shifted).sum(dim=1), shifted.log().sum(dim=1)
    if intercept:
        total = (ones.square() / shifted).sum(dim=1)
        quadratic = quadratic - (own * ones / shifted).sum(dim=1).square() / total
        logs = logs + total.log()
    found = _criterion(quadratic, logs, len(y) - int(intercept))
    return torch.where((shifted > 0).all(dim=1) & found.isfinite(), found, torch.inf)
