"""How intervals print: a line of numbers about all of them, and the first rows."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..records import Array, to_array
from ..sentences import rounded_down

if TYPE_CHECKING:
    from ..certificate import Certificate
    from .intervals import Intervals

SHOWN = 5  # rows


def text(result: Intervals) -> str:
    """Return a short table in plain text."""
    names, rows = table(result)
    cells = [names, *rows]
    sizes = [max(len(row[k]) for row in cells) for k in range(len(names))]
    lines = [
        "  ".join(cell.rjust(size) for cell, size in zip(row, sizes, strict=True)) for row in cells
    ]
    return "\n".join([headline(result), *lines, *rest(result)])


def html(result: Intervals) -> str:
    """Return the same table in HTML."""
    names, rows = table(result)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    notes = "".join(f"<div>{line}</div>" for line in rest(result))
    return (
        f"<div>{escape(headline(result))}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
    )


def headline(result: Intervals) -> str:
    """Return the number of rows, the levels, mean widths and what is guaranteed."""
    count = len(result)
    noun = "interval" if count == 1 else "intervals"
    parts = [f"{count:,} {noun}: alpha = {listed(result.alpha, repr)}"]
    if count:
        means = np.atleast_1d(to_array(result.width).mean(axis=0))
        parts.append(f"mean width {listed(tuple(means), number)}")
    if result.certificate is not None:
        parts.append(f"guaranteed coverage {listed(result.certificate, guaranteed)}")
    return ", ".join(parts)


def table(result: Intervals) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the cells of the first rows."""
    first = result[:SHOWN]
    named = columns(first)
    labels = range(len(first)) if first.index is None else first.index
    cells = zip(*named.values(), strict=True)
    rows = [[str(a), *map(number, row)] for a, row in zip(labels, cells, strict=True)]
    return ["", *named], rows


def columns(result: Intervals) -> dict[str, Array]:
    """Return the numbers as columns of shape (m,), by the names that they have in a frame."""
    arrays = result.with_arrays()
    ends = {"lower": arrays.lower, "upper": arrays.upper, "width": arrays.width}
    if not isinstance(arrays.alpha, tuple):
        return {"point": arrays.point, **ends}
    return {"point": arrays.point} | {
        f"{name}_{float(alpha)!r}": values[:, k]  # digits that tell any two levels apart
        for k, alpha in enumerate(arrays.alpha)
        for name, values in ends.items()
    }


def rest(result: Intervals) -> list[str]:
    """Return a line on the rows that are not shown, if there are any."""
    more = len(result) - SHOWN
    return [f"… and {more:,} more {'row' if more == 1 else 'rows'}"] if more > 0 else []


def guaranteed(certificate: Certificate) -> str:
    """Return the certified coverage, or that there is none."""
    return rounded_down(certificate.coverage) if certificate.coverage else "none"


def number(value: float) -> str:
    """Return five significant digits."""
    return f"{value:.5g}"


def listed(values: Any, shown: Callable[[Any], str]) -> str:
    """Return one value, or a tuple of them separated by commas."""
    return ", ".join(map(shown, values if isinstance(values, tuple) else (values,)))
