"""What was chosen, by every model or for all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data.own_scaling import Compression
from ..records import Array

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False, repr=False)
class ChosenSettings:
    """What every model chose on its own rows, or what rows set aside chose for all models.

    Stored are the settings of each model, or a single one that all models share (``each_...``).
    The attributes without that prefix have an entry for each model and, last, the full-data model.

    Attributes
    ----------
    networks
        Names of the candidates.
    network
        The candidate that each model has, shape (models + 1,).
    weights
        Weight of each feature, in units of 1 over its scale, shape (models + 1, features); 0 where
        a model leaves a feature out, NaN where its network has no weights.
    ridge
        λ, shape (models + 1,).
    widths
        Kind of widths of each row's model, one for each row that is left out.
    log_likelihood_gap
        By how much the log-likelihood of each candidate falls short of the best candidate's, shape
        (models + 1, candidates): at the best start of each model's search, or on the first rows of
        those set aside.
    rows
        Number of rows that are left out.
    evaluated
        Number of factorisations that all searches took together.
    searched
        Number of rows that they used.
    landmarks
        Number of features that the models are fitted in, where rows were set aside; else None.
    scales_of_y
        The scales of y from which models choose; None is y itself.
    scale_of_y
        The one that each model has, shape (models + 1,).
    trees
        Whether the prediction of boosted trees, grown on those rows, is one more feature.

    """

    networks: tuple[str, ...]
    each_network: NDArray[np.int_]
    each_weights: Array
    each_ridge: Array
    each_widths: tuple[str, ...]
    each_gap: Array
    rows: int
    evaluated: int
    searched: int
    landmarks: int | None = None
    scales_of_y: tuple[Compression | None, ...] = (None,)
    each_scale_of_y: NDArray[np.int_] = field(default_factory=lambda: np.zeros(1, dtype=int))
    trees: bool = False

    @property
    def network(self) -> NDArray[np.int_]:
        return self._all(self.each_network)

    @property
    def weights(self) -> Array:
        return self._all(self.each_weights)

    @property
    def ridge(self) -> Array:
        return self._all(self.each_ridge)

    @property
    def log_likelihood_gap(self) -> Array:
        return self._all(self.each_gap)

    @property
    def scale_of_y(self) -> NDArray[np.int_]:
        return self._all(self.each_scale_of_y)

    @property
    def target_scale(self) -> Compression | None:
        """The scale of y of the full-data model."""
        return self.scales_of_y[int(self.each_scale_of_y[-1])]

    def _all(self, each: NDArray[Number]) -> NDArray[Number]:
        return each if len(each) > 1 else np.broadcast_to(each, (self.rows + 1, *each.shape[1:]))

    @property
    def widths(self) -> tuple[str, ...]:
        return self.each_widths if len(self.each_widths) > 1 else self.each_widths * self.rows

    @property
    def counts(self) -> dict[str, int]:
        """How many leave-one-out models have each network."""
        found = np.bincount(self.network[:-1], minlength=len(self.networks))
        return dict(zip(self.networks, found.tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChosenSettings):
            return NotImplemented
        for each in fields(self):
            own, their = (np.asarray(getattr(of, each.name)) for of in (self, other))
            if not np.array_equal(own, their, equal_nan=own.dtype.kind == "f"):
                return False
        return True

    def __repr__(self) -> str:
        """Tables of networks and of widths."""
        gaps = np.median(self.each_gap[:-1] if len(self.each_gap) > 1 else self.each_gap, axis=0)
        size = max(7, *(len(name) for name in (*self.networks, *self.each_widths)))
        lines = [f"{'network':{size}}  models  behind"]
        for (name, count), gap in zip(self.counts.items(), gaps, strict=True):
            lines.append(f"{name:{size}}  {count:6d}  {gap:6.1f}")
        lines += ["", f"{'widths':{size}}    rows"]
        lines += [
            f"{name:{size}}  {count:6d}" for name, count in Counter(self.widths).most_common()
        ]
        counts = np.bincount(self.scale_of_y[:-1], minlength=len(self.scales_of_y))
        if any(scale and k for scale, k in zip(self.scales_of_y, counts, strict=True)):
            lines += ["", f"{'scale of y':{size}}  models"]
            names = [str(scale or "y itself") for scale in self.scales_of_y]
            lines += [f"{name:{size}}  {k:6d}" for name, k in zip(names, counts, strict=True) if k]
        if self.landmarks is not None:
            where = f"{self.landmarks:,} landmark features" + " and boosted trees" * self.trees
            lines += ["", f"chosen for all models on {self.searched:,} rows set aside; {where}"]
        return "\n".join(lines)
