"""Leave-one-out models at different grid points, joined into one set of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..choosing.shape import Factors
from ..compute import Machine, few_threads
from ..data.own_scaling import Compression
from ..records import Predictions, Side, rounded_up
from ..ridge.readout import LinearModels
from ..ridge.widths import Scales
from ..tangent import Rows, WideTangent

# Above the relative errors of a scale and back: apart from a centre, neither changes a number by a
# larger factor.
ULPS = 32 * torch.finfo(torch.float64).eps
ARRAYS = 16  # of rows × models at a time


@dataclass(frozen=True)
class SomeScales:
    """σ of some of the models."""

    scales: Scales
    members: Tensor

    @property
    def own(self) -> Tensor:
        return self.scales.own[self.members]

    @property
    def own_error(self) -> Tensor:
        error = self.scales.own_error
        return error[self.members] if error.dim() else error

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        sigma, error = self.scales.at(rows, norms)
        return sigma[:, self.members], error


def some_of(read: LinearModels, members: Tensor) -> LinearModels:
    """The models of some rows, which may be fewer than those that they learn from."""
    return replace(
        read,
        models=read.models.some(members),
        scales=None if read.scales is None else SomeScales(read.scales, members),
        rounding=replace(read.rounding, own=read.rounding.own[members]),
    )


@dataclass(frozen=True)
class Group:
    """Models at the same grid point, on the same scale of y."""

    members: Tensor
    read: LinearModels
    elsewhere: OtherScale | None = None  # from another scale of y than that of the full model

    @property
    def residuals(self) -> Tensor:
        """Left-out residuals, on the scale of the full model."""
        residuals = self.read.residuals
        return residuals if self.elsewhere is None else self.elsewhere.residuals(residuals)


@dataclass(frozen=True)
class OtherScale:
    """From the scale of y of some models to that of the full model; None is that of y itself."""

    own: Compression | None
    full: Compression | None
    targets: Tensor  # of the left-out rows on the own scale

    def __call__(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Ends on the scale of the full model, moved outwards by more than rounding changes."""
        return _moved(lower, self.own, self.full, -ULPS), _moved(upper, self.own, self.full, ULPS)

    def there(self, z: Tensor) -> Tensor:
        """Values on the own scale, on that of the full model."""
        return _moved(z, self.own, self.full)

    def back(self, z: Tensor) -> Tensor:
        """Values on the scale of the full model, on the own one."""
        return _moved(z, self.full, self.own)

    def residuals(self, residuals: Tensor) -> Tensor:
        """Residuals of the left-out rows there."""
        return self.there(self.targets) - self.there(self.targets - residuals)


def _moved(
    z: Tensor, start: Compression | None, end: Compression | None, ulps: float = 0.0
) -> Tensor:
    """From one scale of y to another, and further by a part of the numbers that were rounded."""
    found = z.cpu().numpy()
    with np.errstate(over="ignore"):  # infinite
        if start is not None:
            found = start.inverse(found)
            found = found + ulps * (np.abs(found) + abs(start.center))
        found = found if end is None else end.forward(found)
    return torch.from_numpy(found + ulps * np.abs(found)).to(z.device)


