"""What ``predict_interval`` may be asked beside a level: one side, groups of rows, their weights.

Everything here is about the rows that were left out, in the order of their models: their groups,
their weights, and which of them an end is chosen from.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..certificate.certify import About
from ..data.checks import check_choice
from ..data.rows import finite_numbers
from ..errors import warn
from ..intervals import AUTO, kappa, rows_needed
from ..intervals.asked import WEIGHTED
from ..records import Array, Side
from ..sentences import ESTIMATED_RATIO, GIVEN_RATIO, IF_RIGHT, IN_GROUPS, SHIFTED, WORTH
from ..shift import estimate_weights
from .labels import NO_GROUP, Codes, Groups, count_rows

if TYPE_CHECKING:
    from .base import IntervalRegressor

SIDES: tuple[Side, ...] = ("both", "upper", "lower")
FEWEST = 20  # training rows, and new ones, for ratios of their densities


class Asked(NamedTuple):
    """A question about some new rows."""

    levels: tuple[float, ...]
    side: Side = "both"
    groups: tuple[Groups, Codes] | None = None  # of the left-out rows, and of the new ones
    weights: tuple[Array, Array] | None = None  # of the left-out rows, and of the new ones
    assumption: str = ""  # about the weights
    kept: Codes | None = None  # left-out rows that count where rows are weighted
    times: int = 1  # α times this bounds the probability of a miss of weighted rows
    worth: float = 0.0  # as many left-out rows of equal weight tell as much
    construction: str | None = None  # that answers; None: that of the fit

    @classmethod
    def of(cls, levels: tuple[float, ...], side: Any) -> Asked:
        """Check the side."""
        check_choice("side", side, SIDES)
        return cls(levels, side)

    @property
    def plain(self) -> bool:
        """Whether all left-out rows count, and alike."""
        return self.groups is None and self.weights is None

    def parts(self, n: int, m: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """For each column of groups which left-out rows some of the new ones are compared with."""
        counts = np.arange(n) if self.kept is None else self.kept
        if self.groups is None:
            yield [(torch.from_numpy(counts), torch.arange(m))]
            return
        known, new = self.groups
        for own_codes, new_codes in zip(known.codes.T, new.T, strict=True):
            yield [
                (
                    torch.from_numpy(counts[own_codes[counts] == code]),
                    torch.from_numpy(np.flatnonzero(new_codes == code)),
                )
                for code in np.unique(new_codes)
            ]

    def masses(self, members: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of some left-out rows and of some new ones."""
        assert self.weights is not None
        assert self.kept is not None
        own, new = map(torch.from_numpy, self.weights)
        return own[torch.searchsorted(torch.from_numpy(self.kept), members)], new[rows]

    def sizes(self, n: int) -> list[int]:
        """How many rows each of the groups has that were asked for."""
        if self.groups is None:
            return [n if self.kept is None else len(self.kept)]
        known, new = self.groups
        counted = known.codes if self.kept is None else known.codes[self.kept]
        pairs = zip(counted.T, new.T, strict=True)
        return [int((own == code).sum()) for own, codes in pairs for code in np.unique(codes)]

    def abouts(self, n: int) -> list[About]:
        """What certificates have to know: an entry for each size of a group."""
        subject, rows = "", "{rows}"
        sizes = sorted(set(self.sizes(n))) or [0]  # of no rows
        if self.groups is not None:
            rows = IN_GROUPS
            spread = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
            subject = f", groups of {spread} rows"
        common: dict[str, Any] = {"side": self.side, "rows": rows, "subject": subject}
        if self.weights is not None:
            common |= {"miss": self.weighted_miss, "exchangeable": self.assumption}
            common["rows"] = IF_RIGHT.format(rows=rows)
            common["subject"] = subject + WORTH.format(count=self.worth)
        return [About(n=None if sizes == [n] else size, **common) for size in sizes]

    def weighted_miss(self, alpha: float) -> float:
        """A multiple of α: the tournament in which rows count by their weights."""
        return min(1.0, self.times * alpha)


def in_clusters(asked: Asked, clusters: Codes, count: int) -> Asked:
    """The question about so many rows of new clusters: every cluster has the same mass."""
    sizes = np.bincount(clusters)
    if any(kappa(level, len(sizes)) == 0 for level in asked.levels):
        least = min(asked.levels)
        warn(
            f"{len(sizes)} clusters are too few for alpha={least:g}: the intervals are infinite. "
            f"At least {rows_needed(least)} clusters are needed"
        )
    own = 1.0 / sizes[clusters]
    return asked._replace(weights=(own, np.ones(count)), kept=np.arange(len(clusters)))


def check_weights(values: Any, count: int, name: str) -> Array:
    """Return weights of rows; refuse what are none."""
    found = finite_numbers(values, name)
    if found.shape != (count,):
        raise ValueError(f"{name} has shape {found.shape}: give a weight for each of {count} rows")
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise ValueError(
            f"{name}[{row}]={found[row]:g} is below 0: weights are ratios of densities"
        )
    return found


def effective_rows(weights: Array) -> float:
    """(Σw)²/Σw²: as many rows of equal weight tell as much."""
    shares = weights / max(weights.max(initial=0.0), np.finfo(np.float64).tiny)
    total = float(shares.sum())
    return total**2 / float((shares**2).sum()) if total else 0.0


