"""The file of new rows for a saved model: looked through once, then read again in groups of rows.

How values are written is decided before anything is predicted, by all rows and the model's schema.
A group has the same rows however the file is read, so the predictions do too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import TableError
from .tables import Reading, Roles, type_files
from .tables.files import File
from .tables.rows import new_target
from .tables.written import Written, agreed, notes_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from ..records import Array

# Rows that are predicted at a time, and numbers in them: the same however the file is read.
GROUP_ROWS, GROUP_NUMBERS = 2**15, 2**21


class Group(NamedTuple):
    """Consecutive rows: their features, names and target, and the number of rows before them."""

    features: pd.DataFrame
    ids: pd.Series | None
    y: Array | None
    start: int


@dataclass(frozen=True)
class NewRows:
    """A file that has been looked through.

    Attributes
    ----------
    file
        The file.
    reading
        How all of its rows are read.
    roles
        The columns that are not numbers to be predicted from.
    features
        Names of the features, in the model's order.
    written
        How each column is written.
    rows
        Number of rows.
    scored
        Whether all rows have a target.
    ids
        A part of the names of the rows that has their common type.
    notes
        What was guessed, one sentence each.
    frame
        All rows, if they are read at once.
    group_rows
        Number of rows of a group.

    """

    file: File
    reading: Reading
    roles: Roles
    features: tuple[str, ...]
    written: Mapping[str, Written]
    rows: int
    scored: bool
    ids: pd.Series | None
    notes: tuple[str, ...]
    frame: pd.DataFrame | None
    group_rows: int

    def groups(self) -> Iterator[Group]:
        """Yield all rows in groups of the same number of rows."""
        import pandas as pd

        size = self.group_rows
        pending: list[pd.DataFrame] = []
        start = 0
        for frame in self._frames():
            pending.append(frame)
            while sum(map(len, pending)) > size:
                rest = pd.concat(pending, ignore_index=True)
                yield self._group(rest[:size], start)
                pending, start = [rest[size:]], start + size
        yield self._group(pd.concat(pending, ignore_index=True), start)

    def _frames(self) -> Iterator[pd.DataFrame]:
        if self.frame is not None:
            yield self.frame
            return
        for frame, _ in _parts(self.file, self.reading, self.roles, self.written):
            yield frame

    def _group(self, frame: pd.DataFrame, start: int) -> Group:
        frame = frame.reset_index(drop=True)
        ids = None if self.ids is None else frame[self.ids.name].astype(self.ids.dtype)
        y = None
        if self.scored:
            y, _ = new_target(frame, str(self.roles.target), self.file.path.name)
        return Group(frame[list(self.features)], ids, y, start)


def look_through(file: File, reading: Reading, roles: Roles, features: tuple[str, ...]) -> NewRows:
    """Read all rows once, to find how they are written and whether they have a target."""
    written: Mapping[str, Written] = {}
    notes: list[str] = []
    rows, scored, ids, only = 0, roles.target in file.columns, [], None
    for frame, here in _parts(file, reading, roles, {}):
        only = frame if rows == 0 else None
        written = agreed(file.path.name, written, here) if rows else here
        if scored:
            y, remarks = new_target(frame, str(roles.target), file.path.name)
            scored, notes = y is not None, [f"{remark}{_counted(rows)}" for remark in remarks]
        if roles.id_column is not None:
            ids.append(frame[roles.id_column][:1])
        rows += len(frame)
    guessed = (*(file.text.notes if file.text else ()), *notes_of(written))
    return NewRows(
        file,
        _decided(reading, written),
        roles,
        features,
        written,
        rows,
        scored,
        _common(ids),
        (*dict.fromkeys(guessed), *notes),
        only,
        max(1, min(GROUP_ROWS, GROUP_NUMBERS // len(features))),
    )


def _parts(
    file: File, reading: Reading, roles: Roles, known: Mapping[str, Written]
) -> Iterator[tuple[Any, Mapping[str, Written]]]:
    """Yield frames of consecutive rows, and how their columns are written."""
    start = 0
    for part in file.batches([name for name in file.columns if name not in roles.drop]):
        try:
            tables = type_files([part], reading, roles, known)
        except TableError as error:
            raise TableError(f"{error}{_counted(start)}") from None
        reading, known = _decided(reading, tables.written), {**tables.written, **known}
        yield tables.frames[0], tables.written
        start += len(tables.frames[0])


def _counted(start: int) -> str:
    return f" (rows are counted from row {start + 1:,})" if start else ""


def _decided(reading: Reading, written: Mapping[str, Written]) -> Reading:
    """Return how the rows are read, with the mark of decimals that some of them show."""
    shown = next((one.decimal for one in written.values() if one.decimal), None)
    return reading if reading.decimal or shown is None else replace(reading, decimal=shown)


def _common(ids: list[Any]) -> Any:
    """Return names of rows whose type suits all parts."""
    import pandas as pd

    return pd.concat(ids) if ids else None


def spread(count: int, most: int, seed: int = 0) -> NDArray[np.intp]:
    """Return at most so many places of ``count`` rows, drawn at random, in their order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
