"""How large a table is, by its metadata or a sample of its lines, before its rows are read."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import parquet
from .blocks import lines_of
from .files import File
from .formats import SUFFIX_SEPARATORS, suffix_of

NUMBER, TEXT = 8, 24  # bytes of a value in memory
SAMPLE, PLACES = 2**18, 4  # bytes of a sample of lines, and how many are taken


@dataclass(frozen=True)
class Size:
    """Rows and columns of a file, and the bytes of its table in memory."""

    rows: int
    columns: int
    memory: int
    exact: bool = True  # whether the rows were counted

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        return f"{about}{self.rows:,} rows × {self.columns:,} columns"


def size_of(file: File, drop: Collection[str] = ()) -> Size:
    """Return the size of a file whose header has been read, without some columns."""
    if file.text is None:
        return _parquet(file.path, drop)
    rows, columns = rows_of(file.path), sum(name not in drop for name in file.columns)
    return Size(rows, columns, NUMBER * rows * columns, exact=False)


def rows_of(path: Path) -> int:
    """Return the number of rows; that of a text file is an estimate."""
    if not path.is_file():  # a pipe would be waited for
        return 0
    if suffix_of(path) not in SUFFIX_SEPARATORS:
        return _parquet(path).rows
    packed = path.name.lower().endswith(".gz")
    samples = [_unpacked(path)] if packed else list(_samples(path))
    lines, used = sum(lines_of(text) for text, _ in samples), sum(size for _, size in samples)
    return max(1, round(lines * path.stat().st_size / max(1, used)) - 1)


def _parquet(path: Path, drop: Collection[str] = ()) -> Size:
    with parquet.opened(path) as file:
        about = file.metadata
        kinds = [column.type for column in file.schema_arrow if column.name not in drop]
        plain = sum(kind.bit_width <= 64 for kind in kinds if _is_fixed(kind))
        each = NUMBER * plain + TEXT * (len(kinds) - plain)
        return Size(about.num_rows, len(kinds), about.num_rows * each)


def _is_fixed(kind: object) -> bool:
    """Whether values of an Arrow type have a fixed number of bits."""
    try:
        return bool(kind.bit_width)  # type: ignore[attr-defined]
    except ValueError:
        return False


def _samples(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of a file, spread over it, and their numbers of bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for place in range(PLACES):
            file.seek(max(0, size - SAMPLE) * place // (PLACES - 1))
            text = file.read(SAMPLE)
            yield text, len(text)


def _unpacked(path: Path) -> tuple[bytes, int]:
    """Return the beginning of a packed file, and the bytes that it takes in the file."""
    with path.open("rb") as file:
        packed = file.read(SAMPLE)
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(packed, 16 * SAMPLE)
    return text, len(packed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
