"""Infinitely wide networks: random starts of unlimited width, of which only a kernel remains.

As the hidden layers of a network with random weights grow, its output becomes a Gaussian process
and its ridge regression depends on one closed-form kernel k(x, x'). All kernels here are functions
of sums over the features, Σ_f term(w_f, x_f, x'_f), so the weight w_f of one feature can be changed
in one pass over the sum, and the kernel differentiated by it. Inputs of size one and
w_f = scale/√p, for p features, are typical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.checks import check_choice, check_flag, check_reasonable

SQUASH = 2.0  # x ↦ sign(x)·log(1 + 2|x|)

Kernel = Callable[[Any, Any], Any]
Nominal = Sequence[bool]  # for each feature whether its values are codes of categories
Kept = dict[int, Tensor] | None  # by feature


class Kind:
    """A family of kernels k(x, x') = link(Σ_f term(w_f, x_f, x'_f)).

    A term is factor·w^power·|x_f − x'_f|^power. A missing value, NaN, is at the centre, 0, and away
    from all present ones by 1 in a direction of its own; two values of a nominal feature have the
    distance 1. Rows may thus be numbers, categories and gaps, as they are.
    """

    factor: float = 1.0
    power: int = 2
    is_power: bool = True  # terms are of this form
    # The kernel depends on the weights through the sum alone, and k(x, x) = 1.
    has_slopes: bool = True
    saturated: float = math.inf  # a weight beyond which the kernel hardly changes

    def term(
        self, weight: float | Tensor, left: Tensor, right: Tensor, nominal: bool = False
    ) -> Tensor:
        """Return what one feature, (m, 1) and (1, n), contributes to the sum, shape (m, n)."""
        if nominal:
            return self._sized(weight * (left != right).to(left))
        total = self._sized((left.nan_to_num() - right.nan_to_num()).mul_(weight))
        if _incomplete(left, right):
            total += self._sized(weight * (left.isnan() != right.isnan()).to(left))
        return total

    def kernel(
        self, weights: Tensor, left: Tensor, right: Tensor, nominal: Nominal, kept: Kept = None
    ) -> Tensor:
        """Return k(x, x') of rows (m, features) and (n, features), shape (m, n)."""
        own, other = (self.own(weights, side, nominal) for side in (left, right))
        total = self.whole(weights, left, right, nominal, kept)
        return self.link(total, own[:, None], other[None])

    def whole(
        self, weights: Tensor, left: Tensor, right: Tensor, nominal: Nominal, kept: Kept = None
    ) -> Tensor:
        """Σ_f term(w_f, x_f, x'_f), shape (m, n); features of weight 0 are left out.

        What does not depend on the weights is looked up in ``kept``, and stored there.
        """
        used = [f for f, weight in enumerate(weights.tolist()) if weight]
        numbers = [f for f in used if not nominal[f]]
        own, sides = weights[numbers], [left[:, numbers], right[:, numbers]]
        total = self._distances(*(own * side.nan_to_num() for side in sides))
        if _incomplete(*sides):
            total = total + self._distances(*(own * side.isnan() for side in sides))
        for f in (f for f in used if nominal[f]):
            total = total + self.term(weights[f], left[:, f, None], right[None, :, f], True)
        return total

    def _distances(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum for weighted numbers, from differences: products would lose digits."""
        if self.power == 1:  # and the factor is 1
            return torch.cdist(left, right, p=1.0)
        squares: Tensor = _SquaredDistances.apply(left, right, self.factor)  # type: ignore[no-untyped-call]
        return squares

    def _sized(self, gaps: Tensor) -> Tensor:
        """factor·|gap|^power, in place."""
        sizes = gaps.square_() if self.power == 2 else gaps.abs_()
        return sizes if self.factor == 1 else sizes.mul_(self.factor)

    def link(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Return the kernel of a sum, (m, n), given own(x), (m, 1), and own(x'), (1, n)."""
        return torch.exp(-total)

    def own(self, weights: Tensor, X: Tensor, nominal: Nominal) -> Tensor:
        """Σ_f w_f²x_f² of each row where the link needs it, shape (m,)."""
        return X.new_zeros(len(X))

    def norms(self, weights: Tensor, X: Tensor, nominal: Nominal) -> Tensor:
        """k(x, x), shape (m,)."""
        return X.new_ones(len(X))


class _SquaredDistances(torch.autograd.Function):
    """factor·‖a_i − b_j‖² of rows (m, features) and (n, features), with derivatives by products."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.factor = factor
        exact = "donot_use_mm_for_euclid_dist"
        return torch.cdist(left, right, compute_mode=exact).square_().mul_(factor)

    @staticmethod
    def backward(ctx: Any, pulls: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = ctx.saved_tensors
        by_left = pulls.sum(dim=1, keepdim=True) * left - pulls @ right
        by_right = pulls.sum(dim=0)[:, None] * right - pulls.T @ left
        return 2 * ctx.factor * by_left, 2 * ctx.factor * by_right, None


def _incomplete(left: Tensor, right: Tensor) -> bool:
    return bool(left.isnan().any()) or bool(right.isnan().any())


class Gaussian(Kind):
    """One layer of cosines with Gaussian weights: exp(−Σ w²(x − x')²/2). Very smooth."""

    factor = 0.5


class Laplace(Kind):
    """One layer of cosines with Cauchy weights: exp(−Σ w|x − x'|). Rough, good at steps."""

    power = 1


class Matern(Kind):
    """One layer of cosines with Student-t weights (3 or 5 degrees of freedom): between the two."""

    def __init__(self, degrees: int) -> None:
        self.degrees, self.factor = degrees, float(degrees)

    def link(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        distance = total.clamp(min=torch.finfo(total.dtype).tiny).sqrt()  # 0 has no derivative
        smooth = 1 + distance + (total / 3 if self.degrees == 5 else 0.0)
        return smooth * torch.exp(-distance)


class Anova(Kind):
    """One layer for every set of features: Π (1 + w·k(x, x'))/(1 + w), k of one feature alone.

    With small weights it is nearly additive in the features; w is how much a feature matters.
    """

    power, is_power = 1, False  # linear in small weights
    saturated = 20.0

    def __init__(self, single: Kind) -> None:
        self.single = single

    def term(
        self, weight: float | Tensor, left: Tensor, right: Tensor, nominal: bool = False
    ) -> Tensor:
        one = self._single_kernel(left, right, nominal)
        weight = torch.as_tensor(weight, dtype=one.dtype, device=one.device)
        return torch.log1p(one.mul_(weight)).sub_(torch.log1p(weight))

    def whole(
        self, weights: Tensor, left: Tensor, right: Tensor, nominal: Nominal, kept: Kept = None
    ) -> Tensor:
        used = [f for f, weight in enumerate(weights.tolist()) if weight]

        def single(k: int) -> Tensor:
            f, known = used[k], {} if kept is None else kept
            if f not in known:
                known[f] = self._single_kernel(left[:, f, None], right[None, :, f], nominal[f])
            return known[f]

        product = left.new_ones(len(left), len(right))
        total: Tensor = _LogProduct.apply(weights[used], single, product)  # type: ignore[no-untyped-call]
        return total

    def _single_kernel(self, left: Tensor, right: Tensor, nominal: bool) -> Tensor:
        return self.single.term(1.0, left, right, nominal).neg_().exp_()

    def link(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return torch.exp(total)


class _LogProduct(torch.autograd.Function):
    """Σ_f log((1 + w_f·k_f)/(1 + w_f)) by one logarithm; terms would take one for each feature.

    Kernels of single features are asked for again for the derivative: nothing is stored.
    """

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, single: Callable[[int], Tensor], product: Tensor
    ) -> Tensor:
        ctx.weights, ctx.single = weights, single
        for f, weight in enumerate(weights.tolist()):
            product *= (single(f) * (weight / (1 + weight))).add_(1 / (1 + weight))
        return product.log_()

    @staticmethod
    def backward(ctx: Any, pulls: Tensor) -> tuple[Tensor, None, None]:
        """∂/∂w_f = k/(1 + w·k) − 1/(1 + w) = (1/(1 + w) − 1/(1 + w·k))/w."""
        found, flat = torch.zeros_like(ctx.weights), pulls.flatten()
        for f, weight in enumerate(ctx.weights.tolist()):
            change = (ctx.single(f) * weight).add_(1.0).reciprocal_().neg_().add_(1 / (1 + weight))
            found[f] = torch.dot(change.view(-1), flat) / weight
        return found, None, None


class ReLU(Kind):
    """The tangent kernel of a ReLU network with infinitely wide layers, bias included.

    k(x, x) = (1 + Σ w²x²) for two hidden layers, divided by their number plus one.
    """

    layers = 2
    has_slopes = False

    def own(self, weights: Tensor, X: Tensor, nominal: Nominal) -> Tensor:
        """A category has length 1/√2 in a direction of its own: two are 1 apart."""
        values = X.nan_to_num(1.0).square()
        values[:, torch.tensor(nominal, device=X.device)] = 0.5
        return (values * weights.square()).sum(dim=1)

    def norms(self, weights: Tensor, X: Tensor, nominal: Nominal) -> Tensor:
        return 1 + self.own(weights, X, nominal)

    def link(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """From squared distances d²: with lengths a and b, 1 − cos = (d² − (a − b)²)/(2ab).

        Layers pass on 1 − cos, which is accurate where rows are nearly equal, and cos is not.
        """
        lengths, others = (1 + left).sqrt(), (1 + right).sqrt()
        sizes = lengths * others
        gap = ((total - (lengths - others).square()) / (2 * sizes)).clamp(0.0, 2.0)
        tangents = 1 - gap
        for _ in range(self.layers):
            angle = 2 * torch.asin((gap / 2).sqrt())
            passed = 1 - angle / math.pi  # share of units that are active at both
            sine = (gap * (2 - gap)).sqrt()
            gap = gap - (sine - angle * (1 - gap)) / math.pi
            tangents = 1 - gap + tangents * passed
        return sizes * tangents / (self.layers + 1)


KINDS: dict[str, Kind] = {
    "gaussian": Gaussian(),
    "laplace": Laplace(),
    "matern32": Matern(3),
    "matern52": Matern(5),
    "anova_gaussian": Anova(Gaussian()),
    "anova_laplace": Anova(Laplace()),
    "relu": ReLU(),
}


@dataclass(frozen=True)
class wide:
    """An infinitely wide network, as a candidate for ``network``.

    Parameters
    ----------
    kind
        A key of ``lazyknife.networks.KINDS``: ``"gaussian"``, ``"laplace"``, ``"matern32"``,
        ``"matern52"``, ``"anova_gaussian"``, ``"anova_laplace"`` or ``"relu"``. Or a positive
        definite kernel: a function of two tensors (m, features) and (n, features) that returns
        their kernel (m, n), or a kernel of ``sklearn.gaussian_process.kernels``.
    scale
        Inputs are multiplied by scale/√features. None lets every model choose among powers of 2;
        a kernel function has its own scale and takes no other.
    squash
        Whether inputs are first compressed, x ↦ sign(x)·log(1 + 2|x|): for heavy tails.

    """

    kind: str | Kernel = "laplace"
    scale: float | None = None
    squash: bool = False

    def __post_init__(self) -> None:
        if not callable(self.kind):
            check_choice("kind", self.kind, KINDS)
        elif self.scale is not None:
            raise ValueError(f"scale={self.scale!r}: a kernel function has its own scale")
        if self.scale is not None:
            check_reasonable("scale", self.scale)
        check_flag("squash", self.squash)

    def __str__(self) -> str:
        """Return a short name, for tables."""
        kind = self.kind
        if not isinstance(kind, str):
            kind = str(getattr(kind, "__name__", type(kind).__name__))
        return kind + (" squashed" if self.squash else "")

    def prepared(self, X: Tensor) -> Tensor:
        """Inputs as the kernel takes them; different codes of a category stay different."""
        return X.sign() * torch.log1p(SQUASH * X.abs()) if self.squash else X


def is_known(network: Any) -> bool:
    """Whether a network is infinitely wide and of a known kind: it takes categories and gaps."""
    return isinstance(network, wide) and isinstance(network.kind, str)


def listed_networks(network: Any) -> tuple[Any, ...] | None:
    """The candidates that were given; None for a single finite network or none at all."""
    if isinstance(network, wide):
        return (network,)
    if isinstance(network, list | tuple):
        if not network:
            raise ValueError("network=[]: give at least one candidate")
        return tuple(network)
    return None


# The meaning of ``network=None``, where nothing else needs a finite network.
CANDIDATES = tuple(
    wide(kind, squash=squash)
    for squash in (False, True)
    for kind in ("gaussian", "laplace", "anova_laplace", "anova_gaussian")
)
