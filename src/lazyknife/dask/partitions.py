"""Dask collections as lists of partitions, and tasks on them.

Everything is a graph of ``dask.delayed`` tasks, which runs where the caller's Dask runs: on the
cluster of the current client, or on threads. A worker that is lost takes nothing with it that the
scheduler cannot compute again, because no data are scattered from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.rows import stack, take

Lazy = Any  # dask.delayed.Delayed
Places = NDArray[np.intp]
TOGETHER = 8  # partitions whose sums are added by one task
LARGE = "2 GiB"  # of a graph, whose landmarks are part of it


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; Dask is not imported."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")


def check_rows(X: Any) -> None:
    """Refuse Dask collections that are no tables."""
    kind = type(X).__name__
    if kind not in ("Array", "DataFrame"):
        raise TypeError(f"X is a Dask {kind}: give a Dask array or frame")
    if X.ndim != 2:
        raise ValueError(f"X is a Dask array of shape {X.shape}: give rows, shape (n, features)")


def parts_of(X: Any) -> list[Lazy]:
    """The partitions of an array, frame or series, each with all of its columns."""
    if type(X).__name__ == "Array" and X.ndim == 2:
        X = X.rechunk({1: -1})
    return list(np.ravel(np.array(X.to_delayed(), dtype=object)))


def sent(value: Any) -> Lazy:
    """A value that many tasks use, sent to the cluster once."""
    return kept([_task(value)])[0]


def _task(value: Any) -> Lazy:
    """A value as the result of a task: a lost copy is made again."""
    from dask import delayed

    return value if is_dask(value) else delayed(value, traverse=False, pure=False)


def tasks(
    function: Callable[..., Any], *columns: Sequence[Any], same: Sequence[Any] = ()
) -> list[Lazy]:
    """One task for each partition; ``same`` are further arguments, which all of them have.

    They are not passed by name: Dask would not keep what named arguments refer to.
    """
    from dask import delayed

    every = [_task(value) for value in same]
    call = delayed(function, pure=False)
    return [call(*row, *every) for row in zip(*columns, strict=True)]


def computed(parts: Sequence[Lazy]) -> list[Any]:
    """The results of tasks, here."""
    import dask

    with _large_graphs():
        return list(dask.compute(*parts))


def kept(parts: Sequence[Lazy]) -> list[Lazy]:
    """The results of tasks, where they were computed, once all of them are there.

    A scheduler may read a small graph before a large one that was sent earlier, and then does not
    find what the small one depends on.
    """
    import dask

    with _large_graphs():
        found = list(dask.persist(*parts))
    with suppress(ImportError):
        from distributed import wait
        from distributed.client import futures_of

        if futures := futures_of(found):
            wait(futures)
    return found


def is_there(parts: Sequence[Lazy]) -> bool:
    """Whether results that were kept are still there: a client that closes gives them up."""
    with suppress(ImportError):
        from distributed.client import futures_of

        return not any(future.cancelled() for future in futures_of(list(parts)))
    return True


def reduced(function: Callable[[list[Any]], Any], parts: Sequence[Lazy]) -> Any:
    """Combine the results of tasks in a tree."""
    left = parts  # which keeps its name: Dask forgets what no name refers to
    while len(left) > 1:
        left = tasks(function, [left[k : k + TOGETHER] for k in range(0, len(left), TOGETHER)])
    return computed(left)[0]


@contextmanager
def _large_graphs() -> Iterator[None]:
    import dask

    with suppress(ImportError):
        import distributed  # noqa: F401  its defaults must be there before one is changed
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGE}):
        yield


@dataclass(frozen=True)
class Partitions:
    """Training rows: partitions with at least one row, and their numbers of rows."""

    X: Sequence[Lazy]
    y: Sequence[Lazy]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, X: Any, y: Any) -> Partitions:
        """Read all partitions; they stay in the memory of the cluster."""
        rows, targets = parts_of(X), parts_of(_like(X, y))
        if len(rows) != len(targets):
            raise ValueError(
                f"X has {len(rows)} partitions and y {len(targets)}: give both the same partitions"
            )
        both = kept([*rows, *targets])
        pairs = list(zip(both[: len(rows)], both[len(rows) :], strict=True))
        lengths = computed(tasks(lambda X, y: (len(X), len(y)), *zip(*pairs, strict=True)))
        for number, (mine, yours) in enumerate(lengths):
            if mine != yours:
                raise ValueError(
                    f"partition {number} of X has {mine} rows and that of y {yours}: give both the "
                    "same partitions"
                )
        some = [(*pair, length) for pair, (length, _) in zip(pairs, lengths, strict=True) if length]
        return cls(*map(tuple, zip(*some, strict=True))) if some else cls((), (), ())

    @cached_property
    def starts(self) -> Places:
        """Number of the first row of each partition, and of all rows."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.intp)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def local(self, places: Places) -> list[Places]:
        """Numbers of rows as numbers within each partition, in order."""
        ordered = np.sort(places)
        cuts = np.searchsorted(ordered, self.starts)
        ends = zip(cuts[:-1], cuts[1:], self.starts, strict=False)
        return [ordered[low:high] - start for low, high, start in ends]

    def take(self, places: Places) -> tuple[Any, Any]:
        """Some rows and their targets, in the order of ``places``, here."""

        def pick(X: Any, y: Any, some: Places) -> tuple[Any, Any]:
            return take(X, some), np.asarray(y)[some]

        columns = zip(self.X, self.y, self.local(places), strict=True)
        some = [column for column in columns if len(column[-1])]
        found = computed(tasks(pick, *zip(*some, strict=True)))
        X, y = stack([rows for rows, _ in found]), np.concatenate([y for _, y in found])
        back = np.argsort(np.argsort(places))
        return take(X, back), y[back]


def _like(X: Any, y: Any) -> Any:
    """Targets in the partitions of X, where their sizes are known."""
    kind = type(y).__name__
    if not is_dask(y) or kind not in ("Array", "DataFrame", "Series"):
        raise TypeError(
            f"y is of type {kind}, but X is a Dask collection: give a Dask array or series with "
            "the same partitions"
        )
    if kind != "Array" or type(X).__name__ != "Array" or y.shape[0] != X.shape[0]:
        return y  # an unknown size is NaN, which equals nothing
    return y.rechunk({0: X.chunks[0]})
