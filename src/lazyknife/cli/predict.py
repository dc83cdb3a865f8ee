"""``lazyknife predict``: intervals for new rows, from the rows of a file or from a saved model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import counted, in_figures, listed, quoted_list
from ..sentences import BOTH_FILES, MARGINAL, POOL_ROWS, POOLED
from . import options as opt
from .console import plainly, print_table, print_text, say, say_notes
from .fit import KINDS, Fitted, fit_model, in_words, load_model
from .options import FILES, option
from .output import Append, check_outputs, origin, spooled, write_outputs
from .read_table import STANDARD, Formats, Source, open_source, typed_rows

if TYPE_CHECKING:
    import pandas as pd

    from ..certificate import Certificate
    from ..report.joint import Joint
    from ..report.outcome import Outcome, Sample
    from ..results import Distribution, Intervals
    from .rows import Rows

NOUNS = {"boxes": ("box", "boxes"), "sets": ("set",)}
PRINTED = 20  # rows on the terminal
MOST_ROWS, MOST_NUMBERS = 2**15, 2**21  # that are predicted at a time
ROWS = f"Training rows, or new rows for --model: {KINDS}."
OUTPUT = "File for the intervals (- is standard output); without it and --html they are printed."
ROW = 'New row such as "a=1, b=2" (may be repeated), instead of TEST.'
MODEL = "Model that lazyknife fit has saved, instead of training rows."
# Options that say something about new rows; all others are those of the fit.
ABOUT_NEW_ROWS = {
    *("train", "test", "row", "target", "output", "id_column", "model"),
    *("alpha", "device", "verbose", *opt.PAGES, *opt.READING, *opt.QUESTIONS),
}


@plainly
@opt.with_options(
    *(opt.DATA, opt.GROUPED, opt.PAGES, opt.READING, opt.QUESTIONS, opt.SETTINGS, opt.BASES)
)
def predict(
    context: typer.Context,
    train: Annotated[Path | None, typer.Argument(help=ROWS, metavar="TRAIN")] = None,
    test: Annotated[
        Path | None, typer.Argument(help="New rows, with the same columns.", metavar="TEST")
    ] = None,
    target: Annotated[list[str] | None, option(opt.TARGETS, FILES, metavar="COLUMN")] = None,
    output: Annotated[Path | None, option(OUTPUT, FILES, "--output", "-o")] = None,
    row: Annotated[list[str] | None, option(ROW, FILES, "--row", "-r", metavar="ROW")] = None,
    id_column: opt.Id = None,
    model: Annotated[Path | None, option(MODEL, FILES, "--model", "-m")] = None,
    **given: Any,
) -> None:
    """Predict an interval for every row of TEST, learned from the rows of TRAIN.

    With --model the intervals are those of a saved model, for the rows of the one file given. They
    are printed unless --output or --html is given.

    By default, the network, λ and the scales of features are chosen so that nothing leaks: by every
    leave-one-out model on its own rows or, above 1,000 rows, on a part of them that is never left
    out. One network (--hidden) has features that are standardised over the rows of both files
    together, which does not leak; the certificate then holds for the rows of TEST.
    """
    check_outputs(output, given["html"], given["figure"], [p for p in (train, test, model) if p])
    opt.settings_of(given)  # refuses wrong values before anything is read
    quantiles, formats = opt.quantiles_of(given), opt.formats_of(given)
    roles = opt.roles_of(target or (), id_column, given)
    if model is not None:
        _check_model(context, model, test)
        fitted = load_model(model, lambda found: _new_rows(train, row, found), roles, given)
    else:
        if train is None:
            raise ValueError("TRAIN is missing: give TRAIN, TEST and --target, or NEW and --model")
        if not target:
            columns = quoted_list(open_source(train, formats).columns, most=20)
            raise ValueError(
                f"--target is missing: give one of {columns}, or a --model for {train}"
            )
        if test is not None and train.exists() and test.exists() and train.samefile(test):
            raise ValueError(f"{test}: TRAIN and TEST are the same file: give new rows as TEST")
        if train == test == STANDARD:
            raise ValueError("TRAIN and TEST are both -: give one of them as a file")
        fitted = fit_model(train, _new_rows(test, row, formats), roles, formats, given)
    with spooled(output) as (append, move):
        levels = opt.levels_of(given) if given["alpha"] else [fitted.model.alpha]
        terms = {"side": given["side"], "weights": given["weights"]}
        outcome = predict_rows(fitted, levels, quantiles, terms, append)
        _write(context, outcome, f"{model or train} → {fitted.file}", move)
    _print(context.params, outcome)


def _check_model(context: typer.Context, path: Path, test: Path | None) -> None:
    """Refuse what a saved model cannot use, and a missing file, before anything is loaded."""
    if test is not None:
        raise ValueError(f"{test}: with --model, give the file of new rows alone")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file: give one that lazyknife fit has written")
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in ABOUT_NEW_ROWS and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{opt.flag(name)} with --model: pass it to lazyknife fit instead")


def _new_rows(path: Path | None, rows: Sequence[str] | None, formats: Formats) -> Source:
    """Return the rows to predict, of a file or typed."""
    if rows and path is None:
        return typed_rows(rows)
    if rows or path is None:
        raise ValueError("give the file of new rows, or --row, one of the two")
    return open_source(path, formats)


def predict_rows(
    fitted: Fitted,
    levels: Sequence[float],
    quantiles: Sequence[float],
    terms: Mapping[str, Any],
    append: Append,
) -> Outcome:
    """Predict all rows, part by part; ``append`` takes tables of their intervals, in order."""
    from ..report.joint import joint_of
    from ..report.outcome import Outcome, Sample

    model, notes, sample = fitted.model, dict.fromkeys(fitted.notes), Sample(len(levels))
    size = max(1, min(MOST_ROWS, MOST_NUMBERS // len(model.feature_names_in_)))
    groups, unit, targets = (fitted.known[name] for name in ("groups", "unit", "targets"))
    about = {"groups": groups or None, "weights": terms["weights"]}
    certificates: list[Certificate] = []
    found: Any
    for rows in fitted.parts:
        say_notes(note for note in rows.notes if note not in notes)
        notes |= dict.fromkeys(rows.notes)
        if terms["weights"] and sample.count:
            raise ValueError(
                f"--weights {terms['weights']} compares all new rows at once: give at most "
                f"{sample.count:,}, or fit and predict in one command"
            )
        for start in range(0, len(rows.X), step := len(rows.X) if terms["weights"] else size):
            part = rows[start : start + step]
            if fitted.kind != "intervals":
                found = joint_of(model, part.X, part.y, levels, targets)
                certificates = [model.certify(alpha=level) for level in levels]
            else:
                asked = list(levels) if len(levels) > 1 else levels[0]
                found = model.predict_interval(part.X, asked, side=terms["side"], **about)
                every = found.certificate if len(levels) > 1 else [found.certificate]
                pairs = zip(certificates or every, every, strict=True)
                # Groups differ from part to part.
                certificates = [min(pair, key=lambda one: one.coverage or 0.0) for pair in pairs]
                found = in_unit(found, unit)
            if quantiles:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # they have been said
                    spread = model.predict_distribution(part.X, **about)
                part = with_quantiles(part, spread, quantiles, unit, sample)
            append(table_of(found, part.ids, part.quantiles))
            sample.add(found, part)
    if not sample.count:
        raise ValueError("the file has no rows: give one with a header and rows")
    if fitted.pooled_with:
        certificates = [_for_both_files(one, fitted.pooled_with) for one in certificates]
    shift = model.check_exchangeable(sample.rows.X)
    words = (targets, list(notes), groups, bool(terms["weights"]))
    return Outcome(sample, certificates, shift, model, *words)


def with_quantiles(
    rows: Rows, found: Distribution, levels: Sequence[float], unit: float, sample: Sample
) -> Rows:
    """Return rows with their quantiles, whose scores are added to those of the sample."""
    import numpy as np
    import pandas as pd

    names = [f"q{level!r}" for level in levels]
    values = unit * found.quantile(levels)
    if unit != 1:  # rounded outwards, as intervals are
        values += 2 * np.finfo(np.float64).eps * np.sign(np.array(levels) - 0.5) * np.abs(values)
    if rows.y is not None:
        pairs = zip(names, values.T, strict=True)
        scores = {"CRPS": unit * found.crps(rows.y / unit)}
        scores |= {f"share of y up to {name}": rows.y <= each for name, each in pairs}
        sample.score({name: float(each.sum()) for name, each in scores.items()})
    return replace(rows, quantiles=pd.DataFrame(values, columns=names))


def _for_both_files(certificate: Certificate, file: str) -> Certificate:
    """Return a certificate that is restricted to the new file."""
    others = [one for one in certificate.assumptions if one != POOLED]
    rows = certificate.rows.replace(POOL_ROWS, f"the rows of {file}, and no others")
    assumptions = (*others, BOTH_FILES)
    return replace(certificate, rows=rows, scope=f"{rows}; {MARGINAL}", assumptions=assumptions)


def in_unit(found: Intervals, unit: float) -> Intervals:
    """Return intervals in the target's own unit, rounded outwards: y ÷ unit was rounded, too."""
    import numpy as np

    if unit == 1:
        return found
    point, lower, upper = (unit * part for part in (found.point, found.lower, found.upper))
    more = 2 * np.finfo(np.float64).eps
    lower, upper = lower - more * np.abs(lower), upper + more * np.abs(upper)
    return replace(found, point=point, lower=lower, upper=upper)


