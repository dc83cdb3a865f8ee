"""The file of a study's rows: written whole, read with care, open to one run at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ..pages import write_whole
from .grid import shown
from .trial import COLUMNS, MEASURES

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
KEY = COLUMNS[: COLUMNS.index("trial") + 1]  # what identifies a row
TEXTS = ("data", "method", "transform", "readout", "ridge", "error", "versions", "commit", "code")
WAY_OUT = "restore the file, or move it away and run the study again"


class DamagedRows(ValueError):
    """A file of rows that a study did not write like this."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file of rows; refuse it while another run does.

    The system frees the lock when a process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(
            f"{path}: another run is writing these rows: wait until it has ended, or choose "
            "another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


def key_of(row: Row) -> tuple[str, ...]:
    """Return what identifies a row."""
    return tuple(shown(row[name]) for name in KEY)


def stored_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a file; a last line that was cut off by a kill is not a row."""
    if not path.exists():
        return []
    try:
        text = path.read_bytes().decode("utf-8")
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole), strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DamagedRows(f"{path} is not a table of rows ({error}): {WAY_OUT}") from error
    if text and tuple(reader.fieldnames or ()) != COLUMNS:
        raise DamagedRows(f"{path} was written with other columns: move it away and run again")
    for number, row in enumerate(rows, start=2):
        _check(row, f"{path}, line {number}")
    return rows


def _check(row: dict[Any, Any], where: str) -> None:
    """Refuse a row that lacks cells, has more, or has a word where a number belongs."""
    whole = len(row) == len(COLUMNS) and None not in row.values()
    try:
        numbers = [float(row[name] or "nan") for name in ("trial", *MEASURES)] if whole else []
    except ValueError:
        numbers = []
    if not numbers or not (row["error"] or row["coverage"]):
        raise DamagedRows(f"{where} is no row of a trial: {WAY_OUT}")


def write_rows(path: Path, rows: list[Any]) -> None:
    """Write a file of rows at once."""
    write_whole(path, line(dict(zip(COLUMNS, COLUMNS, strict=True))) + "".join(map(line, rows)))


def line(row: Row) -> str:
    """Return one line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([shown(row[name]) for name in COLUMNS])
    return text.getvalue()


def read_rows(path: Path) -> pd.DataFrame:
    """Return the rows as a pandas frame: one row a trial, empty cells as missing values."""
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no rows yet: run the study first")
    rows = stored_rows(path)
    text = io.StringIO("".join(map(line, [dict(zip(COLUMNS, COLUMNS, strict=True)), *rows])))
    return pd.read_csv(text, dtype=dict.fromkeys(TEXTS, "str"))
