"""``lazyknife fit``, and models for ``lazyknife predict``: fitted to a file, or loaded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import quoted_list
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
    named,
    read_batches,
    read_training,
)

if TYPE_CHECKING:
    from ..certificate import Certificate

KINDS = ".csv, .csv.gz, .tsv, .parquet or .xlsx; - is standard input"
COPIES = 3  # of a file in memory: as it is read, as columns, and as numbers
MIB = 2**20
# What the command knows of a model that was saved in Python: targets and their unit, names of rows,
# columns that are no features, how files are written.
UNKNOWN: dict[str, Any] = {
    **{"targets": [], "unit": 1.0, "id": None, "unused": [], "formats": {}, "groups": []}
}


@plainly
@opt.with_options(opt.DATA, opt.GROUPED, opt.READING, opt.SETTINGS, opt.BASES)
def fit(
    train: Annotated[Path, typer.Argument(help=f"Training rows: {KINDS}.", metavar="TRAIN")],
    target: Annotated[list[str], option(opt.TARGETS, FILES, **opt.COLUMN)],
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

    model: Any  # a regressor or a classifier
    kind: str  # what it predicts: "intervals", "boxes" or "sets"
    known: dict[str, Any]  # of the training rows, with the keys of UNKNOWN
    notes: list[str]
    file: str = ""  # of new rows
    parts: Iterable[Rows] = ()
    pooled_with: str = ""  # the file of new rows, if anything was learned from it


def fit_model(
    train: Path, new: Source | None, roles: Roles, formats: Formats, given: Mapping[str, Any]
) -> Fitted:
    """Read training rows and, where they are known, new rows, and fit a model."""
    source, sources = open_source(train, formats), [] if new is None else [new]
    roles = roles._replace(targets=named(roles.targets, source.columns)).with_classes()
    check_names(source, new, roles)
    _check_memory([source, *sources])
    rows, new_rows = read_training(source, new, roles, formats)
    groups = named([given["groups"]] if given["groups"] else [], list(rows.X))
    for name in groups:
        check_known(name, list(rows.X), f"--groups, among the features of {source.name}")
    say_notes(rows.notes)
    kind = "sets" if rows.classes else "boxes" if len(roles.targets) > 1 else "intervals"
    opt.refuse_joint(kind, given)

    from ..data.encoder import TableEncoder
    from ..estimators.classifier import LazyJackknifeClassifier
    from ..estimators.lazy import LazyJackknifeRegressor
    from ..shift import ShiftWarning

    model: Any
    settings = opt.settings_of(given, new is not None)
    if roles.categorical:
        settings["encoding"] = TableEncoder(categorical=roles.categorical)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)  # the outcome says it
        if kind == "sets":
            own = settings.keys() & LazyJackknifeClassifier().get_params(deep=False).keys()
            own -= {"construction"} if settings["construction"] == "auto" else set()
            model = LazyJackknifeClassifier(**{name: settings[name] for name in own})
            model.fit(rows.X, rows.y)
        else:
            settings |= {"network": opt.network_of(given), "base": opt.make_base(given)}
            model = LazyJackknifeRegressor(**settings)
            pool = None if new_rows is None or roles.clusters else new_rows.X
            terms = {"groups": list(groups) or None, "clusters": rows.clusters}
            model.fit(rows.X, rows.y / given["unit"], X_pool=pool, **terms)
    known = {
        "targets": list(roles.targets),
        "unit": given["unit"],
        "id": None if rows.ids is None else str(rows.ids.name),
        "unused": [name for name in source.columns if name not in rows.X],
        "formats": asdict(rows.formats),
        "groups": list(groups),
    }
    found = Fitted(model, kind, known, rows.notes)
    if new is None:
        return found
    # Medians, categories or scales may come from the rows of both files together.
    pooled_with = "" if model.scaling_.pool is None else new.name
    return replace(found, file=new.name, parts=filter(None, [new_rows]), pooled_with=pooled_with)


def load_model(
    path: Path, opened: Callable[[Formats], Source], roles: Roles, given: Mapping[str, Any]
) -> Fitted:
    """Load a model for new rows, which are read as its training rows were."""
    from ..estimators.classifier import LazyJackknifeClassifier
    from ..estimators.lazy import LazyJackknifeRegressor
    from ..intervals.outputs import OutputModels

    model: Any
    try:
        model = LazyJackknifeRegressor.load(path, map_location=given["device"])
    except ValueError as error:
        if "holds a LazyJackknifeClassifier" not in str(error):
            raise
        model = LazyJackknifeClassifier.load(path, map_location=given["device"])
    several = "boxes" if isinstance(model.loo_, OutputModels) else "intervals"
    kind = "sets" if isinstance(model, LazyJackknifeClassifier) else several
    opt.refuse_joint(kind, given)
    schema, known = model.reader_.schema, UNKNOWN | getattr(model, "command_", {})
    if schema is None:
        raise ValueError(f"{path} was fitted on an array, whose columns have no names: fit a frame")
    asked = {name: value for name, value in asdict(opt.formats_of(given)).items() if value}
    formats = Formats(**known["formats"] | asked)
    new = opened(formats)
    roles = roles._replace(targets=named(roles.targets, new.columns))
    for name in filter(None, (*roles.targets, roles.id_column)):
        check_known(name, new.columns, new.name)
    features = [str(column.name) for column in schema.columns]
    if roles.id_column in features:
        message = f"column {roles.id_column!r} is a feature of the model: give another as --id"
        raise ValueError(f"{new.name}: {message}")
    check_has(features, new.columns, new.name)
    targets, id_column = roles.targets or tuple(known["targets"]), roles.id_column
    count = len(model.loo_.columns) if kind == "boxes" else 1
    if targets and (len(targets) != count or (count > 1 and {*known["targets"]} - {*targets})):
        shown = quoted_list(known["targets"]) if known["targets"] else f"{count} columns"
        raise ValueError(f"--target: {path} predicts {shown}: give the same, or leave it out")
    if count > 1:  # in the order of the fit
        targets = tuple(known["targets"]) or targets or tuple(f"y{k}" for k in range(count))
    if id_column is None and known["id"] in new.columns:
        id_column = known["id"]
    unused = set(new.columns) - {*features, *targets, id_column, *known["unused"]}
    notes = [f"{new.name}: column {name!r} is not used by the model." for name in sorted(unused)]
    say_notes(notes := [*new.notes, *notes])
    texts = [str(column.name) for column in schema.columns if column.nominal]
    roles = Roles(targets, id_column, classes=kind == "sets")
    known["targets"] = targets or ("y",)
    parts = read_batches(new, features, texts, roles, formats)
    return Fitted(model, kind, known, notes, new.name, parts)


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

    All levels have the same scope and assumptions. Settings are spelled as options.
    """
    whole = next((one for one in certificates if one.coverage), certificates[0])
    lines = [f"{one.details}\n" if one is whole else one.headline for one in certificates]
    text = "\n".join(lines).rstrip()
    return re.sub(r"\b([a-z_]+)='([^']+)'", lambda one: f"{opt.flag(one[1])} {one[2]}", text)
