"""The ridge at one λ: the protocol of its two forms, and the record of its models.

With K the kernel of the n training rows, r = Y − f(X; θ0) the targets, A the inverse of K + λI (of
the bordered system where there is an unpenalised intercept), c = A r and d = diag A:

- the residual of row j, left out, is e_j = c_j/d_j;
- the model without row j is the full one minus e_j times its change per unit of r_j (``steps``);
- with rows i and j left out the residual at i is (d_j c_i − A_ij c_j)/(d_i d_j − A_ij²);
- a new row x has weights b(x), with which the training targets enter its prediction
  f(x; θ0) + bᵀr, and s(x) = k(x, x) + λ − k(x)ᵀA k(x), the part of x that the
  training rows leave open: 1/s is its entry in the inverse of all n + 1 rows and −b/s are the
  entries beside it. Without row j, s becomes s + b_j²/d_j, which at row j is 1/d_j.

The dual form (dual.py) works on the kernel, the primal form (primal.py) on feature rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..compute import Machine
from .rounding import Sensitivity


class Indefinite(ValueError):
    """Rounding outweighs the ridge."""

    def __init__(self, ridge: float) -> None:
        super().__init__(
            f"the kernel plus ridge={ridge:.3g} is not positive definite in float64: rounding "
            "outweighs the ridge. Use a larger ridge, or scale the features (scaling='symlog', or "
            "'standardize' with X_pool)"
        )


@dataclass(frozen=True)
class OwnRidges:
    """What the models chose.

    Attributes
    ----------
    values
        λ of each model, and last of the full one, shape (models + 1,).
    doubtful
        1 where rounding may have decided, else 0, shape (models,).

    """

    values: Tensor
    doubtful: Tensor


@dataclass(frozen=True)
class RidgeModels:
    """Models f(x; θ0) + z(x)ᵀW_k + β_k; z(x) is a kernel row of x (dual) or a feature row (primal).

    There are M of them: one for each of the n rows, or for each fold.

    Attributes
    ----------
    columns
        W: column k is the model without row or fold k, shape (q, M).
    full
        The model of all rows, shape (q,).
    intercepts
        β of the M models, and last of the full one, shape (M + 1,).
    ridges
        λ of the M models, and last of the full one, shape (M + 1,).
    residuals
        r_j minus its prediction by the model without it, shape (n,).
    training_residuals
        r_i minus the full model's prediction, shape (n,).
    sensitivity
        How sensitive the models without each row are to rounding.
    model_of
        For each row the model without it, shape (n,); None where model j is that of row j.
    unsolved
        Remaining error of equations that are solved by iteration: predictions at x are off by at
        most this many √k(x, x).

    """

    columns: Tensor
    full: Tensor
    intercepts: Tensor
    ridges: Tensor
    residuals: Tensor
    training_residuals: Tensor
    sensitivity: Sensitivity
    model_of: Tensor | None = None
    unsolved: float = 0.0

    @classmethod
    def empty(cls, columns: Tensor, like: Tensor) -> RidgeModels:
        """Memory for the models without each of n rows; ``like`` has shape (n,)."""
        n = len(like)
        return cls(
            columns=columns,
            full=like.new_zeros(len(columns)),
            intercepts=like.new_zeros(n + 1),
            ridges=like.new_zeros(n + 1),
            residuals=torch.zeros_like(like),
            training_residuals=torch.zeros_like(like),
            sensitivity=Sensitivity.unknown(n, like),
        )

    def first(self, count: int) -> RidgeModels:
        """The models of the first rows alone, in the same memory."""
        if count == len(self.residuals):
            return self
        return replace(
            self,
            columns=self.columns[:, :count],
            intercepts=torch.cat([self.intercepts[:count], self.intercepts[-1:]]),
            ridges=torch.cat([self.ridges[:count], self.ridges[-1:]]),
            residuals=self.residuals[:count],
            training_residuals=self.training_residuals[:count],
            sensitivity=self.sensitivity[torch.arange(count, device=self.residuals.device)],
        )


class Open(NamedTuple):
    """New rows at one λ: weights b, shape (m, n); s, shape (m,).

    γ·loose, shape (m,), bounds the relative error of s.
    """

    weights: Tensor
    left_open: Tensor
    loose: Tensor


class Ridge(Protocol):
    """The ridge at one λ, solved."""

    @property
    def ridge(self) -> float:
        """λ."""

    @property
    def dual(self) -> Tensor:
        """c, shape (n,)."""

    @property
    def diagonal(self) -> Tensor:
        """d, shape (n,)."""

    @property
    def coefficients(self) -> Tensor:
        """The full model in the coordinates of the basis, shape (q,)."""

    @property
    def intercept(self) -> Tensor:
        """β, a single number."""

    @property
    def roots(self) -> Tensor:
        """√diag G of the equations' own matrix G, in the coordinates of the basis, shape (q,)."""

    @property
    def ground(self) -> float:
        """Added to |w|ᵀ√diag G in the bound on errors of the model w."""

    @property
    def unit(self) -> float:
        """Factor that makes d independent of the unit of k."""

    @property
    def weight(self) -> float:
        """γ·weight·√strain bounds the error of c_i in units of √d_i."""

    @property
    def strain(self) -> float:
        """γ times it bounds the relative errors of d."""

    def inverse_rows(self, rows: slice | Tensor) -> Tensor:
        """Rows of A, shape (rows, n)."""

    @property
    def share(self) -> Tensor:
        """v, the change of β per unit of each row's target, shape (n,)."""

    def steps(self, rows: slice | Tensor, inverse_rows: Tensor) -> Tensor:
        """Change of the full model per unit of each of these rows' targets, shape (q, rows)."""

    def without(self, rows: slice, inverse_rows: Tensor) -> tuple[Tensor, Tensor]:
        """The models without each of these rows, (rows, q), and their intercepts, (rows,)."""

    @property
    def widening(self) -> Tensor:
        """Factor by which the reach of new rows may exceed each training row's, shape (n,)."""

    def spans(self, rows: slice, inverse_rows: Tensor) -> Tensor:
        """Return u of rounding.py for these rows."""

    def sensitivity(self, spans: Tensor) -> Sensitivity:
        """Sensitivity to rounding, from the u of all rows, shape (n,)."""


