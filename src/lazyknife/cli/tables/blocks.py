"""A text file as blocks of whole rows, so that no more than one of them is in memory."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import TableError
from .encodings import as_utf8

BLOCK_BYTES = 2**22  # of text, or of the numbers of a Parquet file, that are read at a time
MAX_FIELD = 2**24  # characters
LOOK = "look for a double quote that is never closed"
UNSEPARATED = f"the rows cannot be separated: {LOOK}"


class Block(NamedTuple):
    """Whole rows of a text file as UTF-8; the first block begins with the header."""

    data: bytes
    line: int = 0  # number of lines before it

    @property
    def has_header(self) -> bool:
        return self.line == 0


@dataclass(frozen=True)
class Pieces:
    """The bytes of a file, unpacked, some at a time; read anew by every loop."""

    path: Path
    size: int

    def __iter__(self) -> Iterator[bytes]:
        try:
            with _opened(self.path) as file:
                while piece := file.read(self.size):
                    yield piece
        except (gzip.BadGzipFile, EOFError, zlib.error):
            message = "not a gzip file, or truncated: compress it again, or rename it to .csv"
            raise TableError(f"{self.path}: {message}") from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = getattr(error, "strerror", None) or error
            message = f"{self.path} cannot be read ({reason}): check its name and permissions"
            raise TableError(message) from None


def _opened(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz") and path.stat().st_size > 0:
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb")


@dataclass(frozen=True)
class Blocks:
    """The text of a file in blocks of whole rows; read anew by every loop."""

    pieces: Pieces
    encoding: str
    separator: str

    def __iter__(self) -> Iterator[Block]:
        pending, line = b"", 0
        for piece in as_utf8(self.pieces, self.encoding):
            pending += piece
            end = self._end(pending)
            if end and (line or lines_of(pending[:end]) > 1):  # not the header alone
                block, pending = Block(pending[:end], line), pending[end:]
                yield block
                line += lines_of(block.data)
        if pending.strip():
            yield Block(pending, line)

    def _end(self, data: bytes) -> int:
        """Return where the last complete row ends, or 0."""
        if b'"' not in data:
            return end_of_line(data)
        try:
            ends = list(_ends(data, self.separator))
        except csv.Error:
            raise TableError(f"{self.pieces.path}: {UNSEPARATED}") from None
        return ends[-2] if len(ends) > 1 else 0  # the last row may go on


def _ends(data: bytes, separator: str) -> Iterator[int]:
    """Yield where each row ends."""
    done = 0

    def lines() -> Iterator[str]:
        nonlocal done
        for line in data.splitlines(keepends=True):
            done += len(line)
            yield line.decode("utf-8", "replace")

    for _ in fields_of(lines(), separator):
        yield done


def fields_of(lines: Iterable[str], separator: str, strict: bool = False) -> Any:
    """Return the reader of rows that decides where fields and rows end."""
    csv.field_size_limit(MAX_FIELD)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict)


def rows(data: bytes, separator: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row ends, and its fields; blank lines are skipped."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace", newline="")
    reader = fields_of(text, separator, strict)
    return ((reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip())


def end_of_line(data: bytes) -> int:
    """Return where the last complete line ends, or 0."""
    return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1


def lines_of(data: bytes) -> int:
    """Return the number of lines that end in the data."""
    return data.count(b"\n") or data.count(b"\r")