@dataclass(frozen=True, repr=False)
class ChosenModels:
    """All n models, in groups that share a grid point, and the full model."""

    groups: tuple[Group, ...]
    full: LinearModels  # of which the full model alone is used
    doubtful: Tensor  # whether rounding may have decided a choice of each model, shape (n,)
    factors: Factors | None = None  # of σ
    side: Side = "both"

    def __repr__(self) -> str:
        places = f"{len(self.groups)} combination{'s' * (len(self.groups) > 1)} of settings"
        return f"<{len(self.doubtful)} leave-one-out models with {places}>"

    @property
    def residuals(self) -> Tensor:
        return self._joined([group.residuals for group in self.groups])

    @property
    def training_residuals(self) -> Tensor:
        return self.full.training_residuals

    @property
    def rows_at_once(self) -> int:
        return self._machine.rows_at_once(len(self.doubtful), self._row_bytes)

    @property
    def sharing(self) -> tuple[Machine, int] | None:
        """Kernels can be evaluated by several threads at once; modules have one state."""
        kernels = all(isinstance(read.basis.tangent, WideTangent) for read in self._reads)
        return (self._machine, self._row_bytes) if kernels else None

    @property
    def _machine(self) -> Machine:
        return self.full.basis.tangent.machine

    @property
    def _row_bytes(self) -> int:
        return self.full.basis.row_bytes + ARRAYS * self._machine.item * len(self.doubtful)

    @cached_property  # so that a single new row is answered sooner
    def scores(self) -> Tensor:
        factors = self.factors
        sides: tuple[Side, ...] = (self.side,) if self.side != "both" else ("lower", "upper")
        found = list[Tensor]()
        for side in sides if factors is not None else (self.side,):
            scores = self._joined([replace(read, side=side).scores for read in self._reads])
            if factors is not None:
                c = -factors.shift if side == "lower" else factors.shift
                scores = rounded_up(scores / factors.own, factors.error) - c
                # c at the row itself and at a new one
                scores = scores + 2 * factors.shift_error + ULPS * c.abs()
            found.append(scores)
        return torch.where(self.doubtful, torch.inf, torch.stack(found).amax(dim=0))

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.scores).sum())

    @property
    def unsure_of_widths(self) -> bool:
        """Whether rounding may have decided the width factor of some model."""
        return self.factors is not None and bool(self.factors.doubtful.any())

    def typical_error(self) -> tuple[float, float]:
        """Medians over the models."""
        errors = [read.typical_error() for read in self._reads]
        sizes = torch.tensor([len(group.members) for group in self.groups])
        slack, relative = torch.tensor(errors, dtype=torch.float64).repeat_interleave(sizes, 0).T
        more = 0.0 if self.factors is None else self.factors.error
        return float(slack.median()), float(relative.median()) + more

    def point(self, X: Tensor) -> Tensor:
        return self.full.point(X)

    def rows_at(self, X: Tensor) -> list[Rows]:
        """X in the basis of each group and, last, of the full model."""
        with few_threads(len(self.doubtful)):
            return [read.basis.at(X) for read in (*self._reads, self.full)]

    def scaled(self, X: Tensor, rows: Sequence[Rows] | None = None) -> Predictions:
        """Everything that intervals are made of; ``rows``: those of ``rows_at``."""
        own: Sequence[Rows | None] = (None,) * (1 + len(self.groups)) if rows is None else rows
        with few_threads(len(self.doubtful)):
            found = [read.scaled(X, at) for read, at in zip(self._reads, own, strict=False)]
            each = self._joined([part.each for part in found])
            scales = self._joined([part.scales.expand_as(part.each) for part in found])
            slack, stretch = (
                torch.stack([value.expand(len(each)) for value in values]).amax(dim=0)
                for values in zip(*((part.slack, part.stretch) for part in found), strict=True)
            )
            lean = each.new_zeros(())
            if self.factors is not None:
                scales = scales * self.factors.at(X, each)
                stretch = stretch + self.factors.error + self.factors.steepness * slack
                lean = self.factors.shift * scales
                slack = slack + (stretch + ULPS) * lean.abs().amax(dim=1)
            elsewhere = [(g.members, g.elsewhere) for g in self.groups if g.elsewhere is not None]
            terms = (self.full.point(X, own[-1]), each, scales, stretch, slack)
            return Predictions(*terms, lean=lean, elsewhere=elsewhere)

    @property
    def _reads(self) -> list[LinearModels]:
        return [group.read for group in self.groups]

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Values of the groups' models, (..., models), in the order of the rows."""
        order = torch.cat([group.members for group in self.groups]).argsort()
        return torch.cat(list(parts), dim=-1)[..., order]
