"""Rows of a text file as a frame, block by block, with the types of the whole file."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ...errors import TableError
from .blocks import UNSEPARATED, Block, rows
from .formats import load
from .growing import Column
from .reading import Reading
from .texts import Text, trouble

if TYPE_CHECKING:
    import pandas as pd


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
    columns = {name: Column() for name in names}
    for frame in chain((first, second), frames):
        for name in names:
            columns[name].add(frame[name])
    mixed = {name for name in names if columns[name].is_mixed}
    again = parse(text, reading, {*texts, *mixed}, raw, mixed, trusted=True) if mixed else {}
    # Without a copy: a column is an array of its own.
    whole = {n: again[n] if n in mixed else columns.pop(n).values() for n in names}
    return pandas.DataFrame(whole, copy=False)


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
    except (
        pandas.errors.ParserError,
        pandas.errors.EmptyDataError,
        csv.Error,
        UnicodeError,
    ) as error:
        if "out of memory" in str(error):
            raise MemoryError from None
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
