"""Read and write tables as CSV, TSV or Parquet; any problem with a file is a TableError."""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import TableError
from ...files import write_together
from . import parquet
from .blocks import BLOCK_BYTES, Pieces
from .formats import SUFFIX_SEPARATORS, suffix_of
from .parsing import parse
from .reading import Reading
from .texts import Text, check_header, open_text
from .writing import table_bytes

if TYPE_CHECKING:
    import pandas as pd

BLANKS = 64  # bytes by which an empty Parquet file is told


@dataclass(frozen=True)
class File:
    """A file whose header has been read; every call of ``frame`` parses its rows."""

    path: Path
    text: Text | None  # of a text file
    reading: Reading
    block_bytes: int = BLOCK_BYTES
    batch: pd.DataFrame | None = None  # some rows of a Parquet file, instead of all

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.text.names if self.text is not None else parquet.column_names(self.path)

    def frame(
        self,
        texts: Collection[str] = (),
        raw: Collection[str] = (),
        only: Collection[str] = (),
        trusted: bool = False,
    ) -> pd.DataFrame:
        """Return at least one row, with a default index.

        Columns ``texts`` stay text even if they look like numbers, and so do columns ``raw``, which
        also have no missing values: "NA" stays "NA". ``only`` some columns are read if given.
        ``trusted`` says that the rows have been read, and need not be checked again.
        """
        names = [name for name in self.columns if not only or name in only]
        if self.text is not None:
            frame = parse(self.text, self.reading, texts, raw, only, trusted)
        elif self.batch is not None:
            frame = self.batch[names]
        else:
            frame = parquet.read_columns(self.path, names)
        if not frame.size:
            missing = "rows" if len(frame.columns) else "columns"
            message = f"the file has no {missing}: give one with a header and rows"
            raise TableError(f"{self.path}: {message}")
        return frame

    def batches(self, only: Collection[str] = ()) -> Iterator[File]:
        """Yield the file in parts of whole rows, none of which takes much memory."""
        if self.text is not None:
            for block in self.text.blocks:
                yield replace(self, text=replace(self.text, blocks=(block,)))
            return
        names = [name for name in self.columns if not only or name in only]
        rows = max(1, self.block_bytes // (8 * max(1, len(names))))
        for batch in parquet.read_batches(self.path, names, rows):
            yield replace(self, batch=batch)


def open_file(
    path: Path, reading: Reading | None = None, whole: bool = True, block_bytes: int = BLOCK_BYTES
) -> File:
    """Open a file, or look only at its first lines; its columns have distinct names."""
    reading = reading or Reading()
    if os.path.isdir(path):  # whose name may have no suffix
        raise TableError(f"{path} is a folder: give a file inside it")
    if os.path.exists(path) and not os.path.isfile(path):  # a file is read several times
        raise TableError(f"{path} is not a file: write the rows to one")
    if suffix_of(path) in SUFFIX_SEPARATORS:
        text = open_text(path, reading, whole, block_bytes)
        check_header(text)
        return File(path, text, reading, block_bytes)
    first = next(iter(Pieces(path, BLANKS)), b"")
    if not first or first.removeprefix(codecs.BOM_UTF8).isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    return File(path, None, reading, block_bytes)


def read_table(path: Path, reading: Reading | None = None) -> pd.DataFrame:
    """Return the frame of one file, with the types that its values show to pandas."""
    return open_file(path, reading).frame()


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame without its index; an old file stays until the new one is complete."""
    suffix_of(path)
    try:
        write_together({path: lambda temporary: temporary.write_bytes(table_bytes(frame, path))})
    except OSError as error:
        raise TableError(str(error)) from None
