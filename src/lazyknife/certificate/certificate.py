"""The record of a coverage guarantee, and how it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..sentences import headline


@dataclass(frozen=True, repr=False)
class Certificate:
    """A coverage guarantee, printed as sentences.

    Attributes
    ----------
    coverage
        The certified probability that an interval contains the true y; 0.0 where the bound is
        vacuous, None where nothing is guaranteed.
    bounds
        ``"ghost_point"``: the certified bound (the baselines name their own theorem instead).
        ``"paper"``: Theorem 1 of the paper, if its stability η was given; for comparison only,
        as ``"paper_literal"``, its value at the (ε, δ) that the paper's experiments state.
    assumptions
        The conditions of the guarantee.
    scope
        The rows it applies to, and what it averages over.
    subject
        The method, n and alpha.
    objections
        The reasons why nothing is guaranteed, if so.
    remarks
        The theorem used, and what readers should know about the base.

    """

    coverage: float | None
    bounds: Mapping[str, float]
    assumptions: tuple[str, ...]
    scope: str
    subject: str
    objections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = [headline(self.coverage, self.subject, self.objections), *self.remarks]
        if self.coverage:
            lines += [f"Scope: {self.scope}.", "It assumes:"]
            lines += [f"  - {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)