class OpenRidge(Ridge, Protocol):
    """The ridge at one λ, ready for new rows."""

    @property
    def loose(self) -> float:
        """γ times it bounds the relative error of s at rows like the training rows."""

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        """Weights b and s of new rows, from z(x), shape (m, q), and k(x, x), shape (m,)."""


class System(Protocol):
    """The equations of the lazy step, ready to be solved at one λ after another."""

    @property
    def targets(self) -> Tensor:
        """r, shape (n,)."""

    @property
    def norms(self) -> Tensor:
        """k(x, x) of the rows, shape (n,)."""

    @property
    def machine(self) -> Machine:
        """Where the equations are solved."""

    @property
    def width(self) -> int:
        """Number q of coordinates."""

    def at(self, ridge: float) -> Ridge:
        """Solve at λ, in the memory of the system: the next call overwrites the result."""

    def again(self, solved: Any, targets: Tensor) -> Ridge:
        """The solution that ``at`` gave last, for other targets, shape (n,)."""

    @property
    def intercept(self) -> bool:
        """Whether there is an unpenalised intercept."""

    def factor(self, ridge: float) -> OpenRidge:
        """Solve at λ in new memory."""

    def models(self, ridge: float) -> RidgeModels:
        """All n leave-one-out models at λ; they overwrite the system."""

    def copy(self) -> System:
        """A copy of the equations."""

    def kept_rows(self, rows: Tensor) -> Tensor:
        """Copies of coordinates of some training rows, shape (rows, q)."""


def left_out(solved: Ridge) -> Tensor:
    """Return e = c/d, shape (n,)."""
    return solved.dual / solved.diagonal
