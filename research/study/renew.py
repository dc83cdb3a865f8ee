"""Bring committed rows up to today's code, and run no more trials again than its changes ask for.

One trial of every cell of a study, a method on a data set with its settings, is run again. If the
numbers agree with the committed row, the cell's rows are marked with the code of today; otherwise
all of its trials are run again. Times are not renewed: those of all methods were measured together,
and only ``make reproduce`` measures them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import isclose, isnan
from pathlib import Path
from typing import Any

from lazyknife.compute import side_by_side

from .grid import Setting, Study, Trial
from .made import stamp
from .rows import key_of, locked, stored_rows, write_rows
from .run import resolve
from .trial import run_trial

# Weights are trained in float32, and another processor rounds otherwise: a trial that is run again
# must agree in coverage to .01 and in width to 2 %.
COVERAGE_TOLERANCE, WIDTH_TOLERANCE, CERTIFIED_TOLERANCE = 0.01, 0.02, 1e-4
TIMES = ("fit_seconds", "predict_seconds")
Row = Mapping[str, Any]


def differences(row: Row, again: Row) -> list[str]:
    """What a trial that was run again does not agree in with its row."""
    limits = {
        "coverage": {"rel_tol": 0.0, "abs_tol": COVERAGE_TOLERANCE},
        "width": {"rel_tol": WIDTH_TOLERANCE},
        "certified": {"rel_tol": 0.0, "abs_tol": CERTIFIED_TOLERANCE},
    }
    found = [f"error: {again['error']}"] if again["error"] else []
    for name, limit in limits.items():
        old, new = (float(each[name] or "nan") for each in (row, again))
        if not (isclose(new, old, **limit) or (isnan(new) and isnan(old))):
            found.append(f"{name}: {old:g}, now {new:g}")
    return found


def renew(
    study: Study,
    path: Path,
    jobs: int = -1,
    methods: Sequence[str] = (),
    run: Callable[[Trial], Row] = run_trial,
) -> list[tuple[str, str]]:
    """Renew a file of rows, or those of some methods; return each cell that changed, and how."""
    every = [trial for trial in study.expand() if not methods or trial.method in methods]
    cells = [list(cell) for _, cell in groupby(sorted(every, key=_cell), key=_cell)]
    cells = [[resolve(trial) for trial in cell] for cell in cells]
    with locked(path):
        rows = {key_of(row): dict(row) for row in stored_rows(path)}
        now, changed, stale = stamp(study.name), list[tuple[str, str]](), list[Trial]()
        again = _all(run, [cell[0] for cell in cells], jobs)
        for cell in cells:
            key = key_of(cell[0].key)
            if differ := differences(rows[key], again[key]):
                changed.append((_cell(cell[0]), "; ".join(differ)))
                stale += cell
            else:
                for trial in cell:
                    rows[key_of(trial.key)]["code"] = now["code"]
        for key, row in _all(run, stale, jobs).items():
            rows[key] |= {**row, **{name: rows[key][name] for name in TIMES}, **now}
        write_rows(path, list(rows.values()))
    return changed


def _all(
    run: Callable[[Trial], Row], trials: Sequence[Trial], jobs: int
) -> dict[tuple[str, ...], Row]:
    """Rows of trials by what identifies them."""
    return {key_of(row): row for row in side_by_side(run, ((t,) for t in trials), jobs)}


def _cell(trial: Trial) -> str:
    """What the trials of a cell have in common."""
    plain = vars(Setting())
    own = [f"{name}={value}" for name, value in vars(trial.setting).items() if value != plain[name]]
    return " ".join((trial.data, trial.method, *own))
