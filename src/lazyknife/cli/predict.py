"""``lazyknife predict``: intervals for the rows of one file from the rows of another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..sentences import BOTH_FILES, MARGINAL, POOLED
from . import options as opt
from . import values
from .console import plainly, print_table, print_text, say, show_progress
from .files import check_outputs, formulas_in, origin, spooled, write_outputs, writing
from .inputs import check_inputs, read_inputs, reading_of, roles_of
from .options import FILES, LAZY, LIBRARY, RUN, option
from .outcome import Outcome, doubts, draw, make_report, measured
from .sizes import check_sizes, say_batches
from .stored import Stored, check_stored, open_stored
from .totals import totals_of
from .words import expectation

if TYPE_CHECKING:
    from ..certificate import Certificate
    from .tables import Reading, Roles
    from .tables.rows import Rows

FEWEST_ROWS = 3  # a leave-one-out model with an intercept and a λ of its own

ROWS = "Training rows: .csv, .csv.gz, .tsv or .parquet; with --model, the new rows."
MODEL = "Model that lazyknife fit has saved, instead of training rows."
NEW = "New rows, with the same columns."
OUTPUT = "File for the intervals; may be left out with --html."
ID = "Column of row names, copied to the output."
LEVEL = "Level: intervals aim at a coverage of 1 − alpha (may be repeated); by default {alpha}."
MOVED = "Parameters that are fitted: all (the default), last, or name patterns (may be repeated)."
MEMORY = "Memory for temporary blocks, such as 4GB; by default a quarter of what is free."
HIDDEN = (
    "Widths of the hidden layers of one network, such as 64,64. By default each model chooses its "
    "network, or they are 64,64 where the other options require a network of finite width."
)
OWN = opt.table(
    LAZY,
    alpha=(list[float] | None, None, LEVEL.format(**LIBRARY), "NUMBER"),
    hidden=(str | None, None, HIDDEN, "WIDTHS"),
    skip=(bool, True, "Add a linear function of the features to the network of --hidden."),
    parameters=(list[str] | None, None, MOVED, "NAMES"),
    sketch=(int | None, None, "Number of random features, for very many rows."),
) | opt.table(RUN, memory_budget=(str | None, None, MEMORY, "SIZE"))

QUOTE = "Put an apostrophe before texts of the output that a spreadsheet would run (=, +, -, @)."
SAFE = opt.table(FILES, safe_cells=(bool, False, QUOTE))


@plainly
@opt.with_options(opt.DATA, SAFE, opt.READING, opt.TARGET, OWN, opt.SEED, opt.SETTINGS, opt.BASES)
def predict(
    context: typer.Context,
    train: Annotated[Path, typer.Argument(help=ROWS, metavar="TRAIN")],
    test: Annotated[Path | None, typer.Argument(help=NEW, metavar="TEST")] = None,
    target: opt.OptionalTarget = None,
    output: Annotated[Path | None, option(OUTPUT, FILES, "--output", "-o")] = None,
    id_column: Annotated[str | None, option(ID, FILES, "--id", metavar="COLUMN")] = None,
    model: Annotated[Path | None, option(MODEL, FILES, "--model", "-m")] = None,
    **given: Any,
) -> None:
    """Write a prediction interval for every row of TEST, learned from the rows of TRAIN.

    With --model, write intervals for the rows of the one file given, by a saved model.

    By default, every leave-one-out model chooses its network and scales the features by its own
    rows. One network (--hidden, another base or loss, more than 5,000 rows) has features that are
    standardised over the rows of both files together, which does not leak; the certificate then
    holds for the rows of TEST.
    """
    if output is None and given["html"] is None:
        raise ValueError("give --output, --html or both: there is no file for the intervals")
    inputs = tuple(path for path in (train, test, model) if path is not None)
    check_outputs(output, given["html"], given["figure"], inputs=inputs)
    if model is not None:
        check_stored(context, model, test)
        say_batches(train)
        stored = open_stored(model, train, given["alpha"] or (), target, id_column, given)
        _predict_stored(context, stored, f"{model} → {train}")
        return
    if test is None or target is None:
        missing = "the file of new rows" if test is None else "--target"
        raise ValueError(f"{missing} is missing: give TRAIN, TEST and --target, or NEW and --model")
    reading, roles = reading_of(given), roles_of(target, given, id_column)
    check_sizes(check_inputs((train, test), reading, roles), given)
    levels = levels_of(given["alpha"])
    settings = settings_of(given) | {"alpha": levels[0]}
    rows = _read(train, test, reading, roles)

    from .batches import table_of

    outcome = _fit_and_predict(rows, levels, given["unit"], target, test.name, settings)
    table = table_of(outcome.intervals, outcome.rows.ids)
    _write(context, outcome, f"{train} → {test}", writing(table, context.params))
    _print(context.params, outcome)


def levels_of(given: Sequence[float] | None) -> list[float]:
    """Return the levels of the options, each once."""
    from ..data.checks import check_fraction

    levels = [check_fraction("alpha", level) for level in given or [LIBRARY["alpha"]]]
    return list(dict.fromkeys(levels))


def settings_of(given: Mapping[str, Any], pooled: bool = True) -> dict[str, Any]:
    """Return the settings of the estimator that the options describe.

    ``pooled`` says that the rows to predict are known: scales of features can be learned then.
    """
    from ..networks import mlp
    from ..tangent import Sketch

    hidden = given["hidden"] and values.parse_hidden(given["hidden"])
    network = None if hidden is None else mlp(hidden, skip=given["skip"])
    scaling = given["scaling"] or ("standardize" if network and pooled else "auto")
    return {name: given[name] for name in opt.SETTINGS} | {
        "network": network,
        "features": None if given["sketch"] is None else Sketch(given["sketch"]),
        "base": values.make_base(given),
        "ridge": values.parse_ridge(given["ridge"]),
        "parameters": values.parse_parameters(given["parameters"]),
        "scaling": values.make_scaling(scaling),
        **values.make_target(given),
        "feature_weights": None if given["feature_weights"] == "none" else given["feature_weights"],
        "memory_budget": values.parse_bytes(given["memory_budget"]),
        "random_state": given["seed"],
        "verbose": show_progress(),
    }


def _read(train: Path, test: Path, reading: Reading, roles: Roles) -> Rows:
    """Read both files, and say what was guessed and done."""
    from .tables.rows import split_rows

    (old, new), notes = read_inputs((train, test), reading, roles)
    rows = split_rows(old, new, roles, (train.name, test.name))
    if len(rows.y) < FEWEST_ROWS:
        raise ValueError(f"{train}: {len(rows.y)} rows are too few: give at least {FEWEST_ROWS}")
    for note in rows.about.notes:
        say(f"note: {note}")
    return replace(rows, about=replace(rows.about, notes=(*notes, *rows.about.notes)))


def _fit_and_predict(
    rows: Rows,
    levels: Sequence[float],
    unit: float,
    target: str,
    test_name: str,
    settings: dict[str, Any],
) -> Outcome:
    """Fit, predict, and adapt the certificate of each level to the new file."""
    from ..estimators.lazy import LazyJackknifeRegressor
    from ..shift import ShiftWarning
    from .batches import in_unit

    model = LazyJackknifeRegressor(encoding=rows.encoding, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)  # the outcome says it
        model.fit(rows.X, rows.y / unit, X_pool=rows.X_new)
    found = model.predict_interval(rows.X_new, alpha=levels if len(levels) > 1 else None)
    certificates = [model.certificate_, *(model.certify(alpha=level) for level in levels[1:])]
    if model.scaling_.pool is not None:
        # Medians, categories or scales come from the rows of both files together.
        certificates = [_for_both_files(one, test_name) for one in certificates]
    shift = model.check_exchangeable(rows.X_new)
    ends, n = in_unit(found, unit), len(model.loo_.residuals)
    totals, names = totals_of(ends, rows.about.y_new), formulas_in(rows.about.ids)
    return Outcome(rows.about, ends, totals, tuple(certificates), n, shift, target, formulas=names)


def _for_both_files(certificate: Certificate, test_name: str) -> Certificate:
    """Return a certificate that is restricted to the new file."""
    others = [one for one in certificate.assumptions if one != POOLED]
    scope = f"the rows of {test_name}, and no others; {MARGINAL}"
    return replace(certificate, scope=scope, assumptions=(*others, BOTH_FILES))


def _predict_stored(context: typer.Context, stored: Stored, inputs: str) -> None:
    """Predict the rows of a file by a saved model, group by group, and write what was asked for."""
    from .batches import predict_stored

    with spooled(context.params) as (append, move):
        outcome = predict_stored(stored, append)
        _write(context, outcome, inputs, move)
    _print(context.params, outcome)


def _write(
    context: typer.Context, outcome: Outcome, inputs: str, table: Callable[[Path], object]
) -> None:
    """Write what was asked for, once everything has been computed."""
    paths = context.params
    drawings = draw(outcome) if paths["figure"] or paths["html"] else {}
    page = None
    if paths["html"]:
        page = make_report(outcome, drawings, inputs, origin(context), paths["safe_cells"])
    write_outputs(paths, table, next(iter(drawings.values()), None), page)


def _print(paths: Mapping[str, Any], outcome: Outcome) -> None:
    """Print the results."""
    print_table("", ("", ""), measured(outcome))
    level = float(outcome.levels[0].alpha)  # type: ignore[arg-type]  # one level
    print_text(f"\n{expectation(level, outcome.certificates[0], outcome.shift.clear)}")
    print_text(f"\n{in_words(outcome.certificates)}\n")
    print_text(f"Wrote {outcome.totals.rows} intervals to {paths['output'] or paths['html']}.")
    if outcome.formulas and not paths["safe_cells"]:
        assert outcome.rows.ids is not None
        column = f"values of {outcome.rows.ids.name!r} look like formulas to a spreadsheet"
        say(f"note: {outcome.formulas} {column}: pass --safe-cells to quote them.")
    for warning in doubts(outcome):
        say(f"warning: {warning}")


def in_words(certificates: Sequence[Certificate]) -> str:
    """Return one certificate in full (the first that certifies anything), one line of the others.

    All levels have the same scope and assumptions.
    """
    whole = next((one for one in certificates if one.coverage), certificates[0])
    lines = [f"{one}\n" if one is whole else str(one).splitlines()[0] for one in certificates]
    return "\n".join(lines).rstrip()
