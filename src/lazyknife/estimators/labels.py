"""Labels of rows: their groups, known when predicting, and their clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.rows import plain
from ..data.schema import as_frame

Codes = NDArray[np.intp]
NO_GROUP = -1  # of a new row whose group no training row is in


@dataclass(frozen=True)
class Groups:
    """Labels of rows, in one column or several, and which group of each column a row is in."""

    labels: tuple[tuple[Any, ...], ...]  # of each column
    codes: Codes  # (rows, columns)

    @classmethod
    def of(cls, given: Any, X: Any, count: int) -> Groups:
        """Read columns of labels, or names of columns of the frame X."""
        found = [_codes(column) for column in label_columns(given, X, count, "groups")]
        labels, codes = zip(*found, strict=True)
        return cls(labels, np.stack(codes, axis=1))

    def like(self, given: Any, X: Any, count: int) -> Codes:
        """Codes of new rows, shape (rows, columns); ``NO_GROUP`` where the label is new."""
        columns = label_columns(given, X, count, "groups")
        if len(columns) != len(self.labels):
            raise ValueError(
                f"groups has {len(columns)} columns, but the rows that were fitted have "
                f"{len(self.labels)}: give the same columns"
            )
        places = [{label: code for code, label in enumerate(known)} for known in self.labels]
        found = [
            [known.get(label, NO_GROUP) for label in column]
            for known, column in zip(places, columns, strict=True)
        ]
        return np.array(found, dtype=np.intp).T

    def some(self, rows: NDArray[np.intp]) -> Groups:
        """The same labels, and some of the rows."""
        return Groups(self.labels, self.codes[rows])


def label_columns(given: Any, X: Any, count: int, name: str) -> list[list[Any]]:
    """Columns of labels, each a list of plain values of this length."""
    frame = as_frame(X, "X")
    named = isinstance(given, str) or (
        isinstance(given, Sequence) and len(given) > 0 and all(isinstance(g, str) for g in given)
    )
    if named and frame is not None:
        names = [given] if isinstance(given, str) else list(given)
        if set(names) <= set(frame.columns):
            return [list(map(_label, frame[each].to_list())) for each in names]
        if isinstance(given, str) or len(names) != count:
            shown = ", ".join(map(repr, frame.columns))
            raise ValueError(f"{name}={given!r}: the columns of X are {shown}")
    other = as_frame(given, name) if hasattr(given, "columns") else None
    if other is not None:
        found = [other[each].to_list() for each in other.columns]
    else:
        values = np.asarray(plain(given, name))
        if values.ndim not in (1, 2):
            raise ValueError(
                f"{name} has shape {values.shape}: give a label for each row of X, or the name of "
                "a column of a frame"
            )
        found = [column.tolist() for column in (values[:, None] if values.ndim == 1 else values).T]
    if any(len(column) != count for column in found) or not found:
        lengths = len(found[0]) if found else 0
        raise ValueError(f"{name} has {lengths} rows, but X has {count}: give one for each row")
    return [[_label(value) for value in column] for column in found]


def is_missing(value: Any) -> bool:
    """Whether a label is None, NaN or NA."""
    same = value == value
    return value is None or not isinstance(same, bool | np.bool_) or not same


def _label(value: Any) -> Any:
    """Equal labels are equal values, such as dates their text; what is missing is one group."""
    if is_missing(value):
        return None
    return value if isinstance(value, str | bool | int | float) else str(value)


def _codes(column: list[Any]) -> tuple[tuple[Any, ...], Codes]:
    """The labels in the order in which they appear, and the number of each row's label."""
    known: dict[Any, int] = {}
    codes = [known.setdefault(label, len(known)) for label in column]
    return tuple(known), np.array(codes, dtype=np.intp)


def cluster_codes(given: Any, X: Any, count: int) -> Codes:
    """The number of each row's cluster, by a column of labels."""
    columns = label_columns(given, X, count, "clusters")
    if len(columns) > 1:
        raise ValueError(f"clusters has {len(columns)} columns: give one label for each row")
    if None in columns[0]:
        row = columns[0].index(None)
        raise ValueError(f"clusters has no label for row {row}: give every row one")
    return _codes(columns[0])[1]


def count_rows(X: Any) -> int:
    """Number of rows of an array, a tensor or a frame."""
    frame = as_frame(X, "X")
    return len(X) if frame is None else len(frame)
