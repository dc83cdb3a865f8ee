"""Models in files: what ``lazyknife fit`` saves and ``lazyknife predict --model`` predicts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from .console import say
from .inputs import check_inputs, reading_of
from .options import READING
from .outcome import Outcome
from .values import flag

if TYPE_CHECKING:
    import pandas as pd

    from ..estimators.lazy import LazyJackknifeRegressor
    from ..results import Intervals
    from .tables import Reading, Roles
    from .tables.rows import About

SUFFIXES = (".lk",)
# Options of ``predict`` that say something about new rows; all others are those of the fit.
ABOUT_NEW_ROWS = {
    *("train", "test", "target", "output", "id_column", "model", "html", "figure"),
    *("alpha", "safe_cells", "device", *READING),
}


class Notes(NamedTuple):
    """What the command must know of a model besides its numbers; plain data."""

    target: str | None = None  # name of the column
    unit: float = 1.0
    drop: tuple[str, ...] = ()
    reading: Mapping[str, Any] = {}


def save_model(
    model: LazyJackknifeRegressor, path: Path, unit: float, roles: Roles, reading: Reading
) -> None:
    """Write a model, and what the command must know of it."""
    kept = tuple(name for name in (*roles.drop, roles.id_column) if name is not None)
    model.command_ = Notes(roles.target, unit, kept, asdict(reading))._asdict()
    model.save(path)


def check_stored(context: typer.Context, path: Path, test: Path | None) -> None:
    """Refuse what a saved model cannot use, and a missing file, before anything is loaded."""
    if test is not None:
        raise ValueError(f"{test}: with --model, give the file of new rows alone")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file: give one that lazyknife fit has written")
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in ABOUT_NEW_ROWS and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{flag(name)} with --model: pass it to lazyknife fit instead")


def predict_stored(
    path: Path,
    new: Path,
    levels: Sequence[float],
    target: str | None,
    id_column: str | None,
    given: Mapping[str, Any],
) -> Outcome:
    """Predict the rows of a file by a saved model; no levels are the model's own."""
    from ..estimators.lazy import LazyJackknifeRegressor
    from .tables import Roles

    model = LazyJackknifeRegressor.load(path, map_location=given["device"])
    notes = Notes(**getattr(model, "command_", {}))
    if not model.reader_.encodes:
        raise ValueError(f"{path} was fitted on an array, whose columns have no names: fit a frame")
    reading = replace(reading_of(given), **_kept(notes, given))
    check_inputs((new,), reading, Roles(target, id_column))
    known = notes._replace(target=target or notes.target)
    frame, remarks = _read(new, model, known, id_column, reading)
    features = frame[list(model.feature_names_in_)]
    asked = list(levels) or [model.alpha]
    found = model.predict_interval(features, alpha=asked if len(asked) > 1 else asked[0])
    about = _about(model, frame, known.target, id_column, new.name)
    certificates = tuple(model.certify(alpha=level) for level in asked)
    whole = replace(about, notes=(*remarks, *about.notes))
    shift, n = model.check_exchangeable(features), len(model.loo_.residuals)
    return Outcome(whole, in_unit(found, known.unit), certificates, n, shift, known.target or "y")


def _read(
    new: Path,
    model: LazyJackknifeRegressor,
    notes: Notes,
    id_column: str | None,
    reading: Reading,
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the new rows, with text where the model has categories, and what was guessed."""
    from .tables import Roles, open_file, read_tables
    from .tables.names import check_known

    schema = model.reader_.schema
    assert schema is not None  # as the reader encodes
    file = open_file(new, reading)
    for column in schema.columns:
        check_known(str(column.name), file.columns, new.name)
    codes = tuple(str(column.name) for column in schema.columns if column.nominal)
    raw = file.frame(texts=codes)
    unused = set(file.columns) - {str(c.name) for c in schema.columns} - {notes.target, id_column}
    extra = sorted(unused - set(notes.drop))
    empty = {str(name) for name in raw.columns if raw[name].isna().all()}
    apart = tuple(sorted((unused | empty) - {id_column}))
    tables = read_tables((new,), reading, Roles(notes.target, id_column, apart, codes))
    ignored = tuple(f"{new.name}: column {name!r} is not used by the model." for name in extra)
    for note in (*tables.notes, *ignored):
        say(f"note: {note}")
    return tables.frames[0], (*tables.notes, *ignored)


def _kept(notes: Notes, given: Mapping[str, Any]) -> dict[str, Any]:
    """How the training file was read, where the options say nothing else."""
    kept = {name: notes.reading.get(name) for name in READING if given[name] is None}
    return {name: tuple(value) if name == "na" and value else value for name, value in kept.items()}


def _about(
    model: LazyJackknifeRegressor,
    frame: pd.DataFrame,
    target: str | None,
    id_column: str | None,
    file: str,
) -> About:
    """Return what the report says of the new rows."""
    from .tables.rows import About, new_target

    truth, remarks = (None, []) if target is None else new_target(frame, target, file)
    ids = None if id_column is None else frame[id_column].reset_index(drop=True)
    features = len(model.feature_names_in_)
    return About(model.n_samples_fit_, features, truth, ids, tuple(remarks))


def in_unit(found: Intervals, unit: float) -> Intervals:
    """Return intervals in the target's own unit."""
    ends = {name: unit * getattr(found, name) for name in ("point", "lower", "upper")}
    return replace(found, **ends)
