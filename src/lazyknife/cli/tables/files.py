"""Read and write tables as CSV, TSV or Parquet; any problem with a file is a TableError."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import replacing
from .formats import SEPARATORS, TableError, check_unique, load, quoted, suffix_of
from .kinds import kind_of

if TYPE_CHECKING:
    import pandas as pd

UNSEPARATED = "the rows cannot be separated: look for a double quote that is never closed"


def read_tables(paths: Sequence[Path], apart: Collection[str | None] = ()) -> list[pd.DataFrame]:
    """Read files so that a column has the type that it would have in one file with all rows.

    A text file does not say what type a column has. If its values look like numbers or booleans in
    one file and like something else in another, they are text in both: "01" stays "01". The types
    of the columns ``apart``, such as the target, are decided for each file alone.
    """
    frames = [read_table(path) for path in paths]
    texts = [suffix_of(path) in SEPARATORS for path in paths]
    shared = set.intersection(*(set(frame.columns) for frame in frames)) - set(apart)
    mixed = [name for name in shared if _is_mixed([frame[name] for frame in frames], texts)]
    for path, frame, text in zip(paths, frames, texts, strict=True):
        if mixed and text:
            frame[mixed] = read_table(path, as_text=mixed)[mixed]
    return frames


def _is_mixed(columns: Sequence[Any], texts: Sequence[bool]) -> bool:
    """Whether one file has numbers where another has something else, or 0 where one has False."""
    found = {kind_of(column) for column in columns} - {"empty"}
    if found != {"number"}:
        return "number" in found
    infer = load("pandas").api.types.infer_dtype
    of_text = [column for column, text in zip(columns, texts, strict=True) if text]
    types = {infer(column, skipna=True) for column in of_text if kind_of(column) != "empty"}
    return "boolean" in types and len(types) > 1


def read_table(path: Path, as_text: Sequence[str] = ()) -> pd.DataFrame:
    """Return the frame of a file: at least one row and column, distinct names, default index.

    Text files have a first row of column names; empty fields, "NA", "NaN", "null" and the like are
    missing values. Columns ``as_text`` stay text even if they look like numbers.
    """
    if os.path.isdir(path):  # whose name may have no suffix
        raise TableError(f"{path} is a folder: give a file inside it")
    suffix = suffix_of(path)
    data = _contents(path).removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    if suffix in SEPARATORS:
        frame = _text(path, data, SEPARATORS[suffix], as_text)
    else:
        frame = _parquet(path, data)
    if not frame.size:
        missing = "rows" if len(frame.columns) else "columns"
        raise TableError(f"{path}: the file has no {missing}: give one with a header and rows")
    return frame


def _contents(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.name.lower().endswith(".gz") and data else data
    except (gzip.BadGzipFile, EOFError, zlib.error):
        message = "not a gzip file, or truncated: compress it again, or rename it to .csv"
        raise TableError(f"{path}: {message}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        message = f"{path} cannot be read ({reason}): check its name and permissions"
        raise TableError(message) from None


def _text(path: Path, data: bytes, separator: str, as_text: Sequence[str]) -> pd.DataFrame:
    pandas = load("pandas")
    if b"\0" in data:
        raise TableError(f"{path} is a binary file: give a CSV, TSV or Parquet file")
    try:
        header, *first = [row for _, row in islice(_rows(data, separator), 2)] or [[""]]
        _check_separator(path, header, separator)
        # pandas numbers blank names, and would silently rename duplicates.
        check_unique([name for name in header if name.strip()], str(path))
        # low_memory=False: a column's type comes from the whole file, not from blocks of it. On
        # 50,000 rows of 281 numbers pyarrow's reader was no faster in a process of its own.
        frame = pandas.read_csv(
            io.BytesIO(data),
            sep=separator,
            skipinitialspace=True,
            low_memory=False,
            dtype=dict.fromkeys(as_text, str),
        )
        # pandas takes the first fields of longer rows for labels, and fills shorter rows silently.
        doubtful = any(len(row) != len(header) for row in first) or _gaps(data, separator, frame)
        trouble = _trouble(data, separator) if doubtful else ""
    except UnicodeDecodeError:
        raise TableError(f"{path}: not UTF-8 text: save it as CSV in UTF-8") from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error):
        trouble = _trouble(data, separator) or UNSEPARATED
    if trouble:
        raise TableError(f"{path}: {trouble}")
    return frame


def _rows(data: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row ends, and its fields; blank lines are skipped."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    reader = csv.reader(text, delimiter=separator, skipinitialspace=True)
    return ((reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip())


def _gaps(data: bytes, separator: str, frame: Any) -> bool:
    """Whether rows may be too short: the last column has gaps and separators may be missing."""
    if not frame.iloc[:, -1].isna().any():
        return False
    complete = (len(frame) + 1) * (len(frame.columns) - 1)  # separators, if none are in quotes
    return b'"' in data or data.count(separator.encode()) < complete


def _trouble(data: bytes, separator: str) -> str:
    """Return what is wrong with a text file whose rows differ in length; nothing if none do."""
    width = 0
    try:
        for line, row in _rows(data, separator):
            width = width or len(row)
            if len(row) != width:
                found = f"line {line} has {len(row)} fields and the header {width}"
                return f"{found}: correct it, or put double quotes around fields with separators"
    except (csv.Error, UnicodeDecodeError):
        return UNSEPARATED
    return ""


def _check_separator(path: Path, header: list[str], separator: str) -> None:
    """Refuse a file with another separator, which would be read as a single column."""
    found = [other for other in (",", ";", "\t") if other != separator and other in header[0]]
    if len(header) == 1 and found:
        message = f"only one column, {quoted(header[0])}: separate fields by {separator!r}"
        raise TableError(f"{path}: {message}, not by {found[0]!r}")


def _parquet(path: Path, data: bytes) -> pd.DataFrame:
    arrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        names = [str(name) for name in file.schema_arrow.names]
        check_unique(names, str(path))
        # Without the row labels of pandas, which are not data.
        names = [name for name in names if not name.startswith("__index_level_")]
        return file.read().select(names).to_pandas(ignore_metadata=True)
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        message = "not a Parquet file, or damaged: write it again, or give a CSV file"
        raise TableError(f"{path}: {message}") from None


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame without its index; an old file stays until the new one is complete."""
    suffix = suffix_of(path)
    try:
        with replacing(path) as temporary:
            if suffix in SEPARATORS:
                data = frame.to_csv(index=False, sep=SEPARATORS[suffix]).encode()
                # Without a time stamp, the same table gives the same bytes.
                packed = gzip.compress(data, mtime=0) if suffix.endswith(".gz") else data
                temporary.write_bytes(packed)
            else:
                frame.to_parquet(temporary, index=False)
    except OSError as error:
        reason = error.strerror or error
        raise TableError(f"{path} cannot be written ({reason}): choose another folder") from None
