"""From a level to the certificate of a fit, rounding included."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import BaseMethod
from ..intervals import CONSTRUCTIONS, kappa
from ..intervals.rounded import rounding_objections
from ..records import PrivacyCurve, RoundedModels
from .certificate import Certificate
from .certify import certificate_for


@dataclass(frozen=True)
class Certifier:
    """From a level to the certificate of a fit; see ``certificate_for`` for the first fields."""

    construction: str
    base: BaseMethod
    dependence: PrivacyCurve | None
    folds: int
    assumptions: tuple[str, ...]
    objections: tuple[str, ...]
    rows: str
    new_rows: int | None
    loo: RoundedModels
    size: float  # the largest size of y
    columns: str  # a clause on columns in unlike units, which rounding depends on too

    def __call__(self, alpha: float) -> Certificate:
        return certificate_for(
            n=len(self.loo.residuals),
            alpha=alpha,
            construction=self.construction,
            base=self.base,
            dependence=self.dependence,
            folds=self.folds,
            assumptions=self.assumptions,
            objections=(*self.objections, *self.rounded(alpha)),
            rows=self.rows,
            new_rows=self.new_rows,
        )

    def rounded(self, alpha: float) -> tuple[str, ...]:
        """Why rounding leaves no guarantee, if so."""
        rank = kappa(alpha, len(self.loo.residuals))
        tolerated = CONSTRUCTIONS[self.construction].tolerates(rank)
        return rounding_objections(self.loo, tolerated, alpha, self.size, self.columns)
