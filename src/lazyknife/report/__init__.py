"""HTML reports: a page of the intervals of new rows, with what to expect of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..files import check_writable, replacing

if TYPE_CHECKING:
    from ..results import Intervals
    from ..shift import Shift

PAGES = (".html", ".htm")


@dataclass(frozen=True)
class NewRows:
    """What a report says of new rows beside their intervals."""

    y: Any  # target, shape (rows,); None where rows lack it
    ids: Any = None  # names of the rows, a series of pandas
    X: Any = None
    quantiles: Any = None

    def __getitem__(self, places: Any) -> NewRows:
        y = None if self.y is None else self.y[places]
        return replace(self, y=y, ids=None if self.ids is None else self.ids.iloc[places])


class NotCompared(NamedTuple):
    """Rows that are not compared with the training rows."""

    clear: bool = False
    finding: str = ""


def page_of(
    found: Intervals,
    y: Any = None,
    path: str | Path | None = None,
    model: Any = None,
    shift: Shift | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of some intervals, and write it if a path is given.

    With the model it says more: sizes, a check on training rows, doubts, and settings.
    """
    from ..data.rows import finite_numbers
    from .page import render, versions_of

    if path is not None:
        check_writable(Path(path), PAGES)
    if not len(found) or found.certificate is None:
        raise ValueError("a report takes at least one row, and intervals with a certificate")
    every = found.certificate if isinstance(found.certificate, tuple) else (found.certificate,)
    try:
        from .outcome import Outcome, Sample, draw, make_report
    except ImportError as error:
        raise ImportError("an HTML report needs pandas: pip install 'lazyknife[cli]'") from error
    arrays, sample = replace(found.with_arrays(), backend=None), Sample(len(every))
    ids = None if found.index is None else found.index.to_series()
    truth = None if y is None else finite_numbers(y, "y")
    sample.add(replace(arrays, index=None), NewRows(truth, ids))
    outcome = Outcome(sample, every, shift or NotCompared(), model, [found.name_of(y)], ())
    origin = {"settings": dict(settings or {}), "command": "", "versions": versions_of()}
    page = render(make_report(outcome, draw(outcome), f"{len(found):,} new rows", origin))
    if path is not None:
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, "utf-8", "replace")
    return page
