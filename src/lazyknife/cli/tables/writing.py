"""Write a table to a file whose suffix says how, whole or not at all."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import check_writable, replacing
from .formats import SEPARATORS, SUFFIXES, TableError, load, suffix_of

if TYPE_CHECKING:
    import pandas as pd


def check_output(path: Path) -> None:
    """Raise TableError, before any work is done, if ``write_table`` could not write there."""
    _check_name(path)
    try:
        check_writable(path, SUFFIXES)
    except ValueError as error:
        raise TableError(str(error)) from None


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame, without its index; an old file stays as it was until the new one is whole.

    Parameters
    ----------
    frame
        Any number of rows and columns.
    path
        A name that ends in .csv, .csv.gz, .tsv or .parquet.

    """
    suffix = _check_name(path)
    try:
        with replacing(path) as temporary:
            if suffix == ".parquet":
                frame.to_parquet(temporary, index=False)
            else:
                data = frame.to_csv(index=False, sep=SEPARATORS[suffix]).encode()
                # Without a time stamp, the same table makes the same bytes.
                packed = gzip.compress(data, mtime=0) if suffix.endswith(".gz") else data
                temporary.write_bytes(packed)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _check_name(path: Path) -> str:
    """Return the suffix; refuse an unknown one, one whose package is missing, and a folder."""
    if os.path.isdir(path):
        raise TableError(f"{path}: this is a folder: give the name of a file")
    suffix = suffix_of(path)
    if suffix == ".parquet":
        load("pyarrow.parquet")
    return suffix


def _cannot_write(path: Path, error: OSError) -> TableError:
    reason = error.strerror or error
    return TableError(f"{path}: the file cannot be written ({reason}): give one in another folder")
