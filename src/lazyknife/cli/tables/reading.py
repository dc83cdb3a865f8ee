"""Read a table from a CSV, TSV or Parquet file; whatever is wrong with it is a TableError."""

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

from .formats import SEPARATORS, TableError, check_unique, load, quoted, suffix_of
from .kinds import kind_of

if TYPE_CHECKING:
    import pandas as pd


def read_tables(paths: Sequence[Path], apart: Collection[str | None] = ()) -> list[pd.DataFrame]:
    """Read files whose columns have the types that all of their rows together have.

    A file of text does not say what type a column has. Where its values look like numbers or truth
    values in one file and like something else in another, they are text in both, as they would be
    in one file with all of the rows: "01" stays "01", whichever file it is in.

    Parameters
    ----------
    paths
        The files, as ``read_table`` takes them.
    apart
        Columns whose type is each file's own, such as the target.

    """
    frames = [read_table(path) for path in paths]
    from_text = [suffix_of(path) in SEPARATORS for path in paths]
    shared = [
        name
        for name in frames[0].columns
        if name not in apart and all(name in frame.columns for frame in frames)
    ]
    mixed = [name for name in shared if _is_mixed([frame[name] for frame in frames], from_text)]
    for path, frame, text in zip(paths, frames, from_text, strict=True):
        if mixed and text:
            frame[mixed] = read_table(path, as_text=mixed)[mixed]
    return frames


def _is_mixed(columns: Sequence[Any], from_text: Sequence[bool]) -> bool:
    """Whether one file has numbers where another has something else, or 0 where one has False."""
    kinds = [kind_of(column) for column in columns]
    found = set(kinds) - {"empty"}
    if found != {"number"}:
        return "number" in found
    infer = load("pandas").api.types.infer_dtype
    guessed = {
        infer(column, skipna=True) == "boolean"
        for column, kind, text in zip(columns, kinds, from_text, strict=True)
        if text and kind == "number"
    }
    return len(guessed) > 1


def read_table(path: Path, as_text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a file of any known suffix.

    Parameters
    ----------
    path
        A .csv, .csv.gz, .tsv or .parquet file; files of text have a first row of column names, and
        their empty fields, "NA", "NaN", "null" and the like are missing values.
    as_text
        Columns of a file of text whose values stay text though they look like numbers.

    Returns
    -------
    pandas.DataFrame
        At least one row and one column, with distinct names and rows numbered from 0.

    """
    if os.path.isdir(path):  # whose name has no suffix to judge by
        raise TableError(f"{path}: this is a folder: give a file inside it")
    suffix = suffix_of(path)
    data = _contents(path).removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    if suffix == ".parquet":
        frame = _parquet(path, data)
    else:
        frame = _text(path, data, SEPARATORS[suffix], as_text)
    if not len(frame.columns):
        raise TableError(f"{path}: there are no columns in it: give a file with some")
    if not len(frame):
        raise TableError(f"{path}: there are no rows below the header: give a file with some")
    return frame


def _contents(path: Path) -> bytes:
    """The bytes of the file, unpacked if it is packed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file: check the name and the folder") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise TableError(
            f"{path}: the file cannot be read ({reason}): check its name and permissions"
        ) from None
    if not path.name.lower().endswith(".gz") or not data:
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise TableError(
            f"{path}: not a gzip file, or a part of one: pack it again, or call it .csv if it is "
            "not packed"
        ) from None


def _text(path: Path, data: bytes, separator: str, as_text: Sequence[str]) -> pd.DataFrame:
    pandas = load("pandas")
    if b"\0" in data:
        raise TableError(f"{path}: a binary file, not text: give a CSV, TSV or Parquet file")
    try:
        header, *first = [row for _, row in islice(_rows(data, separator), 2)] or [[""]]
        _check_separator(path, header, separator)
        # Blank names are numbered by pandas; others that occur twice it would rename in silence.
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
        # Where the first row is longer than the header, pandas takes its first fields for labels.
        ragged = any(len(row) != len(header) for row in first) or _short(data, separator, frame)
    except UnicodeDecodeError:
        raise TableError(f"{path}: not UTF-8 text: save it again as CSV in UTF-8") from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error):
        ragged = True
    if ragged:
        raise TableError(f"{path}: {_trouble(data, separator)}")
    return frame


def _rows(data: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row ends, and its fields; blank lines are left out."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    reader = csv.reader(text, delimiter=separator, skipinitialspace=True)
    return ((reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip())


def _short(data: bytes, separator: str, frame: Any) -> bool:
    """Whether any row is too short, which pandas fills with missing values without a word."""
    if not frame.iloc[:, -1].isna().any():
        return False
    width = len(frame.columns)
    if b'"' not in data:  # as many separators as whole rows have: none is short
        return data.count(separator.encode()) < (len(frame) + 1) * (width - 1)
    return any(len(row) != width for _, row in _rows(data, separator))


def _trouble(data: bytes, separator: str) -> str:
    """What is wrong with a file of text that cannot be cut into rows of equal length."""
    width = 0
    try:
        for line, row in _rows(data, separator):
            width = width or len(row)
            if len(row) != width:
                return (
                    f"line {line} has {len(row)} fields and the header {width}: correct the line, "
                    "or put fields that hold separators between double quotes"
                )
    except (csv.Error, UnicodeDecodeError):
        pass
    return "the rows cannot be told apart: look for a double quote that is never closed"


def _check_separator(path: Path, header: list[str], separator: str) -> None:
    """Refuse a file whose fields are separated in another way, which reads as one wide column."""
    found = [other for other in (",", ";", "\t") if other != separator and other in header[0]]
    if len(header) == 1 and found:
        raise TableError(
            f"{path}: one column only, {quoted(header[0])}: separate the fields by "
            f"{separator!r}, not by {found[0]!r}"
        )


def _parquet(path: Path, data: bytes) -> pd.DataFrame:
    arrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        names = [str(name) for name in file.schema_arrow.names]
        check_unique(names, str(path))
        # pandas keeps its row labels in such columns: no one's measurements.
        names = [name for name in names if not name.startswith("__index_level_")]
        return file.read().select(names).to_pandas(ignore_metadata=True)
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise TableError(
            f"{path}: not a Parquet file, or a damaged one: write it again, or give a CSV file"
        ) from None
