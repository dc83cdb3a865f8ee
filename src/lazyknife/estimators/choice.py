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
    def ridges(self) -> Array:
        """λ, shape (models + 1,)."""
        return self.ridge

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


@dataclass(frozen=True)
class SharedChoice:
    """What was chosen for all models on rows set aside.

    Attributes
    ----------
    networks
        Names of the candidates.
    network
        The candidate that was chosen.
    weights
        Weight of each feature, in units of 1 over its scale; 0 where it is left out.
    ridge
        λ.
    widths
        ``"constant"``, or ``"learnt"``: widths follow the size of errors.
    values
        −2 log likelihood of each candidate over the degrees of freedom, lower is better; on fewer
        rows for candidates that fell behind early.
    evaluated
        Number of factorisations that the search took.
    searched
        Number of rows set aside.
    landmarks
        Number of features that the models are fitted in.
    rows
        Number of leave-one-out models.

    """

    networks: tuple[str, ...]
    network: int
    weights: tuple[float, ...]
    ridge: float
    widths: str
    values: tuple[float, ...]
    evaluated: int
    searched: int
    landmarks: int
    rows: int

    @property
    def ridges(self) -> Array:
        """λ of every model, and of the full one."""
        return np.full(self.rows + 1, self.ridge)

    def __str__(self) -> str:
        """One sentence."""
        used = sum(weight > 0 for weight in self.weights)
        return (
            f"{self.networks[self.network]} with {used} of {len(self.weights)} features, "
            f"ridge {self.ridge:.3g} and {self.widths} widths, chosen on {self.searched:,} rows "
            f"set aside; {self.rows:,} leave-one-out models in {self.landmarks:,} landmark features"
        )
