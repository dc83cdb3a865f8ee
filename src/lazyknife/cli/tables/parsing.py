"""Rows of a text file as a frame, block by block, with the types of the whole file."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...words import TableError
from .blocks import UNSEPARATED, Block, rows
from .formats import load
from .reading import Reading
from .texts import Text, trouble

if TYPE_CHECKING:
    import pandas as pd

# Types that the blocks of a column may have together; it is text if they have others. A column
# of booleans with gaps has objects, one without values has floats.
TOGETHER = ({"number", "empty"}, {"boolean", "empty"}, {"text", "empty"})


def parse(
    text: Text,
    reading: Reading,
    texts: Collection[str] = (),
    raw: Collection[str] = (),
    only: Collection[str] = (),
    trusted: bool = False,
) -> pd.DataFrame:
    """Return the frame of a text file.

    Parameters
    ----------
    text
        The file.
    reading
        Which texts are missing values.
    texts
        Columns that stay text even if they look like numbers.
    raw
        Columns that stay text and have no missing values: "NA" stays "NA".
    only
        The columns to read; all if empty.
    trusted
        Whether the rows are known to be alike, as they have been read before.

    """
    pandas = load("pandas")
    names = [name for name in text.names if not only or name in only]
    options = {
        "sep": text.separator,
        "skipinitialspace": True,
        "low_memory": False,  # a column's type comes from the whole block
        "dtype": dict.fromkeys({*texts, *raw}.intersection(names), str),
        "usecols": names if only else None,
        "keep_default_na": False,
        "na_values": {name: list(reading.missing) for name in names if name not in raw},
    }
    frames = (_block(text, block, options, trusted) for block in text.blocks)
    first, second = next(frames), next(frames, None)
    if second is None:
        return first
    columns, mixed = _columns(_all(first, second, frames), names)
    if mixed:
        again = parse(text, reading, {*texts, *mixed}, raw, mixed, trusted=True)
        columns |= {name: again[name] for name in mixed}
    # Without a copy: a column is an array of its own.
    return pandas.DataFrame({name: columns.pop(name) for name in names}, copy=False)


def _all(first: Any, second: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield second
    yield from others


def _block(text: Text, block: Block, options: dict[str, Any], trusted: bool) -> Any:
    """Return the rows of one block, which must be alike."""
    pandas = load("pandas")
    header = {"header": 0} if block.has_header else {"header": None, "names": list(text.names)}
    width = 0 if block.has_header else len(text.names)
    try:
        frame = pandas.read_csv(io.BytesIO(block.data), **options, **header)
        wrong = ""
        if not trusted and _is_doubtful(text, block, len(frame)):
            wrong = trouble(block, text.separator, width)
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error, UnicodeError):
        wrong = trouble(block, text.separator, width) or UNSEPARATED
    if wrong:
        raise TableError(f"{text.path}: {wrong}")
    return frame


def _is_doubtful(text: Text, block: Block, count: int) -> bool:
    """Whether rows may differ in length, or a quote may have swallowed some.

    pandas takes the first fields of longer rows for labels, and fills shorter rows silently.
    """
    if b'"' in block.data:
        return True
    first = [row for _, row in islice(rows(block.data, text.separator), 2)]
    if any(len(row) != len(text.names) for row in first):
        return True
    complete = (count + block.has_header) * (len(text.names) - 1)
    return block.data.count(text.separator.encode()) < complete


def _columns(frames: Iterator[Any], names: list[str]) -> tuple[dict[str, Any], set[str]]:
    """Return every column of the blocks below each other, and those whose types are mixed."""
    parts: dict[str, list[Any]] = {name: [] for name in names}
    kinds: dict[str, set[str]] = {name: set() for name in names}
    for frame in frames:
        for name in names:
            kinds[name].add(_kind(frame[name]))
            if any(kinds[name] <= together for together in TOGETHER):
                parts[name].append(frame[name].copy())  # of its own, not a part of its block
            else:
                parts[name].clear()
    mixed = {name for name in names if not any(kinds[name] <= some for some in TOGETHER)}
    return {n: _joined(parts.pop(n), kinds[n]) for n in names if n not in mixed}, mixed


def _kind(column: Any) -> str:
    if column.dtype.kind in "iuf":
        return "empty" if column.isna().all() else "number"
    return "boolean" if column.dtype in (bool, object) else "text"


def _joined(parts: list[Any], kinds: set[str]) -> Any:
    pandas = load("pandas")
    if "text" in kinds:
        parts = [part.astype("str") for part in parts]
    if kinds <= {"number", "empty"}:
        return load("numpy").concatenate([part.to_numpy() for part in parts])
    return pandas.concat(parts, ignore_index=True)
