"""Which λ can be each model's best, by bounds on its errors (bounds.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .bounds import (
    Bounds,
    Compared,
    Squares,
    bounds_of_all,
    bounds_without,
    compare,
    sharper,
    terms_of,
)
from .spectrum import Seen, Spectrum


class Decided(NamedTuple):
    """The choices that bounds decide.

    Attributes
    ----------
    winner, sure
        Index of the best λ, and whether the bounds decide it, shape (models,) each.
    open
        Where they do not, the λ between which they do not decide, shape (models, L).

    """

    winner: Tensor
    sure: Tensor
    open: Tensor


def decide(bounds: Bounds, admitted: Tensor, tie: float) -> Decided:
    """Hold the contest of ``choose.Contest`` with bounds; ``admitted`` has shape (models, L).

    Of the λ so far, those that can be the best are known, and bounds on the smallest error. A λ
    that cannot win changes neither; one that is surely smaller is the best.
    """
    low, high = (torch.full_like(bounds.lower[:, 0], torch.inf) for _ in range(2))
    winner, live = torch.zeros_like(low, dtype=torch.long), torch.zeros_like(admitted)
    for k, (lower, upper) in enumerate(zip(bounds.lower.T, bounds.upper.T, strict=True)):
        wins = admitted[:, k] & (upper < (1 - tie) * low)
        enters = admitted[:, k] & ~(lower >= (1 - tie) * high)
        live &= ~wins[:, None]
        live[:, k] = enters
        winner = torch.where(wins, k, winner)
        low = torch.where(wins, lower, torch.where(enters, torch.minimum(low, lower), low))
        high = torch.where(wins, upper, high)
    sure = live.sum(dim=1) == 1
    return Decided(winner, sure, live & ~sure[:, None])


@dataclass(frozen=True)
class Screen:
    """The part at all λ, ready to decide for models.

    ``squares`` holds what ``sharper`` needs at each λ, once it was asked for.
    """

    spectrum: Spectrum
    seen: Seen
    part: Compared
    tie: float
    squares: dict[int, Squares]

    @classmethod
    def of(cls, spectrum: Spectrum, seen: Seen, tie: float) -> Screen:
        """From the rows of the part."""
        return cls(spectrum, seen, compare(spectrum, seen), tie, {})

    def decide_whole(self, admitted: Tensor) -> Decided:
        """Decide for the model of all rows."""
        return decide(bounds_of_all(self.spectrum, self.part), admitted, self.tie)

    def decide(self, seen: Seen, own: Tensor, admitted: Tensor) -> Decided:
        """Decide for the models without some rows; ``own`` says which are in the part."""
        bounds = bounds_without(self.part, terms_of(self.spectrum, self.part, seen, own))
        found = decide(bounds, admitted, self.tie)
        if found.sure.all() or len(self.seen.rotated) <= 2 * len(self.spectrum.vectors):
            return found
        for k in found.open.any(dim=0).nonzero()[:, 0].tolist():
            some = found.open[:, k].nonzero()[:, 0]
            for side, bound in zip(bounds, self._sharper(k, seen.only(k, some), own[some])):
                side[some, k] = bound[:, 0]
        return decide(bounds, admitted, self.tie)

    def _sharper(self, k: int, seen: Seen, own: Tensor) -> Bounds:
        if k not in self.squares:
            self.squares[k] = Squares.of(self.seen.only(k))
        part = Compared(*(each[..., k : k + 1] for each in self.part))
        return sharper(self.spectrum.only(k), part, self.squares[k], seen, own)
