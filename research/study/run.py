"""Run the trials of a study side by side, and lose none when the run is stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from lazyknife.compute import side_by_side, track

from .. import datasets
from .grid import Study, Trial
from .made import stamp
from .methods import METHODS, effective
from .own import Data, Own
from .rows import Row, key_of, line, locked, stored_rows, write_rows
from .trial import NOTHING, is_known, model_of, run_trials

Keys = dict[tuple[str, ...], Trial]


class Outcome(NamedTuple):
    """What a run left behind."""

    path: Path
    rows: int
    ran: int
    failures: tuple[Row, ...] = ()  # rows with an error


class FailedTrials(RuntimeError):
    """Some trials failed; all rows, theirs included, are in the file of ``outcome``."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        lines = (f"  {text} ({count} times)" for text, count in counted(outcome.failures).items())
        super().__init__(
            f"{len(outcome.failures)} of {outcome.rows} trials failed; the rows of the others are "
            f"in {outcome.path}, and the next run tries these again:\n" + "\n".join(lines)
        )


def counted(failures: tuple[Row, ...]) -> dict[str, int]:
    """Return how often each method failed on each data set with each error."""
    texts = [f"{row['method']} on {row['data']}: {row['error']}" for row in failures]
    return {text: texts.count(text) for text in dict.fromkeys(texts)}


def run_study(
    study: Study,
    path: Path,
    *,
    data: Mapping[str, Data] | None = None,
    methods: Mapping[str, Any] | None = None,
    trials: int | None = None,
    jobs: int = -1,
    progress: bool = False,
) -> Outcome:
    """Bring a file of rows up to the study's full grid.

    Rows that are already in the file are kept, and their trials are not run again; a row with an
    error is tried once more. Every row is on the disk as soon as its trial has ended. Levels of
    one fit are taken from it.

    Parameters
    ----------
    study
        The grid; its data and methods are names known to the package, or keys of the two below.
    path
        The file of rows (CSV), which one run at a time may hold.
    data
        Data of your own by name: (X, y) with shapes (n, p) and (n,), or a function from the
        number of the trial to them.
    methods
        Methods of your own by name: an estimator with ``fit`` and ``predict_interval``, such as
        ``LazyJackknifeRegressor(construction=MyConstruction())``, or a function
        ``fit_predict(X, y, X_new, alpha, seed)`` that returns (lower, upper), (point, lower,
        upper), an array of shape (m, 2), or ``Intervals``. Functions of a notebook work with
        several jobs too.
    trials
        Repetitions of every combination; None is the study's own.
    jobs
        Trials at a time, each on one thread; -1 takes all cores.
    progress
        Whether to show a progress bar.

    Raises
    ------
    FailedTrials
        After all trials, if some failed.

    """
    own = Own(data or {}, methods or {})
    _check_names(own)
    with locked(path):
        outcome = _bring_up(study, path, own, trials, jobs, progress)
    if outcome.failures:
        raise FailedTrials(outcome)
    return outcome


def _bring_up(
    study: Study,
    path: Path,
    own: Own,
    trials: int | None,
    jobs: int,
    progress: bool,
) -> Outcome:
    wanted = [resolve(trial, own) for trial in study.expand(trials)]
    keys: Keys = {key_of(trial.key): trial for trial in wanted}
    stored = stored_rows(path)
    others = [row for row in stored if key_of(row) not in keys]
    done: dict[tuple[str, ...], Row] = {key_of(row): row for row in stored if not row["error"]}
    missing = [trial for key, trial in keys.items() if key not in done]
    if missing:
        write_rows(path, [*others, *(done[key] for key in keys if key in done)])
        parts = together(missing)
        made = stamp(study.name)
        calls = ((part, own.of(part[0].data, part[0].method)) for part in parts)
        with path.open("a", encoding="utf-8", newline="") as file:
            ended = side_by_side(run_trials, calls, jobs)
            for found in track(ended, study.name, len(parts), progress):
                rows = [row | made for row in found]
                file.write("".join(map(line, rows)))
                file.flush()
                os.fsync(file.fileno())
                done |= {key_of(row): row for row in rows}
        write_rows(path, [*others, *(done[key] for key in keys)])
    failures = tuple(done[key] for key in keys if done[key]["error"])
    return Outcome(path, len(keys), len(missing), failures)


def together(trials: list[Trial]) -> list[tuple[Trial, ...]]:
    """Put trials together that differ in their level alone."""

    def fit(trial: Trial) -> str:
        return repr(replace(trial, setting=replace(trial.setting, alpha=0.5)))

    place = {fit(trial): k for k, trial in reversed([*enumerate(trials)])}
    ordered = sorted(trials, key=lambda trial: place[fit(trial)])
    return [tuple(part) for _, part in groupby(ordered, key=fit)]


def resolve(trial: Trial, own: Own = NOTHING) -> Trial:
    """Write down what will be run: the method's own settings, and the file behind "meps"."""
    if trial.data not in own.data and not is_known(trial.data):
        raise ValueError(f"no data set {trial.data!r}: pass it in data={{{trial.data!r}: ...}}")
    data = datasets.meps().name if trial.data == "meps" else trial.data
    if trial.method in own.methods:
        model_of(trial, own)  # refuses what is no method
        return replace(trial, data=data)
    if trial.method not in METHODS:
        raise ValueError(
            f"no method {trial.method!r}: pass it in methods={{{trial.method!r}: ...}}"
        )
    return replace(trial, data=data, setting=effective(trial.method, trial.setting))


def _check_names(own: Own) -> None:
    """Refuse names that the package uses itself: their rows would mean two things."""
    taken = [name for name in own.methods if name in METHODS]
    taken += [name for name in own.data if is_known(name)]
    if taken:
        raise ValueError(f"{taken[0]!r} is a name of the package itself: choose another")
