"""What a command will take, said or refused before any rows are read."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import bytes_in_words
from ..memory import NotEnoughMemory, free_bytes
from .console import say

if TYPE_CHECKING:
    from .tables.files import File
    from .tables.sizes import Size

MANY_ROWS = 100_000  # of which the size is said
COPIES = 2  # of a table: as it is read, and as numbers
LONG = (
    "choices are made on a part of the rows, and the models come from passes over all of them, "
    "which may take long"
)


def check_sizes(
    files: Sequence[File], given: Mapping[str, Any], fits: bool = True, free: int | None = None
) -> None:
    """Refuse files that do not fit in memory, and say what many rows will take.

    Parameters
    ----------
    files
        Whose headers have been read.
    given
        The options: which columns are dropped, and what is done with the rows.
    fits
        Whether one model is fitted to all rows of the first file.
    free
        Bytes of free memory, which are looked up by default.

    """
    from .tables.sizes import size_of

    sizes = {file.path.name: size_of(file, given.get("drop") or ()) for file in files}
    needed = COPIES * sum(size.memory for size in sizes.values())
    unused = free_bytes() if free is None else free
    if needed > unused:
        raise NotEnoughMemory(_refused(sizes, needed, unused))
    for number, (name, size) in enumerate(sizes.items()):
        if size.rows > MANY_ROWS:
            then = f"; {_method(size, given)}" if fits and number == 0 else ""
            taken = bytes_in_words(COPIES * size.memory)
            left = bytes_in_words(unused)
            say(f"note: {name}: {size}, {taken} in memory ({left} are free){then}.")


def say_batches(path: Path) -> None:
    """Say that many new rows are predicted in batches; what is wrong with a file is found later."""
    from .tables.sizes import rows_of

    with suppress(OSError, ValueError, zlib.error):
        rows = rows_of(path)
        if rows > MANY_ROWS:
            say(f"note: {path.name}: about {rows:,} rows, which are read and predicted in batches.")


def _refused(sizes: Mapping[str, Size], needed: int, free: int) -> str:
    """Return what does not fit, in bytes, and the ways out."""
    found = " and ".join(f"{name}: {size}" for name, size in sizes.items())
    ways = "pass --drop for columns that are not used, or give fewer rows (a random part of them)"
    if len(sizes) > 1:
        ways += "; lazyknife fit and predict --model read new rows in batches"
    return f"{found} need {needed:,} bytes of memory, but {free:,} are free: {ways}"


def _method(size: Size, given: Mapping[str, Any]) -> str:
    """Return what a fit does with so many rows."""
    if given.get("sketch") is not None:
        numbers = bytes_in_words(8 * size.rows * given["sketch"])
        return f"--sketch {given['sketch']} computes {numbers} of features"
    if given.get("hidden") is not None:
        return "--hidden requires a matrix with a row for each of them"
    return LONG
