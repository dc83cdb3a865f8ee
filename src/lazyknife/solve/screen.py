"""Which λ can be each model's best, by bounds on its errors (bounds.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import blocks
from .bounds import (
    Bounds,
    Compared,
    Squares,
    bounds_of_all,
    bounds_without,
    compare,
    exact,
    sharper,
    terms_of,
)
from .spectrum import Seen, Spectrum

# A λ whose error is larger than another's by this many ties neither wins nor decides which one
# does: each of some 20 ties in a row may move the smallest error so far by one tie.
TIES = 32
# Numbers for each pair of a row left out and a row of the part that errors need at a time.
PAIRS = 4


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
    least = torch.where(admitted, bounds.upper, torch.inf).amin(dim=1, keepdim=True)
    sure = live.sum(dim=1) == 1
    live &= ~(bounds.lower > (1 + TIES * tie) * least)
    return Decided(winner, sure, live & ~sure[:, None])


@dataclass(frozen=True)
class Screen:
    """The rows of the part at all λ, ready to decide for models.

    ``rows`` are their indices, and ``limit`` the bytes for errors of pairs. ``squares`` holds what
    ``sharper`` needs at each λ, once it was asked for.
    """

    spectrum: Spectrum
    rows: Tensor
    seen: Seen
    part: Compared
    tie: float
    limit: int
    squares: dict[int, Squares]

    @classmethod
    def of(cls, spectrum: Spectrum, rows: Tensor, seen: Seen, tie: float, limit: int) -> Screen:
        """From the rows of the part."""
        return cls(spectrum, rows, seen, compare(spectrum, seen), tie, limit, {})

    def decide_whole(self, admitted: Tensor) -> Decided:
        """Decide for the model of all rows."""
        return decide(bounds_of_all(self.spectrum, self.part), admitted, self.tie)

    def decide(self, models: Tensor, seen: Seen, admitted: Tensor) -> Decided:
        """Decide for the models without these rows, by bounds as sharp as they need to be."""
        own = torch.isin(models, self.rows)
        bounds = bounds_without(self.part, terms_of(self.spectrum, self.part, seen, own))
        found = decide(bounds, admitted, self.tie)
        ways = [self._sharper, self._exact]
        for way in ways[len(self.rows) <= 2 * len(self.spectrum.vectors) :]:
            for k in found.open.any(dim=0).nonzero()[:, 0].tolist():
                some = found.open[:, k].nonzero()[:, 0]
                sharp = way(k, models[some], seen.only(k, some))
                bounds.lower[some, k], bounds.upper[some, k] = sharp.lower[:, 0], sharp.upper[:, 0]
            found = decide(bounds, admitted, self.tie)
        return found

    def _sharper(self, k: int, models: Tensor, seen: Seen) -> Bounds:
        if k not in self.squares:
            self.squares[k] = Squares.of(self.seen.only(k))
        own = torch.isin(models, self.rows)
        return sharper(self.spectrum.only(k), self._at(k), self.squares[k], seen, own)

    def _exact(self, k: int, models: Tensor, seen: Seen) -> Bounds:
        spectrum, part, others = self.spectrum.only(k), self._at(k), self.seen.only(k)
        each, found = PAIRS * seen.errors.itemsize * len(self.rows), []
        for block in blocks(len(models), each, self.limit):
            same = models[block, None] == self.rows
            one = Seen(*(field[block] for field in seen))
            found.append(exact(spectrum, part, others, one, same, same.any(dim=1)))
        return Bounds(*map(torch.cat, zip(*found, strict=True)))

    def _at(self, k: int) -> Compared:
        return Compared(*(each[..., k : k + 1] for each in self.part))
