"""Predictions by partition: the same partitions, lazily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.rows import to_tensor
from ..intervals import kappa
from ..intervals.streamed import CompactModels
from .partitions import Lazy, computed, parts_of, sent, tasks
from .passes import farthest_eta


def points_by_partition(model: Any, X: Any) -> Any:
    """Point predictions: an array, or a series with the labels of X."""
    if type(X).__name__ == "Array":
        return _array(tasks(_points, parts_of(X), same=[sent(model)]), X, ())
    return X.map_partitions(_points, sent(model), meta=_named_points(None, X._meta))


def ends_by_partition(model: Any, X: Any, asked: float | tuple[float, ...]) -> Any:
    """Ends as ``to_numpy`` gives them, or a frame as of ``to_frame``."""
    if isinstance(model.loo_, CompactModels) and model.loo_.ask is not None:
        # Bring the models here that these rows need.
        levels = asked if isinstance(asked, tuple) else (asked,)
        largest = max(computed(tasks(_eta, parts_of(X), same=[sent(model)])))
        for rank in {kappa(level, model.loo_.count) for level in levels} - {0}:
            model.loo_.among(rank, largest)
    same = (sent(model), asked)
    if type(X).__name__ == "Array":
        shape = (len(asked),) if isinstance(asked, tuple) else ()
        return _array(tasks(_ends, parts_of(X), same=same), X, (2, *shape))
    return X.map_partitions(_table, *same, meta=_empty_table(X._meta, asked))


def _eta(rows: Any, model: Any) -> float:
    if not len(rows):
        return 0.0
    return farthest_eta(model.loo_, to_tensor(model.scaling_(model._check_new(rows))))


def _points(rows: Any, model: Any) -> Any:
    found = model.predict(rows) if len(rows) else np.empty(0)
    return found if isinstance(rows, np.ndarray) else _named_points(found, rows)


def _named_points(values: Any, rows: Any) -> Any:
    import pandas as pd

    return pd.Series(values, index=rows.index, name="point", dtype=np.float64)


def _ends(rows: Any, model: Any, asked: Any) -> Any:
    if len(rows):
        return model.predict_interval(rows, alpha=asked).to_numpy()
    return np.empty((0, 2, len(asked)) if isinstance(asked, tuple) else (0, 2))


def _table(rows: Any, model: Any, asked: Any) -> Any:
    if len(rows):
        return model.predict_interval(rows, alpha=asked).to_frame()
    return _empty_table(rows, asked)


def _empty_table(rows: Any, asked: Any) -> Any:
    from ..results import Intervals

    shape = (0, len(asked)) if isinstance(asked, tuple) else (0,)
    nothing = Intervals(np.empty(0), np.empty(shape), np.empty(shape), asked, rows.index[:0])
    return nothing.to_frame()


def _array(parts: Sequence[Lazy], X: Any, shape: tuple[int, ...]) -> Any:
    import dask.array as da

    lengths = X.chunks[0]
    blocks = [
        da.from_delayed(part, (length, *shape), np.float64)
        for part, length in zip(parts, lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)
