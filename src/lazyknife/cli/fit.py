"""``lazyknife fit``, and models for ``lazyknife predict``: fitted to a file, or loaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..memory import NotEnoughMemory, free_bytes
from . import options as opt
from .console import plainly, print_table, print_text, say_notes
from .options import FILES, option
from .read_table import Formats, Source, open_source
from .rows import (
    Roles,
    Rows,
    check_has,
    check_known,
    check_names,
    group_columns,
    read_batches,
    read_training,
)

if TYPE_CHECKING:
    from ..certificate import Certificate
    from ..estimators.lazy import LazyJackknifeRegressor

KINDS = ".csv, .csv.gz, .tsv, .parquet or .xlsx; - is standard input"
COPIES = 3  # of a file in memory: as it is read, as columns, and as numbers
MIB = 2**20
LAYOUT = ("sep", "encoding", "sheet")  # formats that decide which columns a file has
# What the command knows of a model that was saved in Python: target and its unit, names of rows,
# columns that are no features, how files are written.
UNKNOWN: dict[str, Any] = {
    **{"target": None, "unit": 1.0, "id": None, "unused": [], "formats": {}, "groups": []}
}


@plainly
@opt.with_options(opt.DATA, opt.GROUPED, opt.READING, opt.SETTINGS, opt.BASES)
def fit(
    train: Annotated[Path, typer.Argument(help=f"Training rows: {KINDS}.", metavar="TRAIN")],
    target: opt.Target,
    model: Annotated[Path, option("File for the model (.lk).", FILES, "--model", "-m")],
    id_column: opt.Id = None,
    **given: Any,
) -> None:
    """Learn from the rows of TRAIN and save the model, for lazyknife predict NEW --model.

    Nothing is learned from the rows to predict, so the certificate holds for any new row. One
    network (--hidden) has the features as they are: --scaling standardize would have to be learned
    from TRAIN alone, which leaks.
    """
    from ..files import check_writable

    check_writable(model, (".lk",))
    opt.settings_of(given)  # refuses wrong values before anything is read
    roles = opt.roles_of(target, id_column, given)
    fitted = fit_model(train, None, roles, opt.formats_of(given), given)
    fitted.model.command_ = fitted.known
    fitted.model.save(model)
    columns = len(fitted.model.feature_names_in_)
    sizes = [("training rows", fitted.model.n_samples_fit_), ("features", columns)]
    print_table("", ("", ""), sizes)
    certificates = [fitted.model.certify(alpha=level) for level in opt.levels_of(given)]
    print_text(f"\n{in_words(certificates)}\n")
    print_text(f"Wrote the model to {model} ({model.stat().st_size / MIB:.1f} MiB).")


@dataclass(frozen=True)
class Fitted:
    """A model, the rows that it is to predict, in parts, and what the command knows of them."""

    model: LazyJackknifeRegressor
    known: dict[str, Any]  # of the training rows, with the keys of UNKNOWN
    notes: list[str]
    parts: Iterable[Rows]
    pooled_with: str = ""  # the file of new rows, if anything was learned from it


def fit_model(
    train: Path, new: Source | None, roles: Roles, formats: Formats, given: Mapping[str, Any]
) -> Fitted:
    """Read training rows and, where they are known, new rows, and fit a model."""
    layers, source = opt.layers_of(given), open_source(train, formats)
    check_names(source, new, roles)
    _check_memory([source] if new is None else [source, new])
    rows, new_rows = read_training(source, new, roles, formats)
    groups = group_columns(given["groups"], list(rows.X), source.name)
    say_notes(rows.notes)

    from ..data.encoder import TableEncoder
    from ..estimators.lazy import LazyJackknifeRegressor
    from ..networks import mlp
    from ..shift import ShiftWarning

    model = LazyJackknifeRegressor(
        network=None if layers is None else mlp(layers, skip=given["skip"]),
        base=opt.make_base(given),
        encoding=TableEncoder(categorical=roles.categorical) if roles.categorical else None,
        **opt.settings_of(given, new is not None),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)  # the outcome says it
        pool = None if new_rows is None or roles.clusters else new_rows.X
        y = rows.y / given["unit"]
        model.fit(rows.X, y, X_pool=pool, groups=groups or None, clusters=rows.clusters)
    # Medians, categories or scales may come from the rows of both files together.
    pooled_with = "" if new is None or model.scaling_.pool is None else new.name
    known = {
        "target": str(roles.target),
        "unit": given["unit"],
        "id": None if rows.ids is None else str(rows.ids.name),
        "unused": [name for name in source.columns if name not in rows.X],
        "formats": asdict(rows.formats),
        "groups": groups,
    }
    return Fitted(model, known, rows.notes, [] if new_rows is None else [new_rows], pooled_with)


def load_model(
    path: Path,
    new: Source,
    roles: Roles,
    reopen: Callable[[Formats], Source],
    given: Mapping[str, Any],
) -> Fitted:
    """Load a model for new rows, which are read as its training rows were."""
    formats = opt.formats_of(given)
    for name in filter(None, (roles.target, roles.id_column)):
        check_known(name, new.columns, new.name)

    from ..estimators.lazy import LazyJackknifeRegressor

    model = LazyJackknifeRegressor.load(path, map_location=given["device"])
    schema, known = model.reader_.schema, UNKNOWN | getattr(model, "command_", {})
    if schema is None:
        raise ValueError(f"{path} was fitted on an array, whose columns have no names: fit a frame")
    asked = {name: value for name, value in asdict(formats).items() if value}
    merged = Formats(**known["formats"] | asked)
    if any(getattr(merged, name) != getattr(formats, name) for name in LAYOUT):
        new = reopen(merged)
    features = [str(column.name) for column in schema.columns]
    if roles.id_column in features:
        message = f"column {roles.id_column!r} is a feature of the model: give another as --id"
        raise ValueError(f"{new.name}: {message}")
    check_has(features, new.columns, new.name)
    target, id_column = roles.target or known["target"], roles.id_column
    if id_column is None and known["id"] in new.columns:
        id_column = known["id"]
    unused = set(new.columns) - {*features, target, id_column, *known["unused"]}
    notes = [f"{new.name}: column {name!r} is not used by the model." for name in sorted(unused)]
    say_notes([*new.notes, *notes])
    texts = [str(column.name) for column in schema.columns if column.nominal]
    parts = read_batches(new, features, texts, Roles(target, id_column), merged)
    return Fitted(model, known | {"target": target or "y"}, [*new.notes, *notes], parts)


def _check_memory(sources: Sequence[Source]) -> None:
    """Refuse files that do not fit in memory, before they are read."""
    needed, free = COPIES * sum(source.size for source in sources), free_bytes()
    if needed > free:
        files = " and ".join(source.name for source in sources)
        raise NotEnoughMemory(
            f"{files} need about {needed:,} bytes of memory, but {free:,} are free: give fewer "
            "rows (a random part of them), or columns; lazyknife fit and predict --model read new "
            "rows in batches"
        )


def in_words(certificates: Sequence[Certificate]) -> str:
    """Return one certificate in full (the first that certifies anything), one line of the others.

    All levels have the same scope and assumptions.
    """
    whole = next((one for one in certificates if one.coverage), certificates[0])
    lines = [f"{one.details}\n" if one is whole else one.headline for one in certificates]
    return "\n".join(lines).rstrip()
