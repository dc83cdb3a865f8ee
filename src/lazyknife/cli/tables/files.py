"""Read and write tables as CSV, TSV or Parquet; any problem with a file is a TableError."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import write_together
from ...words import TableError
from .formats import SUFFIX_SEPARATORS, check_unique, load, suffix_of
from .reading import Reading
from .texts import LONGEST_HEADER, UNSEPARATED, Text, as_text, check_header, rows, trouble

if TYPE_CHECKING:
    import pandas as pd

INDEX = "__index_level_"  # begins the row labels of pandas in a Parquet file, which are not data


@dataclass(frozen=True)
class File:
    """A file that has been read; a text file can be parsed again, with other columns as text."""

    path: Path
    text: Text | None  # of a text file
    parquet: bytes  # the contents of another
    reading: Reading

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.text.names if self.text is not None else _parquet_names(self.path, self.parquet)

    def frame(
        self, texts: Collection[str] = (), raw: Collection[str] = (), only: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return at least one row, with a default index.

        Columns ``texts`` stay text even if they look like numbers, and so do columns ``raw``, which
        also have no missing values: "NA" stays "NA". ``only`` some columns are read if given.
        """
        if self.text is None:
            frame = _parquet(self.path, self.parquet)
        else:
            frame = _parse(self.text, self.reading, {*texts, *raw}, set(raw), set(only))
        if not frame.size:
            missing = "rows" if len(frame.columns) else "columns"
            message = f"the file has no {missing}: give one with a header and rows"
            raise TableError(f"{self.path}: {message}")
        return frame


def open_file(path: Path, reading: Reading | None = None, whole: bool = True) -> File:
    """Read a file, or only its first lines; its columns have distinct names."""
    reading = reading or Reading()
    if os.path.isdir(path):  # whose name may have no suffix
        raise TableError(f"{path} is a folder: give a file inside it")
    suffix = suffix_of(path)
    if suffix in SUFFIX_SEPARATORS:
        text = as_text(path, contents(path, None if whole else LONGEST_HEADER), reading, whole)
        check_header(text)
        return File(path, text, b"", reading)
    data = contents(path)
    if not data or data.removeprefix(codecs.BOM_UTF8).isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    return File(path, None, data, reading)


def read_table(path: Path, reading: Reading | None = None) -> pd.DataFrame:
    """Return the frame of one file, with the types that its values show to pandas."""
    return open_file(path, reading).frame()


def contents(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a file, unpacked; only the first if ``most`` says how many."""
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        if opener is gzip.open and path.stat().st_size == 0:
            return b""
        with opener(path, "rb") as file:
            return bytes(file.read() if most is None else file.read(most))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        message = "not a gzip file, or truncated: compress it again, or rename it to .csv"
        raise TableError(f"{path}: {message}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        message = f"{path} cannot be read ({reason}): check its name and permissions"
        raise TableError(message) from None


def _parse(
    text: Text, reading: Reading, texts: set[str], raw: set[str], only: set[str]
) -> pd.DataFrame:
    pandas = load("pandas")
    names = [name for name in text.names if not only or name in only]
    try:
        # low_memory=False: a column's type comes from the whole file, not from blocks of it. On
        # 50,000 rows of 281 numbers pyarrow's reader was no faster in a process of its own.
        frame = pandas.read_csv(
            io.BytesIO(text.data),
            sep=text.separator,
            skipinitialspace=True,
            low_memory=False,
            dtype=dict.fromkeys(texts & set(names), str),
            usecols=names if only else None,
            keep_default_na=False,
            na_values={name: list(reading.missing) for name in names if name not in raw},
        )
        wrong = "" if only or not _is_doubtful(text, frame) else trouble(text.data, text.separator)
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error, UnicodeError):
        wrong = trouble(text.data, text.separator) or UNSEPARATED
    if wrong:
        raise TableError(f"{text.path}: {wrong}")
    return frame


def _is_doubtful(text: Text, frame: Any) -> bool:
    """Whether rows may differ in length, or a quote may have swallowed some.

    pandas takes the first fields of longer rows for labels, and fills shorter rows silently.
    """
    if b'"' in text.data:
        return True
    first = [row for _, row in islice(rows(text.data, text.separator), 2)]
    if any(len(row) != len(text.names) for row in first):
        return True
    complete = (len(frame) + 1) * (len(text.names) - 1)
    return text.data.count(text.separator.encode()) < complete


def _parquet_file(path: Path, data: bytes) -> tuple[Any, list[str]]:
    """Return the open file and the names of its columns."""
    arrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        names = [str(name) for name in file.schema_arrow.names]
        check_unique(names, str(path))
        return file, [name for name in names if not name.startswith(INDEX)]
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise TableError(f"{path}: {DAMAGED}") from None


DAMAGED = "not a Parquet file, or damaged: write it again, or give a CSV file"


def _parquet_names(path: Path, data: bytes) -> tuple[str, ...]:
    return tuple(_parquet_file(path, data)[1])


def _parquet(path: Path, data: bytes) -> pd.DataFrame:
    arrow = load("pyarrow")
    file, names = _parquet_file(path, data)
    try:
        return file.read().select(names).to_pandas(ignore_metadata=True)
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise TableError(f"{path}: {DAMAGED}") from None


def table_bytes(frame: pd.DataFrame, path: Path) -> bytes:
    """Return the contents of a file with the frame, without its index."""
    suffix = suffix_of(path)
    if suffix not in SUFFIX_SEPARATORS:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    data = frame.to_csv(index=False, sep=SUFFIX_SEPARATORS[suffix]).encode()
    # Without a time stamp, the same table gives the same bytes.
    return gzip.compress(data, mtime=0) if suffix.endswith(".gz") else bytes(data)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame without its index; an old file stays until the new one is complete."""
    suffix_of(path)
    try:
        write_together({path: lambda temporary: temporary.write_bytes(table_bytes(frame, path))})
    except OSError as error:
        raise TableError(str(error)) from None
