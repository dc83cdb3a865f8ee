"""Fits and predictions of Dask collections: choices on a part of the rows, models by partition."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, overload

import torch
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import DataLoader

from ..base import Public
from ..base.privacy import composed
from ..certificate.plan import LARGEST_N
from ..choosing.rows import Leaving, drawn_part, part_of
from ..cluster import (
    Partitions,
    check_rows,
    ends_by_partition,
    fit_parts,
    is_dask,
    largest_eta_of,
    points_by_partition,
)
from ..cluster.tasks import Reading
from ..compute import Machine
from ..data.scaling import is_transformer
from ..intervals import kappa
from ..intervals.models import rounding_share
from ..intervals.streamed import CompactModels
from ..results import Intervals
from .base import Levels
from .fit_input import Fitted, Given, Seeds, prepare
from .fit_shared import PartedStep, is_parted
from .fitting import LazyFit

FEWEST = 8  # rows: half of them choose, among candidates that require 4
BUDGET = 2**30  # bytes of a task, unless memory_budget says otherwise
SCALINGS = ("auto", None, "symlog")  # those that are fixed, or learnt on the part


class ClusterFit(LazyFit):
    """How Dask collections are fitted and predicted; everything else is left to ``LazyFit``."""

    def fit(self, X: Any, y: Any = None, X_pool: Any = None, X_unlabeled: Any = None) -> Self:
        if not is_dask(X):
            return super().fit(X, y, X_pool, X_unlabeled)
        self._check_settings()
        self._check_cluster(X_pool, X_unlabeled)
        check_rows(X)
        seeds, rows = Seeds.of(self.random_state), Partitions.of(X, y)
        if len(rows) < FEWEST:
            raise ValueError(
                f"X has {len(rows)} row(s): Dask collections need at least {FEWEST}; give more, or "
                "call .compute() on X and y"
            )
        apart = drawn_part(len(rows), seeds.lazy)
        part = rows.take(apart)
        given = prepare(self, *part, None, None)._replace(seeds=seeds)
        return self._set_fitted(part[0], given, self._fit_parts(given, rows, apart))

    def predict(self, X: Any) -> Any:
        if not is_dask(X):
            return super().predict(X)
        check_is_fitted(self)
        check_rows(X)
        return points_by_partition(self, X)

    @overload
    def predict_interval(
        self, X: Iterator[Any] | DataLoader[Any], alpha: Levels = None
    ) -> Iterator[Intervals]: ...

    @overload
    def predict_interval(self, X: Any, alpha: Levels = None) -> Intervals: ...

    def predict_interval(self, X: Any, alpha: Levels = None) -> Any:
        if not is_dask(X):
            return super().predict_interval(X, alpha)
        check_is_fitted(self)
        check_rows(X)
        asked = self._levels(alpha)
        self._prepare_levels(X, asked if isinstance(asked, tuple) else (asked,))
        return ends_by_partition(self, X, asked)

    def _rows_in_all(self, needed: int) -> int:
        if not isinstance(self.loo_, CompactModels):
            return super()._rows_in_all(needed)
        # Collections are parted whatever their size.
        return bisect_left(range(LARGEST_N), needed, key=lambda n: n - part_of(n))

    def _prepare_levels(self, X: Any, levels: Sequence[float]) -> None:
        """Bring the models here that the intervals of these rows need."""
        for level in levels:
            self.certify(alpha=level)
        if isinstance(self.loo_, CompactModels) and self.loo_.ask is not None:
            eta = largest_eta_of(self, X)
            for rank in {kappa(level, self.loo_.count) for level in levels} - {0}:
                self.loo_.level(rank, eta)

    def _fit_parts(self, given: Given, rows: Partitions, apart: Any) -> Fitted:
        step = self._cluster_step(given, len(rows))
        passes, choice = step.chosen(given.X, given.y, len(rows))
        reading = Reading(given.reader, given.scaling, given.target, type(self).__name__)
        rank = kappa(self.alpha, len(rows) - len(apart))
        loo, size = fit_parts(passes, rows, reading, apart, given.X, rank)
        largest = given._replace(y=given.y.new_tensor([size]))  # of all rows, not of the part
        leaving = Leaving(len(rows) - len(apart), len(apart))
        certifier = self._certifier(largest, composed([]), loo, leaving)
        attributes = {
            "widths_": step.widths,
            "rounding_": rounding_share(loo, self.alpha, size),
            "seeds_": given.seeds,
            "choice_": choice,
            "ridge_": choice.ridge[:1].copy(),
            "n_samples_fit_": len(rows),
        }
        return Fitted(loo, certifier, attributes)

    def _cluster_step(self, given: Given, n: int) -> PartedStep:
        networks = self._candidates(given.X) or ()
        if not networks or not is_parted(math.inf, networks, self.construction, self.widths):
            raise ValueError(
                f"network={self.network!r}, widths={self.widths!r}: with Dask collections, give "
                "None or infinitely wide networks of known kinds, widths=None or 'constant', and "
                "leave readout, loss, features, parameters and n_starts as they are"
            )
        candidates = [self._candidate(network, None, given) for network in networks]
        widths = self._widths_for(n, chooses=True)
        step = self._step_for(candidates, widths, given, math.inf)
        assert isinstance(step, PartedStep)
        return replace(step, machine=self._worker(step.machine))

    def _worker(self, machine: Machine) -> Machine:
        """Where tasks run: on processors unless a device was given; workers may have no GPU."""
        device = torch.device("cpu") if self.device == "auto" else machine.device
        budget = BUDGET if self.memory_budget is None else machine.budget
        return replace(machine, device=device, budget=budget)

    def _check_cluster(self, X_pool: Any, X_unlabeled: Any) -> None:
        """Refuse settings that need all rows in one place."""
        wrong = {
            "construction": (self.construction, self.construction == "plus", "'plus'"),
            "base": (self.base, type(self._base_method()) is Public, "None"),
            "scaling": (
                self.scaling,
                not is_transformer(self.scaling) and self.scaling in SCALINGS,
                " or ".join(map(repr, SCALINGS)),
            ),
            "target_transform": (
                self.target_transform,
                self.target_transform is None or isinstance(self.target_transform, str),
                "a name",
            ),
            "X_pool": (type(X_pool).__name__, X_pool is None, "None"),
            "X_unlabeled": (type(X_unlabeled).__name__, X_unlabeled is None, "None"),
        }
        for name, (value, fits, way_out) in wrong.items():
            if not fits:
                raise ValueError(
                    f"{name}={value!r} does not support Dask collections: use {name}={way_out}, or "
                    "call .compute() on X and y if they fit in memory"
                )
