"""Bounds on the errors of models at their own rows, without the errors of all pairs of rows.

Without row j the squared errors of the rows i of a part P, each left out too, have the sum

    C_j = Σ_{i ∈ P, i ≠ j} (e_i + t_ij)²/(1 − ρ_ij²)²,   t_ij = h_ij e_j/m_i,
    ρ_ij² = h_ij²/(m_i m_j),

with h_ij = φ_iᵀG⁻¹φ_j, m_i = 1 − h_ii, and e_i the residual of row i, left out. Of this sum,
Σ e_i² + 2Σ e_i t_ij costs one product with a vector for each λ. The rest is at least 0. As
Σ_{i ≠ j} h_ij² over all rows is κ_j = h_jj − λ‖G⁻¹φ_j‖² − h_jj², the rest is at most

    e_j² κ_j/m² + x² κ_j/(m m_j)·(2 − ρ²)/(1 − ρ²)²,

m the least m_i of the part, x and ρ bounds on |e_i + t_ij| and |ρ_ij|. Where that is not enough, a
product with a matrix gives Σ t_ij² + 2Σ e_i² ρ_ij² (``sharper``), and what is left is at most

    κ_j/(m m_j)·(4|e||t| + 2t² + x² ρ²(3 − 2ρ²)/(1 − ρ²)²),

e and t bounds on |e_i| and |t_ij|. With many more rows than features the bounds, widened by what
rounding may change, decide the λ of nearly every model. The sums of the others are computed
(``exact``): bounds save time and change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .spectrum import Seen, Spectrum

SAFE = 10.0  # how many times its rounding error 1 − ρ² must be
MOST = 0.9  # the largest ρ² for which there is an upper bound


class Bounds(NamedTuple):
    """Bounds on the sums of squared errors of models, shape (models, L) each."""

    lower: Tensor
    upper: Tensor


class Compared(NamedTuple):
    """The rows of the part at all λ, shape (L,) each, but for ``sums``, shape (q + 1, L).

    Attributes
    ----------
    square, sums
        Σ e_i², and Σ a_i ψ_i with a_i = e_i/m_i.
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
    sums = seen.rotated.T @ weighted
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


class Terms(NamedTuple):
    """What bounds of the models without some rows are made of, shape (rows, L) each.

    Attributes
    ----------
    base, noise, shaken
        Σ e_i² + 2Σ e_i t_ij, what rounding may change in C_j, and in the errors behind it.
    loose
        What rounding may change in ρ_ij².
    errors, kept, others
        e_j, m_j less what rounding may change, and κ_j.
    rho, moved, single
        Bounds on ρ_ij², |t_ij| and |e_i + t_ij|.
    reach
        √trace·‖G⁻¹φ_j‖, the factor of rounding errors.

    """

    base: Tensor
    noise: Tensor
    shaken: Tensor
    loose: Tensor
    errors: Tensor
    kept: Tensor
    others: Tensor
    rho: Tensor
    moved: Tensor
    single: Tensor
    reach: Tensor

    def bounds(self, lower: Tensor, upper: Tensor) -> Bounds:
        """Widened by rounding; from 0 to infinity where nothing is known."""
        lower = torch.where(self.kept > 0, (lower - self.noise).clamp(min=0.0), 0.0)
        known = (self.rho <= MOST) & (self.kept > 0)
        return Bounds(lower.nan_to_num(0.0), torch.where(known, upper + self.noise, torch.inf))


def terms_of(spectrum: Spectrum, part: Compared, seen: Seen, own: Tensor) -> Terms:
    """Return the terms of some rows; ``own``, shape (rows,), says which are in the part."""
    unit, leverages = spectrum.unit, seen.leverages
    reach = (spectrum.trace * seen.lengths).sqrt()
    kept = 1 - leverages - unit * (reach.square() + reach)
    errors = seen.errors / (1 - leverages)
    mine = torch.where(own[:, None], errors, 0.0)
    linear = seen.rotated @ (spectrum.inverse * part.sums) - mine / (1 - leverages) * leverages
    base = part.square - mine.square() + 2 * errors * linear
    others = leverages - spectrum.ridges * seen.lengths - leverages.square()
    others = others.clamp(min=0.0) + unit * (reach + 1).square()
    largest = torch.minimum(others, leverages * part.highest)  # h_ij²
    moved, rho = errors.abs() * largest.sqrt() / part.least, largest / (kept * part.least)
    shaken = _shaken(spectrum, part, errors.abs(), reach, others.sqrt(), kept)
    norm = part.square.sqrt() + errors.abs() * others.sqrt() / part.least
    noise = _widened(shaken, norm) + unit * part.square
    loose = unit * (reach + 1) * (part.reach + 1) / (kept * part.least)
    single = part.most + moved
    return Terms(base, noise, shaken, loose, errors, kept, others, rho, moved, single, reach)


