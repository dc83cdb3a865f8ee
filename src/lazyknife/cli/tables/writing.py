"""Tables written as CSV, TSV or Parquet, in parts: the bytes do not depend on where parts end."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from .formats import SUFFIX_SEPARATORS, load, suffix_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

GROUP = 2**17  # rows of a group in a Parquet file

Append = Callable[["pd.DataFrame"], None]


@contextmanager
def appending(file: IO[bytes], path: Path) -> Iterator[Append]:
    """Yield a function that writes further rows of a table, without their index.

    Parameters
    ----------
    file
        Where the bytes go.
    path
        Whose suffix says how.

    """
    suffix = suffix_of(path)
    if suffix not in SUFFIX_SEPARATORS:
        with _parquet(file) as append:
            yield append
    elif suffix.endswith(".gz"):
        # Without a name and a time, the same table gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield _text(packed, SUFFIX_SEPARATORS[suffix])
    else:
        yield _text(file, SUFFIX_SEPARATORS[suffix])


def _text(file: Any, separator: str) -> Append:
    header = True

    def append(frame: pd.DataFrame) -> None:
        nonlocal header
        file.write(frame.to_csv(index=False, sep=separator, header=header).encode())
        header = False

    return append


@contextmanager
def _parquet(file: IO[bytes]) -> Iterator[Append]:
    """Yield a function that writes groups of the same number of rows."""
    arrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    pending: Any = None
    writer: Any = None

    def append(frame: pd.DataFrame) -> None:
        nonlocal pending
        schema = None if pending is None else pending.schema
        table = arrow.Table.from_pandas(frame, schema, preserve_index=False)
        pending = table if pending is None else arrow.concat_tables([pending, table])
        while len(pending) > GROUP:
            write(pending[:GROUP])
            pending = pending[GROUP:]

    def write(table: Any) -> None:
        nonlocal writer
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table.combine_chunks())

    try:
        yield append
        if pending is not None:
            write(pending)
    finally:
        if writer is not None:
            writer.close()


def table_bytes(frame: pd.DataFrame, path: Path) -> bytes:
    """Return the contents of a file with the frame, without its index."""
    buffer = io.BytesIO()
    with appending(buffer, path) as append:
        append(frame)
    return buffer.getvalue()
