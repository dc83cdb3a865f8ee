"""What the leave-one-out models chose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..records import Array


@dataclass(frozen=True)
class Choice:
    """What every model chose on its own rows; the last one is the full-data model.

    Attributes
    ----------
    networks
        Names of the candidates.
    network
        The candidate that each model chose, shape (models + 1,).
    weights
        Weight of each feature, in units of 1 over its scale, shape (models + 1, features); 0 where
        a model leaves a feature out, NaN where its network has no weights.
    ridge
        λ, shape (models + 1,).
    widths
        Kind of widths of each row's model, one for each training row.
    behind
        By how much the log-likelihood of each candidate's best start falls short of the best
        candidate's, shape (models + 1, candidates).
    evaluated
        Number of factorisations that all searches took together.
    searched
        Number of rows that they used.

    """

    networks: tuple[str, ...]
    network: NDArray[np.int_]
    weights: Array
    ridge: Array
    widths: tuple[str, ...]
    behind: Array
    evaluated: int
    searched: int

    @property
    def counts(self) -> dict[str, int]:
        """How many leave-one-out models chose each network."""
        found = np.bincount(self.network[:-1], minlength=len(self.networks))
        return dict(zip(self.networks, found.tolist(), strict=True))

    def __str__(self) -> str:
        """Tables of networks and of widths."""
        behind = np.median(self.behind[:-1], axis=0)
        size = max(7, *(len(name) for name in (*self.networks, *self.widths)))
        lines = [f"{'network':{size}}  models  behind"]
        for (name, count), gap in zip(self.counts.items(), behind, strict=True):
            lines.append(f"{name:{size}}  {count:6d}  {gap:6.1f}")
        lines += ["", f"{'widths':{size}}    rows"]
        lines += [
            f"{name:{size}}  {count:6d}" for name, count in Counter(self.widths).most_common()
        ]
        return "\n".join(lines)
