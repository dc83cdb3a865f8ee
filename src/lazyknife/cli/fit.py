"""``lazyknife fit``: a model of the rows of a file, saved for ``lazyknife predict --model``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as opt
from .console import plainly, print_table, print_text, say
from .inputs import check_inputs, read_inputs, reading_of, roles_of
from .options import FILES, option
from .predict import FEWEST_ROWS, ID, OWN, in_words, levels_of, settings_of
from .sizes import check_sizes
from .stored import SUFFIXES, save_model

if TYPE_CHECKING:
    import pandas as pd

    from ..estimators.lazy import LazyJackknifeRegressor
    from .tables import Roles

ROWS = "Training rows: .csv, .csv.gz, .tsv or .parquet."
MODEL = "File for the model (.lk)."
MIB = 2**20
DATA = {name: of for name, of in opt.DATA.items() if name not in ("html", "figure")}


@plainly
@opt.with_options(DATA, opt.READING, opt.TARGET, OWN, opt.SEED, opt.SETTINGS, opt.BASES)
def fit(
    context: typer.Context,
    train: Annotated[Path, typer.Argument(help=ROWS, metavar="TRAIN")],
    target: opt.Target,
    model: Annotated[Path, option(MODEL, FILES, "--model", "-m")],
    id_column: Annotated[str | None, option(ID, FILES, "--id", metavar="COLUMN")] = None,
    **given: Any,
) -> None:
    """Learn from the rows of TRAIN and save the model, for lazyknife predict NEW --model.

    Nothing is learned from the rows to predict, so the certificate holds for any new row. One
    network (--hidden) has the features as they are: --scaling standardize would have to be learned
    from TRAIN alone, which leaks.
    """
    from ..files import check_writable

    check_writable(model, SUFFIXES)
    reading, roles = reading_of(given), roles_of(target, given, id_column)
    check_sizes(check_inputs((train,), reading, roles), given)
    levels = levels_of(given["alpha"])
    (frame,), _ = read_inputs((train,), reading, roles)
    settings = settings_of(given, pooled=False) | {"alpha": levels[0]}
    fitted = _fitted(frame, roles, given["unit"], train.name, settings)
    save_model(fitted, model, given["unit"], roles, reading)
    print_table("", ("", ""), _measured(fitted))
    print_text(f"\n{in_words([fitted.certify(alpha=level) for level in levels])}\n")
    print_text(f"Wrote the model to {model} ({model.stat().st_size / MIB:.1f} MiB).")


def _fitted(
    frame: pd.DataFrame, roles: Roles, unit: float, file: str, settings: dict[str, Any]
) -> LazyJackknifeRegressor:
    """Return a model of the rows that have a target."""
    from ..estimators.lazy import LazyJackknifeRegressor
    from .tables.rows import split_rows

    rows = split_rows(frame, None, roles, (file, file))
    if len(rows.y) < FEWEST_ROWS:
        raise ValueError(f"{file}: {len(rows.y)} rows are too few: give at least {FEWEST_ROWS}")
    for note in rows.about.notes:
        say(f"note: {note}")
    return LazyJackknifeRegressor(**settings, encoding=rows.encoding).fit(rows.X, rows.y / unit)


def _measured(model: LazyJackknifeRegressor) -> list[tuple[str, str]]:
    columns = len(model.feature_names_in_)
    return [("training rows", f"{model.n_samples_fit_}"), ("features", f"{columns}")]
