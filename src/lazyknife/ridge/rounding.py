"""Bounds on what rounding may have changed, so that a guarantee holds in floating point.

A kernel k(x, x') is known only up to γ√(k(x, x) k(x', x')): its evaluation, Cholesky's elimination
and the products of predictions all have errors of this form. Let G = K + λI, A its inverse (of the
bordered system where there is an intercept), c = A r, d = diag A, e = c/d, and with √g = √diag G

    u = |A|√g,   v = |c|ᵀ√g.

A change δG of that form moves d_j by at most γu_j², e_j by at most γ(u_j/d_j)(v + u_j|e_j|), and
the prediction of model j at a new row by at most γ(|b(x)|ᵀ√g + √k(x, x))(v + u_j|e_j|), where
b(x) = A k(x) are the weights of the training rows. For row j, left out, the first of these factors
is u_j/d_j, so reach_j = u_j/(d_j √g_j) measures it for rows like the training rows, and four times
the largest is used for a new row. All of this takes one pass over A.

With an intercept A is a difference, A' = A − (A1)(A1)ᵀ/t: where it cancels, sums of sizes take its
place in the term u_j|e_j| and beside u_j² (``with_differences``). c is refined after that.

In the primal form G⁻¹ = (ΦᵀΦ + λI)⁻¹ and √diag G take the places of A and √g, and reach_j is
|φ_j|ᵀ|G⁻¹|√diag G over (1 − h_j)√(‖φ_j‖² + λ), see primal.py.

γ is four units of rounding, or the error that measured.py finds if that is larger: errors of sums
are far smaller than their worst case.
``tests/ridge/test_rounding.py`` compares the bounds with refits in 60 digits.

Those of models of many rows are derived in streamed.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

# γ where no larger error was measured.
GAMMA = 4 * torch.finfo(torch.float64).eps
# Factor for measured errors of equations.
MEASURED = 2.0
# Factor for new rows, which may reach farther than the training rows.
BEYOND = 4.0
# Relative errors up to which first-order bounds are trusted.
FIRST_ORDER = 0.05
# A relative error that is small enough to need no sharper bound.
SMALL_ERROR = 1e-6


@dataclass(frozen=True)
class Sensitivity:
    """Factors of γ in the bounds, for each of the n rows left out; each field has shape (n,).

    Attributes
    ----------
    reach
        u_j/(d_j √g_j).
    roots
        √g_j.
    load
        v + u_j|e_j|, of the model without row j.
    own
        (u_j/d_j)·load_j: γ times it bounds the error of e_j.
    strain
        u_j²/d_j: γ times it bounds the relative error of d_j.
    ridges
        λ of the model.
    doubtful
        1 where rounding may have decided which λ was chosen, else 0.

    """

    reach: Tensor
    roots: Tensor
    load: Tensor
    own: Tensor
    strain: Tensor
    ridges: Tensor
    doubtful: Tensor

    @classmethod
    def of(
        cls,
        spans: Tensor,
        total: Tensor,
        errors: Tensor,
        diagonal: Tensor,
        roots: Tensor,
        ridge: float,
    ) -> Self:
        """From u, v, e, d, √g and λ."""
        left_out = spans / diagonal
        load = total + spans * errors.abs()
        return cls(
            reach=left_out / roots,
            roots=roots,
            load=load,
            own=left_out * load,
            strain=spans * left_out,
            ridges=torch.full_like(spans, ridge),
            doubtful=torch.zeros_like(spans),
        )

    def with_differences(
        self, diagonal: Tensor, errors: Tensor, inverse: Tensor, spans: Tensor
    ) -> Self:
        """The same where an intercept was eliminated.

        Parameters
        ----------
        diagonal, errors
            d and e.
        inverse, spans
            Sums of sizes behind d and u, each (n,).

        """
        direct = inverse / diagonal
        load = self.load + spans * errors.abs()
        own = self.reach * self.roots * load + direct * errors.abs()
        return replace(self, load=load, own=own, strain=self.strain + direct)

    @classmethod
    def unknown(cls, n: int, like: Tensor) -> Self:
        """Return zeros, for models that are still to be chosen."""
        return cls(*(like.new_zeros(n) for _ in fields(cls)))

    @classmethod
    def joined(cls, parts: Sequence[Sensitivity]) -> Self:
        """Concatenate several sets of rows."""
        names = [field.name for field in fields(cls)]
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def take_(self, which: Tensor, other: Sensitivity) -> None:
        """Copy some rows from another record."""
        for field in fields(self):
            own: Tensor = getattr(self, field.name)
            own.copy_(torch.where(which, getattr(other, field.name), own))

    def put_(self, rows: Tensor, other: Sensitivity) -> None:
        """Store another record at these rows."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(other, field.name)

    def noise(self, gamma: float) -> float:
        """Norm of what rounding can change in the errors e."""
        return 2 * gamma * float(self.own.norm())

    def __getitem__(self, rows: Tensor) -> Sensitivity:
        return Sensitivity(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Rounding:
    """Bounds on the effect of rounding, by which intervals are widened.

    Attributes
    ----------
    slope, constant
        Predictions at x are off by at most slope·√k(x, x) + constant.
    own
        Bounds on the errors of left-out residuals, shape (n,); infinite where nothing is known.
    epsilon
        Relative rounding of sums of predictions and residuals.

    """

    slope: float
    constant: float
    own: Tensor
    epsilon: float

    def slack(self, norms: Tensor, point: Tensor) -> Tensor:
        """Bounds on the errors of predictions at rows with these k(x, x), shape (m,)."""
        return self.slope * norms.sqrt() + (self.constant + self.epsilon * point.abs())

    @property
    def conceded(self) -> Tensor:
        """Rows whose models are conceded: nothing is known of them, shape (n,)."""
        return torch.isinf(self.own)

    def times(self, factor: float) -> Rounding:
        """The same, multiplied by a factor."""
        slope, constant = factor * self.slope, factor * self.constant
        return replace(self, slope=slope, constant=constant, own=factor * self.own)


NOTHING = Rounding(0.0, 0.0, torch.zeros(()), 0.0)


def rounding_of(
    sensitivity: Sensitivity,
    gamma: float,
    size: float,
    off: float = 0.0,
    unsolved: float = 0.0,
    shaken: float = 0.0,
) -> Rounding:
    """Return bounds on the effect of rounding with this γ on the models.

    Parameters
    ----------
    sensitivity
        Of the models.
    gamma
        γ.
    size
        The largest number that predictions and residuals are sums of, besides k(x)ᵀC.
    off
        Remaining error of the models' equations, in units of √k(x, x); it adds to γ·load.
    unsolved
        Error of solutions by iteration, added to the slope.
    shaken
        Bound on the error of the network's own outputs.

    """
    known = (gamma * sensitivity.strain.abs() <= FIRST_ORDER) & (sensitivity.doubtful == 0)
    if not known.any():
        nothing = torch.full_like(sensitivity.load, torch.inf)
        return Rounding(torch.inf, torch.inf, nothing, gamma)
    some = sensitivity[known]
    each = BEYOND * some.reach.max() * (gamma * some.load + off)
    own = gamma * (sensitivity.own + size) + shaken
    own = own + (off * sensitivity.reach + unsolved) * sensitivity.roots
    return Rounding(
        slope=float(each.max()) + unsolved,
        constant=float((each * some.ridges.sqrt()).max()) + gamma * size + shaken,
        own=torch.where(known, own, torch.inf),
        epsilon=gamma,
    )


class Drift(NamedTuple):
    """What rounding may have changed.

    Attributes
    ----------
    slope, constant
        Predictions at x are off by at most slope·√h(x) + constant·√(1 + ‖φ(x)‖²), where h(x) ≤ 1.
    steep
        The slope where h(x) > 1.
    own
        Bounds on the errors of left-out residuals, shape (n,); infinite where nothing is known.

    """

    slope: float
    constant: float
    steep: float
    own: Tensor

    def slack(self, leverages: Tensor, norms: Tensor) -> Tensor:
        """Bounds on the errors of predictions, shape (m,)."""
        slopes = torch.where(leverages > 1, self.steep, self.slope)
        return slopes * leverages.sqrt() + self.constant * (1 + norms).sqrt()


class Extremes(NamedTuple):
    """What bounds on rounding need of all rows; those of several sets of rows can be joined.

    Attributes
    ----------
    load
        The largest load of rows without a large leverage.
    known
        That of rows of whose models something is known; −∞ if there are none.
    least
        The smallest 1 − h of these; ∞ if there are none.

    """

    load: float
    known: float
    least: float

    @classmethod
    def joined(cls, parts: Sequence[Extremes]) -> Extremes:
        """Those of all rows."""
        loads, known, least = zip(*parts, strict=True)
        return cls(max(loads), max(known), min(least))
