"""The ridge at one λ: notation, what its solution offers in both forms, and the record of models.

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

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from .rounding import RoundingTerms


class Indefinite(ValueError):
    """Rounding outweighs the ridge."""

    def __init__(self, ridge: float) -> None:
        super().__init__(
            f"the kernel plus ridge={ridge:.3g} is not positive definite in float64: rounding "
            "outweighs the ridge. Use a larger ridge, or scale the features (scaling='symlog', or "
            "'standardize' with X_pool)"
        )


Fields = TypeVar("Fields", bound=tuple[Tensor, ...])


def joined(parts: Sequence[Fields], dim: int = 0) -> Fields:
    """Concatenate records of tensors along an axis."""
    return type(parts[0])(*(torch.cat(field, dim) for field in zip(*parts, strict=True)))


def check_finite(matrix: Tensor) -> Tensor:
    """The matrix; an error if an entry is not finite."""
    if not torch.isfinite(matrix.sum()):
        raise ValueError(
            "the network's tangent features are too large for float64 on these rows: "
            "scale the features (scaling='symlog', or 'standardize' with X_pool)"
        )
    return matrix


@dataclass(frozen=True)
class OwnRidges:
    """What the models chose."""

    values: Tensor  # λ of each model, and last of the full one, shape (models + 1,)
    doubtful: Tensor  # 1 where rounding may have decided, else 0, shape (models,)


class Open(NamedTuple):
    """New rows at one λ."""

    weights: Tensor  # b, shape (m, n)
    left_open: Tensor  # s, shape (m,)
    loose: Tensor  # γ times it bounds the relative error of s, shape (m,)


@dataclass(frozen=True, eq=False)
class Ridge(ABC):
    """The ridge at one λ, solved.

    ``coefficients`` are the full model in the coordinates of the basis, shape (q,), and ``terms``
    say how sensitive the models without each row are to rounding; γ·``weight``·√strain bounds the
    error of c_i in units of √d_i. ``inverse_rows`` copies rows of A, (rows, n), and ``steps`` gives
    the change of the full model per unit of each of these rows' targets, (q, rows). ``at`` gives b
    and s of new rows from z(x), (m, q), and k(x, x), (m,); ``factor`` keeps what it needs alone.

    ``fold_terms`` is the sensitivity, at these rows S, of the model without them. It differs from
    the full one by ``moved``, (q,), and the other rows enter its predictions of S with the weights
    (A_SS)⁻¹A_S·, in the coordinates of the basis, (rows, q).
    """

    ridge: float  # λ
    dual: Tensor  # c, shape (n,)
    diagonal: Tensor  # d, shape (n,)
    intercept: Tensor  # β, a single number
    share: Tensor  # v, the change of β per unit of each row's target, shape (n,)

    @property
    @abstractmethod
    def coefficients(self) -> Tensor: ...
    @property
    @abstractmethod
    def terms(self) -> RoundingTerms: ...
    @property
    @abstractmethod
    def weight(self) -> float: ...
    @abstractmethod
    def inverse_rows(self, rows: Tensor) -> Tensor: ...
    @abstractmethod
    def steps(self, rows: Tensor) -> Tensor: ...
    @abstractmethod
    def fold_terms(self, rows: Tensor, weights: Tensor, moved: Tensor) -> RoundingTerms: ...
    @abstractmethod
    def at(self, coordinates: Tensor, norms: Tensor) -> Open: ...
    @abstractmethod
    def factor(self) -> Self: ...

    @abstractmethod
    def _columns(self) -> Tensor:
        """The models without each row, shape (q, n), in the memory of this solution if possible."""

    @property
    def left_out(self) -> Tensor:
        """The residuals e = c/d, shape (n,)."""
        return self.dual / self.diagonal

    @property
    def strain(self) -> float:
        """γ times it bounds the relative errors of d."""
        return float(self.terms.strain.abs().max())

    @property
    def loose(self) -> float:
        """γ times it bounds the relative error of s at rows like the training rows."""
        return self.strain

    def models(self) -> RidgeModels:
        """The models without each row; what new rows need aside, they overwrite the solution."""
        residuals = self.left_out
        each = self.intercept - self.share * residuals
        return RidgeModels(
            columns=self._columns(),
            full=self.coefficients,
            intercepts=torch.cat([each, self.intercept[None]]),
            ridges=residuals.new_full((len(residuals) + 1,), self.ridge),
            residuals=residuals,
            training_residuals=self.ridge * self.dual,  # (K + λI)c + β = r
            terms=self.terms,
            doubtful=torch.zeros_like(residuals),
        )


@dataclass(frozen=True)
class RidgeModels:
    """Models f(x; θ0) + z(x)ᵀW_k + β_k; z(x) is a kernel row of x (dual) or a feature row (primal).

    There are M of them: one for each of the n rows, or for each fold.
    """

    columns: Tensor  # W: column k is the model without row or fold k, shape (q, M)
    full: Tensor  # the model of all rows, shape (q,)
    intercepts: Tensor  # β of the M models, and last of the full one, shape (M + 1,)
    ridges: Tensor  # λ of the M models, and last of the full one, shape (M + 1,)
    residuals: Tensor  # y_j minus its prediction by the model without it, shape (n,)
    training_residuals: Tensor  # y_i minus the full model's prediction, shape (n,)
    terms: RoundingTerms  # how sensitive the models without each row are to rounding
    doubtful: Tensor  # 1 where rounding may have decided which λ was chosen, else 0, shape (n,)
    model_of: Tensor | None = None  # of each row, shape (n,); None where model j is that of row j
    # Remaining error of equations that are solved by iteration: predictions at x are off by at most
    # this many √k(x, x).
    unsolved: float = 0.0
    factors: tuple[Ridge, ...] = ()  # the solution at each λ, ready for new rows, for widths

    @property
    def row_ridges(self) -> Tensor:
        """λ of the model without each row, shape (n,)."""
        each = self.ridges[:-1]
        return each if self.model_of is None else each[self.model_of]

    def updated(self, which: Tensor, other: RidgeModels) -> RidgeModels:
        """The same with some of the n + 1 models of another record; columns are overwritten."""
        left, last = which[:-1], other if which[-1] else self
        self.columns[:, left] = other.columns[:, left]
        terms = zip(self.terms, other.terms, strict=True)
        return replace(
            self,
            full=last.full,
            training_residuals=last.training_residuals,
            intercepts=torch.where(which, other.intercepts, self.intercepts),
            ridges=torch.where(which, other.ridges, self.ridges),
            residuals=torch.where(left, other.residuals, self.residuals),
            terms=RoundingTerms(*(torch.where(left, new, old) for old, new in terms)),
        )

    def some(self, rows: slice | Tensor) -> RidgeModels:
        """The models without some of the rows; a slice shares their memory."""
        mine = replace(
            self,
            residuals=self.residuals[rows],
            terms=self.terms.some(rows),
            doubtful=self.doubtful[rows],
        )
        if self.model_of is not None:
            return replace(mine, model_of=self.model_of[rows])
        return replace(
            mine,
            columns=self.columns[:, rows],
            intercepts=torch.cat([self.intercepts[:-1][rows], self.intercepts[-1:]]),
            ridges=torch.cat([self.ridges[:-1][rows], self.ridges[-1:]]),
        )
