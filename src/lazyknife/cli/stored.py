"""Models in files: what ``lazyknife fit`` saves and ``lazyknife predict --model`` predicts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from .console import say
from .inputs import check_inputs, reading_of
from .options import READING
from .values import flag

if TYPE_CHECKING:
    from ..estimators.lazy import LazyJackknifeRegressor
    from .newrows import NewRows
    from .tables import Reading, Roles
    from .tables.files import File

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


@dataclass(frozen=True)
class Stored:
    """A saved model, and the rows that it is to predict."""

    model: LazyJackknifeRegressor
    notes: Notes
    rows: NewRows
    levels: tuple[float, ...]


def open_stored(
    path: Path,
    new: Path,
    levels: Sequence[float],
    target: str | None,
    id_column: str | None,
    given: Mapping[str, Any],
    block_bytes: int | None = None,
) -> Stored:
    """Load a model and look through the file of new rows; no levels are the model's own.

    ``block_bytes`` is how much of the file is in memory at a time.
    """
    from ..estimators.lazy import LazyJackknifeRegressor
    from .tables import Roles, open_file
    from .tables.blocks import BLOCK_BYTES

    model = LazyJackknifeRegressor.load(path, map_location=given["device"])
    notes = Notes(**getattr(model, "command_", {}))
    if not model.reader_.encodes:
        raise ValueError(f"{path} was fitted on an array, whose columns have no names: fit a frame")
    reading = replace(reading_of(given), **_kept(notes, given))
    check_inputs((new,), reading, Roles(target, id_column))
    file = open_file(new, reading, block_bytes=block_bytes or BLOCK_BYTES)
    known = notes._replace(target=target or notes.target)
    rows = _looked_through(file, model, known, id_column)
    return Stored(model, known, rows, tuple(levels) or (model.alpha,))


def _looked_through(
    file: File, model: LazyJackknifeRegressor, notes: Notes, id_column: str | None
) -> NewRows:
    """Look through the new rows, and say what was guessed and what is not used."""
    from .newrows import look_through
    from .tables import Roles
    from .tables.names import check_known

    schema, name = model.reader_.schema, file.path.name
    assert schema is not None  # as the reader encodes
    features = tuple(str(column.name) for column in schema.columns)
    if id_column in features:
        raise ValueError(
            f"{name}: column {id_column!r} is a feature of the model: give another column as --id"
        )
    for column in features:
        check_known(column, file.columns, name)
    codes = tuple(str(column.name) for column in schema.columns if column.nominal)
    unused = set(file.columns) - {*features, notes.target, id_column}
    roles = Roles(notes.target, id_column, tuple(sorted(unused)), codes, optional=True)
    rows = look_through(file, file.reading, roles, features)
    extra = sorted(unused - set(notes.drop))
    ignored = tuple(f"{name}: column {column!r} is not used by the model." for column in extra)
    for note in (*rows.notes, *ignored):
        say(f"note: {note}")
    return replace(rows, notes=(*rows.notes, *ignored))


def _kept(notes: Notes, given: Mapping[str, Any]) -> dict[str, Any]:
    """How the training file was read, where the options say nothing else."""
    kept = {name: notes.reading.get(name) for name in READING if given[name] is None}
    return {name: tuple(value) if name == "na" and value else value for name, value in kept.items()}