def bounds_without(part: Compared, terms: Terms) -> Bounds:
    """Bounds of the models without these rows."""
    base, *_, errors, kept, others, rho, _, single, _ = terms
    total = base + errors.square() * others / part.least.square()
    more = torch.minimum(total * rho, single.square() * others / (kept * part.least))
    return terms.bounds(base, total + more * (2 - rho) / (1 - rho).square())


class Squares(NamedTuple):
    """Σ ψ_i ψ_iᵀ/m_i² and Σ e_i² ψ_i ψ_iᵀ/m_i over the part at one λ, shape (q + 1, q + 1) each."""

    moved: Tensor
    shrunk: Tensor

    @classmethod
    def of(cls, seen: Seen) -> Squares:
        """From the rows of the part at one λ."""
        kept = 1 - seen.leverages
        moved = seen.rotated.T @ (seen.rotated / kept.square())
        return cls(moved, seen.rotated.T @ (seen.rotated * seen.errors.square() / kept**3))


def sharper(
    spectrum: Spectrum, part: Compared, squares: Squares, seen: Seen, own: Tensor
) -> Bounds:
    """Sharper bounds at one λ, for the price of two products with matrices."""
    terms = terms_of(spectrum, part, seen, own)
    base, *_, errors, kept, others, rho, moved, single, reach = terms
    steps, leverages = seen.rotated * spectrum.inverse[:, 0], seen.leverages
    moving, shrunk = (((steps @ sums) * steps).sum(dim=1, keepdim=True) for sums in squares)
    mine = torch.where(own[:, None], leverages.square() / (1 - leverages), 0.0)
    moving = errors.square() * (moving - mine / (1 - leverages))
    middle = base + moving + 2 * (shrunk - errors.square() * mine) / (1 - leverages)
    more = 4 * part.most * moved + 2 * moved.square()
    more = more + single.square() * rho * (3 - 2 * rho) / (1 - rho).square()
    more = more * others / (kept * part.least)
    rounded = errors.square() / part.least + 2 * part.most.square() / kept
    more = more + spectrum.unit * (reach + 1).square() * rounded / part.least
    return terms.bounds(torch.where(rho <= MOST, middle - more, base), middle + more)


def exact(
    spectrum: Spectrum, part: Compared, others: Seen, seen: Seen, same: Tensor, own: Tensor
) -> Bounds:
    """C_j itself at one λ, up to rounding, from the errors of all pairs.

    Parameters
    ----------
    spectrum, part, others
        The part, and its rows.
    seen, own
        The rows left out, and whether they are in the part.
    same
        Where a row of the part is the row left out, shape (rows, part).

    """
    terms, (_, errors, leverages, _) = terms_of(spectrum, part, seen, own), others
    hat = (seen.rotated * spectrum.inverse[:, 0]) @ others.rotated.T
    left = torch.addcmul(errors.T, hat, terms.errors)
    open_part = (1 - leverages).T - hat.square_() / (1 - seen.leverages)
    open_part[same] = torch.inf
    least = (open_part / (1 - leverages).T).amin(dim=1, keepdim=True)  # of 1 − ρ²
    total = left.div_(open_part).square_().sum(dim=1, keepdim=True)
    shaken = terms.shaken / least.square()
    noise = _widened(shaken, total.sqrt()) + spectrum.unit * total
    known = (terms.kept > 0) & (least > SAFE * terms.loose)
    lower = torch.where(known, (total - noise).clamp(min=0.0), 0.0)
    return Bounds(lower, torch.where(known, total + noise, torch.inf))


def _shaken(
    spectrum: Spectrum, part: Compared, sizes: Tensor, reach: Tensor, hat: Tensor, kept: Tensor
) -> Tensor:
    """Norm over the part of changes by rounding of e_i + t_ij, times 1 − ρ_ij².

    From |e_j|, u_j = √trace·‖G⁻¹φ_j‖, √κ_j and m_j.
    """
    load, norm = spectrum.load, part.square.sqrt() + sizes * hat / part.least
    moved = _moved(spectrum, part, part.most + sizes * hat / part.least)
    own = (hat * (reach + 1) * load + (sizes * hat + norm) * (reach.square() + reach)) / kept
    cross = (reach + 1) * (part.reach + 1) * (sizes + 4 * hat * norm / kept)
    return 2 * spectrum.unit * (moved + own + cross) / part.least


def _moved(spectrum: Spectrum, part: Compared, most: Tensor) -> Tensor:
    """Norm over the part of changes of r − φᵀw, and of m_i under errors of at most this size."""
    return (part.reach + 1) * spectrum.load + most * (part.reach.square() + part.reach)


def _widened(shaken: Tensor, norm: Tensor) -> Tensor:
    """What a change of errors by a vector of this length may change in their square."""
    return 2 * shaken * norm + shaken.square()