def table_of(
    found: Intervals | Joint, ids: pd.Series | None, quantiles: pd.DataFrame | None
) -> pd.DataFrame:
    """Return the table of an output: names of rows, if there are any, and their intervals."""
    from ..report.outcome import frame_of

    frame = frame_of(found, quantiles)
    if ids is not None:
        name = f"{ids.name} of the row" if ids.name in frame else str(ids.name)
        frame.insert(0, name, ids.to_numpy())
    return frame


def _write(context: typer.Context, outcome: Outcome, inputs: str, move: Any) -> None:
    """Write what was asked for, once everything has been computed."""
    from ..report.outcome import draw, make_report
    from ..report.page import render

    paths, page = context.params, ""
    drawings = draw(outcome) if paths["figure"] or paths["html"] else {}
    if paths["html"]:
        page = render(make_report(outcome, drawings, inputs, origin(context)))
    write_outputs(paths, move, next(iter(drawings.values()), None), page)


def _print(paths: Mapping[str, Any], outcome: Outcome) -> None:
    """Print the results; on stderr where the intervals themselves are on stdout."""
    import pandas as pd

    sample, file = outcome.sample, sys.stderr if paths["output"] == STANDARD else sys.stdout
    written = [str(paths[name]) for name in ("output", "html", "figure") if paths[name]]
    if not paths["output"] and not paths["html"]:
        ids = sample.rows.ids
        ids = pd.Series(sample.places + 1, name="row") if ids is None else ids
        frame = table_of(sample.intervals, ids, sample.rows.quantiles)[:PRINTED]
        shown = (
            [each if isinstance(each, str) else in_figures(each) for each in others]
            for _, *others in frame.itertuples(index=False)
        )
        lines = [(name, *cells) for name, cells in zip(frame.iloc[:, 0], shown, strict=True)]
        print_table("", list(map(str, frame.columns)), lines)
        more = sample.count - len(frame)
        print_text(f"… and {more:,} more rows: give --output for all.\n" if more else "")
    print_table("", ("", ""), outcome.measured(), file=file)
    if groups := outcome.by_group():
        print_table("", groups[0], groups[1:], file=file)
    print_text(f"\n{in_words(outcome.certificates)}", file)
    if written and file is sys.stdout:
        what = counted(sample.count, *NOUNS.get(sample.intervals.side, ("interval",)))
        print_text(f"\nWrote {what} to {listed(written)}.")
    for warning in outcome.doubts():
        say(f"warning: {warning}")
