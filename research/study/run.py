"""Run the trials of a study side by side, and lose none when the run is stopped."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyknife.compare import side_by_side
from lazyknife.compute import track
from lazyknife.files import write_whole

from .. import datasets
from .grid import Study, Trial, shown
from .methods import effective
from .trial import COLUMNS, run_trial

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


class Outcome(NamedTuple):
    """What a run left behind."""

    path: Path
    rows: int
    ran: int
    errors: tuple[str, ...]


def run_study(
    study: Study, path: Path, *, trials: int | None = None, jobs: int = -1, progress: bool = False
) -> Outcome:
    """Bring a file of rows up to the study's full grid.

    Rows that are already in the file are kept, and their trials are not run again; a row with an
    error is tried once more. Every row is on the disk as soon as its trial has ended. ``jobs``
    trials run at a time, each on one thread; -1 takes all cores.
    """
    wanted = [resolve(trial) for trial in study.expand(trials)]
    keys = {key_of(trial.key): trial for trial in wanted}
    stored = stored_rows(path)
    others = [row for row in stored if key_of(row) not in keys]
    done: dict[tuple[str, ...], Row] = {key_of(row): row for row in stored if not row["error"]}
    missing = [trial for key, trial in keys.items() if key not in done]
    kept = [*others, *(done[key] for key in keys if key in done)]
    if missing:
        write_rows(path, kept)
        with path.open("a", encoding="utf-8", newline="") as file:
            rows = side_by_side(run_trial, ((trial,) for trial in missing), jobs)
            for row in track(rows, study.name, len(missing), progress):
                file.write(line(row))
                file.flush()
                os.fsync(file.fileno())
                done[key_of(row)] = row
        write_rows(path, [*others, *(done[key] for key in keys)])
    errors = tuple(str(done[key]["error"]) for key in keys if done[key]["error"])
    return Outcome(path, len(keys), len(missing), errors)


def resolve(trial: Trial) -> Trial:
    """Write down what will be run: the method's own settings, and the file behind "meps"."""
    data = datasets.meps().name if trial.data == "meps" else trial.data
    return replace(trial, data=data, setting=effective(trial.method, trial.setting))


def key_of(row: Row) -> tuple[str, ...]:
    """Return what identifies a row."""
    return tuple(shown(row[name]) for name in COLUMNS[: COLUMNS.index("trial") + 1])


def stored_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a file; a last line that was cut off by a kill is not a row."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    rows = list(csv.DictReader(io.StringIO(whole)))
    if rows and tuple(rows[0]) != COLUMNS:
        raise ValueError(f"{path} was written with other columns: move it away and run again")
    return rows


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

    texts = ("data", "method", "transform", "readout", "ridge", "error", "versions")
    return pd.read_csv(path, dtype=dict.fromkeys(texts, "str"))
