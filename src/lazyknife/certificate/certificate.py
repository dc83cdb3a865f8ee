"""The record of a coverage guarantee, and how it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..sentences import ANY_ROW, DETAILS, headline


@dataclass(frozen=True, repr=False)
class Certificate:
    """A coverage guarantee. It prints what to expect, and what is guaranteed for whom.

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
    expected
        What to expect without a guarantee, as a sentence.
    rows
        The rows it applies to.
    more
        What another construction would certify, if it is more.

    """

    coverage: float | None
    bounds: Mapping[str, float]
    assumptions: tuple[str, ...]
    scope: str
    subject: str
    objections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    expected: str = ""
    rows: str = ANY_ROW
    more: str = field(default="", compare=False)

    @property
    def details(self) -> str:
        """All of it: the theorem, what it averages over, and what it assumes."""
        lines = [self.headline, f"About: {self.subject}.", *self.remarks]
        if self.coverage:
            lines += [f"Scope: {self.scope}.", "It assumes:"]
            lines += [f"  - {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{self.headline}\n({self.subject}; {DETAILS})"

    @property
    def headline(self) -> str:
        """What to expect, and what is guaranteed."""
        return headline(self.coverage, self.expected, self.rows, self.objections, self.more)
