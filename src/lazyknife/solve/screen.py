"""Which λ can be a model's best, without the errors of all pairs of rows.

Without row j the squared errors of the rows i of a part P, each left out too, have the sum

    C_j = Σ_{i ∈ P, i ≠ j} (e_i + t_ij)²/(1 − ρ_ij²)²,  t_ij = h_ij e_j/m_i,  ρ_ij² = h_ij²/(m_i m_j),

with h_ij = φ_iᵀG⁻¹φ_j, m_i = 1 − h_ii, and e_i the residual of row i, left out. Of this sum,
Σ e_i² + 2Σ e_i t_ij costs one product with a vector (``Spectrum.products``). The rest is at least
0. As Σ_{i ≠ j} h_ij² over all rows is κ_j = h_jj − λ‖G⁻¹φ_j‖² − h_jj², the rest is at most

    e_j² κ_j/m² + x² κ_j/(m m_j) · (2 − ρ²)/(1 − ρ²)²,

m the least m_i of the part, x and ρ bounds on |e_i + t_ij| and |ρ_ij|. With many more rows than
features this is small, and the bounds, widened by what rounding may change, decide the λ of nearly
every model. The errors of the others are computed (parted.py): bounds save time and change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .spectrum import Seen, Spectrum

# A λ whose error is larger than another's by this many ties neither wins nor decides which one
# does: each of some 20 ties in a row may move the smallest error so far by one tie.
TIES = 32
HALF = 0.5  # the largest ρ² for which there is an upper bound


class Bounds(NamedTuple):
    """Bounds on the sums of squared errors of models, shape (models, L) each."""

    lower: Tensor
    upper: Tensor


class Compared(NamedTuple):
    """The rows of the part at all λ, shape (L,) each, but for ``sums``, shape (q + 1, L).

    Attributes
    ----------
    square, sums
        Σ e_i², and Σ a_i ψ_i and Σ a_i with a_i = e_i/m_i.
    most, least, highest
        The largest |e_i|, the least m_i and the largest h_ii.
    reach
        √(trace·Σ‖G⁻¹φ_i‖²), the factor of rounding errors.

    """

    square: Tensor
    sums: Tensor
    most: Tensor
    least: Tensor
    highest: Tensor
    reach: Tensor


def compare(spectrum: Spectrum, seen: Seen) -> Compared:
    """Sum over the rows of the part."""
    kept = 1 - seen.leverages
    errors = seen.errors / kept
    weighted = errors / kept
    sums = torch.cat([seen.rotated.T @ weighted, weighted.sum(dim=0, keepdim=True)])
    reach = (spectrum.trace * seen.lengths.sum(dim=0)).sqrt()
    least = kept.amin(dim=0) - spectrum.unit * (reach.square() + reach)
    least = torch.where(least > 0, least, torch.nan)  # nothing is known
    largest = errors.abs().amax(dim=0)
    highest = seen.leverages.amax(dim=0)
    return Compared(errors.square().sum(dim=0), sums, largest, least, highest, reach)


def bounds_of_all(spectrum: Spectrum, part: Compared) -> Bounds:
    """Bounds of the model of all rows, shape (1, L): its error up to rounding."""
    shaken = 2 * spectrum.unit * _moved(spectrum, part, part.most) / part.least
    noise = _widened(shaken, part.square.sqrt())
    lower, upper = (part.square - noise).clamp(min=0.0), part.square + noise
    return Bounds(lower[None], upper[None])


def bounds_without(spectrum: Spectrum, part: Compared, seen: Seen, own: Tensor) -> Bounds:
    """Bounds of the models without each of these rows; ``own`` says which are in the part."""
    unit, leverages, least = spectrum.unit, seen.leverages, part.least
    reach = (spectrum.trace * seen.lengths).sqrt()
    kept = 1 - leverages - unit * (reach.square() + reach)
    errors = seen.errors / (1 - leverages)
    sizes = errors.abs()
    mine = torch.where(own[:, None], errors, 0.0)
    linear = spectrum.products(seen.rotated, part.sums) - mine / (1 - leverages) * leverages
    base = part.square - mine.square() + 2 * errors * linear
    # Σ_{i ≠ j} h_ij², and bounds on h_ij², |e_i + t_ij| and ρ_ij².
    others = leverages - spectrum.ridges * seen.lengths - leverages.square()
    others = others.clamp(min=0.0) + unit * (reach + 1).square()
    largest = torch.minimum(others, leverages * part.highest)
    single = part.most + sizes * largest.sqrt() / least
    rho = largest / (kept * least)
    total = base + errors.square() * others / least.square()
    more = torch.minimum(total * rho, single.square() * others / (kept * least))
    upper = total + more * (2 - rho) / (1 - rho).square()
    noise = _noise(spectrum, part, sizes, reach, others.sqrt(), kept)
    known = (rho <= HALF) & (kept > 0)
    lower = torch.where(known, (base - noise).clamp(min=0.0), 0.0)
    return Bounds(lower, torch.where(known, upper + noise, torch.inf))


def _noise(
    spectrum: Spectrum, part: Compared, sizes: Tensor, reach: Tensor, hat: Tensor, kept: Tensor
) -> Tensor:
    """What rounding may change in C_j, from |e_j|, u_j, √κ_j and m_j."""
    load, norm = spectrum.load, part.square.sqrt() + sizes * hat / part.least
    moved = _moved(spectrum, part, part.most + sizes * hat / part.least)
    own = hat * ((reach + 1) * load + sizes * (reach.square() + reach)) / kept
    cross = (reach + 1) * (part.reach + 1) * (sizes + 4 * hat * norm / kept)
    shaken = 2 * spectrum.unit * (moved + own + cross) / part.least
    return _widened(shaken, norm) + spectrum.unit * part.square


def _moved(spectrum: Spectrum, part: Compared, most: Tensor) -> Tensor:
    """Norm over the part of changes of r − φᵀw, and of m_i under errors of at most this size."""
    return (part.reach + 1) * spectrum.load + most * (part.reach.square() + part.reach)


def _widened(shaken: Tensor, norm: Tensor) -> Tensor:
    """What a change of errors by a vector of this length may change in their square."""
    return 2 * shaken * norm + shaken.square()


class Decided(NamedTuple):
    """The choices that bounds decide.

    Attributes
    ----------
    winner, sure
        Index of the best λ, and whether the bounds decide it, shape (models,) each.
    possible
        The λ that may be the best, or decide between ties, shape (models, L).

    """

    winner: Tensor
    sure: Tensor
    possible: Tensor


def decide(bounds: Bounds, admitted: Tensor, tie: float) -> Decided:
    """Hold the contest of ``choose.Contest`` with bounds; ``admitted`` has shape (models, L)."""
    low, high = (torch.full_like(bounds.lower[:, 0], torch.inf) for _ in range(2))
    winner, sure = torch.zeros_like(low, dtype=torch.long), torch.ones_like(low, dtype=torch.bool)
    for k, (lower, upper) in enumerate(zip(bounds.lower.T, bounds.upper.T, strict=True)):
        wins = admitted[:, k] & (upper < (1 - tie) * low)
        loses = ~admitted[:, k] | (lower >= (1 - tie) * high)
        winner = torch.where(wins, k, winner)
        # Smaller than all that could have been the best before, it is the best.
        sure = wins | (sure & loses)
        low = torch.where(wins | ~loses, torch.where(wins, lower, torch.minimum(low, lower)), low)
        high = torch.where(wins, upper, high)
    least = torch.where(admitted, bounds.upper.nan_to_num(torch.inf), torch.inf).amin(dim=1)
    hopeless = bounds.lower > (1 + TIES * tie) * least[:, None]
    return Decided(winner, sure, admitted & ~hopeless)
