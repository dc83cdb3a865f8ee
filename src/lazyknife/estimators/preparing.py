"""From what the caller passes to ``fit`` to scaled rows and targets, without a leak or named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.inputs import check_target, to_tensor
from ..data.reading import make_reader, take
from ..data.scaling import Source, find_source, fit_scaling, is_transformer
from ..data.targets import find_target
from .records import Given, Seeds


class Preparing(Protocol):
    """The settings and the hooks of an estimator that decide how rows are prepared."""

    scaling: Any
    encoding: Any
    target: Any
    bounds: Any
    random_state: Any

    def _scaling_for(self, rows: Any, source: Source) -> Any:
        """The scaling to use."""

    def _takes_categories(self, rows: Any) -> bool:
        """Whether the models take rows with codes of categories and missing values."""

    def _learns_from_covariates(self) -> bool:
        """Whether the estimator learns from rows without labels, beyond scaling."""

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        """Training rows that the leave-one-out step does not use, if there are any."""


def prepare(estimator: Preparing, X: Any, y: Any, X_pool: Any, X_unlabeled: Any) -> Given:
    """Read, check and scale what was passed to ``fit``."""
    raw = is_transformer(estimator.scaling)
    reader = make_reader(X, (X_pool, X_unlabeled), estimator.encoding, raw)
    rows = reader(X, estimator, min_rows=2)
    labels = check_target(y, rows, estimator)
    target = find_target(estimator.target, estimator.bounds).check(labels)
    seeds = Seeds.of(estimator.random_state)
    apart = estimator._rows_apart(len(rows), seeds)
    source = find_source(
        rows,
        apart=None if apart is None else take(rows, apart),
        pool=reader.others(X_pool, rows, estimator, "X_pool"),
        unlabeled=reader.others(X_unlabeled, rows, estimator, "X_unlabeled"),
    )
    learns = estimator._learns_from_covariates()
    mixed = reader.encodes and estimator._takes_categories(rows)
    expansion = None if mixed else reader.expansion(source.covariates)
    wanted = estimator._scaling_for(rows, source)
    scaling = fit_scaling(wanted, rows, source, learns, expansion)
    scaled = scaling(rows)
    scaling = replace(scaling, shape=scaled.shape[1:])
    clean = learns and not source.objections
    return Given(
        to_tensor(scaled, copy=not reader.encodes),  # of a frame it is an array of our own
        to_tensor(target.forward(labels)),
        rows.shape[1:],
        reader,
        scaling,
        seeds,
        to_tensor(scaling(source.covariates)) if clean else None,
        reader.names(X),
        target,
        reader.nominal if mixed else None,
    )