def few_in_groups(asked: Asked) -> str:
    """Say which groups have too few rows for finite intervals; empty if none has."""
    if asked.groups is None:
        return ""
    needed, (known, new) = rows_needed(min(asked.levels)), asked.groups
    few = list[str]()
    for labels, own, codes in zip(known.labels, known.codes.T, new.T, strict=True):
        for code in np.unique(codes):
            size = int((own == code).sum())
            if size < needed:
                label = "without training rows" if code == NO_GROUP else repr(labels[code])
                few.append(f"{label} ({size})")
    if not few:
        return ""
    shown = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
    return (
        f"groups with too few rows for alpha={min(asked.levels):g}: {shown}. Their intervals are "
        f"infinite; a group needs at least {needed} rows that are left out"
    )


def require_models(model: IntervalRegressor, **asked: Any) -> None:
    """Refuse questions to models that do not know the errors of all rows."""
    for name in [name for name, value in asked.items() if value is not None]:
        if model.construction_ == "full" and not hasattr(model.loo_, "side"):
            raise ValueError(f"construction='full' does not support {name}: use 'plus' or 'minmax'")
        if not hasattr(model.loo_, "side"):
            raise ValueError(
                f"{name}: this model keeps no errors of single rows, as after a fit to Dask "
                "collections; fit LazyJackknifeRegressor to arrays or frames"
            )


def answering(model: IntervalRegressor, able: Container[str]) -> Any:
    """The construction that answers a question, of those that can: that of the fit, if possible.

    For ``construction="auto"`` jackknife+ answers what full conformal prediction cannot, from the
    same models.
    """
    own = model.construction_
    return "plus" if model.construction == AUTO and own not in able else own


def about_rows(model: IntervalRegressor, asked: Asked, X: Any, groups: Any, weights: Any) -> Asked:
    """The question with what was said about the new rows X."""
    if model.clusters_ is not None:
        for name, value in (("groups", groups), ("weights", weights)):
            if value is not None:
                raise ValueError(f"{name} does not support models that were fitted with clusters")
        return in_clusters(asked, model.clusters_, count_rows(X))
    side = None if asked.side == "both" else asked.side
    require_models(model, side=side, groups=groups, weights=weights)
    if groups is not None:
        if model.groups_ is None:
            raise ValueError("groups was not passed to fit: call fit(X, y, groups=...) first")
        codes = model.groups_.like(groups, X, count_rows(X))
        asked = asked._replace(groups=(model.groups_, codes))
        if few := few_in_groups(asked):
            warn(few)
    return asked if weights is None else _weighted(model, asked, X, weights)


def _weighted(model: IntervalRegressor, asked: Asked, X: Any, weights: Any) -> Asked:
    """The question with weights of rows."""
    construction = answering(model, WEIGHTED)
    if not (isinstance(construction, str) and construction in WEIGHTED and model._leaves_rows):
        names = " or ".join(map(repr, WEIGHTED))
        shown = repr(construction) if model._leaves_rows else "'cv+'"
        raise ValueError(f"construction={shown} does not support weights: use {names}")
    pair = isinstance(weights, (tuple, list)) and len(weights) == 2
    rows, count = model.kept_rows_, count_rows(X)  # None in a loaded model
    if isinstance(weights, str):
        check_choice("weights", weights, ["estimate"])
        if (fewer := min(count, len(model.kept_))) < FEWEST:
            raise ValueError(
                f"weights='estimate' requires {FEWEST} training rows and {FEWEST} rows of X to "
                f"compare, not {fewer}: give X as a whole, or weights=function"
            )
    elif not (pair or callable(weights)):
        raise TypeError(
            "weights: give a pair (for the rows of fit, for the rows of X), a function of rows, or "
            "'estimate'"
        )
    if pair:
        own = check_weights(weights[0], model.n_samples_fit_, "weights[0]")
        own, new = own[model.kept_numbers_], weights[1]
    elif isinstance(weights, str):
        own, new = estimate_weights(model.sample_, *model._comparable(X))
    elif rows is None:
        raise ValueError(
            "weights: a saved model has no training rows for a function: give a pair of arrays, or "
            "'estimate'"
        )
    else:
        own, new = weights(rows), weights(X)
    own = check_weights(own, len(model.kept_), "weights of the training rows")
    new = check_weights(new, count, "weights of X")
    unit = max(own.max(), new.max(initial=0.0), np.finfo(np.float64).tiny)  # no sum overflows
    own, new = own / unit, new / unit
    worth, least = effective_rows(own), min(asked.levels)
    lost = int((new > least * (own.sum() + new)).sum()) if worth else count
    if lost:
        warn(
            f"{lost} of {count} rows of X weigh more than the share alpha={least:g} of all: too "
            "few training rows are like them, and their intervals are infinite. The weights leave "
            f"the training rows as much as {worth:.1f} equal ones tell"
        )
    ratio = ESTIMATED_RATIO if isinstance(weights, str) else GIVEN_RATIO
    times, assumption = WEIGHTED[construction].times, SHIFTED.format(ratio=ratio)
    terms: dict[str, Any] = {"worth": worth, "assumption": assumption, "times": times}
    terms["construction"] = construction
    return asked._replace(weights=(own, new), kept=model.kept_, **terms)


def refuse_in_streams(**given: Any) -> None:
    """Refuse what needs all rows at once."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} requires all rows at once: give an array or a frame")


def refuse_with_dask(**given: Any) -> None:
    """Refuse what needs rows in one place."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} does not support Dask collections: call .compute() on them if they fit in "
                "memory"
            )
