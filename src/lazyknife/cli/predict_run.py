"""What ``lazyknife predict`` does: read both files, fit, predict, write and print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..sentences import BOTH_FILES, MARGINAL, POOLED
from .console import print_table, print_text, say
from .files import settings_of, write_outputs
from .outcome import Outcome, measured, shortfalls

if TYPE_CHECKING:
    from ..certificate import Certificate
    from .tables import Encoded

OWN_COLUMNS = r"point|(lower|upper)(_.*)?"  # of the output
FEWEST_ROWS = 3  # a leave-one-out model with an intercept and a λ of its own


def read_rows(
    train: Path,
    test: Path,
    target: str,
    drop: Sequence[str],
    categorical: Sequence[str],
    id_column: str | None,
) -> Encoded:
    """Read both files into arrays."""
    from .tables import encode, read_tables

    old, new = read_tables((train, test), apart=(target, id_column))
    if train.samefile(test):
        raise ValueError(f"{test}: TRAIN and TEST are the same file: give new rows as TEST")
    if id_column is not None and re.fullmatch(OWN_COLUMNS, id_column):
        raise ValueError(f"--id {id_column}: the output has a column of this name: rename yours")
    names = {"train_name": train.name, "test_name": test.name}
    rows = encode(
        old, new, target, drop=drop, categorical=categorical, id_column=id_column, **names
    )
    if len(rows.y) < FEWEST_ROWS:
        raise ValueError(f"{train}: {len(rows.y)} rows are too few: give at least {FEWEST_ROWS}")
    return rows


def fit_and_predict(
    rows: Encoded,
    levels: Sequence[float],
    unit: float,
    test_name: str,
    settings: dict[str, Any],
) -> Outcome:
    """Fit, predict, and adapt the certificate of each level to the new file."""
    import pandas

    from ..estimators.lazy import LazyJackknifeRegressor

    # With their names, so that messages can name a column.
    X, X_new = (pandas.DataFrame(part, columns=rows.columns) for part in (rows.X, rows.X_new))
    model = LazyJackknifeRegressor(**settings)
    model.fit(X, rows.y / unit, X_pool=X_new)
    found = model.predict_interval(X_new, alpha=levels if len(levels) > 1 else None)
    ends = {name: unit * getattr(found, name) for name in ("point", "lower", "upper")}
    certificates = [model.certificate_, *(model.certify(alpha=level) for level in levels[1:])]
    if rows.fitted or model.scaling_.pool is not None:
        # Medians, categories or scales come from the rows of both files together.
        certificates = [_for_both_files(one, test_name) for one in certificates]
    return Outcome(rows, replace(found, **ends), tuple(certificates), len(model.loo_.residuals))


def _for_both_files(certificate: Certificate, test_name: str) -> Certificate:
    """Return a certificate that is restricted to the new file."""
    others = [one for one in certificate.assumptions if one != POOLED]
    return replace(
        certificate,
        scope=f"the rows of {test_name}, and no others; {MARGINAL}",
        assumptions=(*others, BOTH_FILES),
    )


def write_results(context: typer.Context, outcome: Outcome, inputs: str) -> None:
    """Write what was asked for, once everything has been computed, and print the results."""
    from .predict_page import draw, make_report

    paths = context.params
    frame = outcome.intervals.to_frame()
    if outcome.rows.ids is not None:
        frame.insert(0, str(outcome.rows.ids.name), outcome.rows.ids)
    drawings = draw(outcome) if paths["figure"] or paths["html"] else {}
    page = make_report(outcome, drawings, settings_of(context), inputs) if paths["html"] else None
    write_outputs(paths, frame, next(iter(drawings.values()), None), page)
    print_table("", ("", ""), measured(outcome))
    print_text(f"\n{_in_words(outcome.certificates)}\n")
    print_text(f"Wrote {len(frame)} intervals to {paths['output']}.")
    for warning in shortfalls(outcome):
        say(f"warning: {warning}")


def _in_words(certificates: Sequence[Certificate]) -> str:
    """Return one certificate in full (the first that certifies anything), one line of the others.

    All levels have the same scope and assumptions.
    """
    whole = next((one for one in certificates if one.coverage), certificates[0])
    lines = [f"{one}\n" if one is whole else str(one).splitlines()[0] for one in certificates]
    return "\n".join(lines).rstrip()
