"""A guarantee in plain words: what to expect of the intervals, before any theorem."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .report import Verdict

if TYPE_CHECKING:
    from ..certificate import Certificate

TITLE = "What to expect"
LIKE = (
    "This holds for new rows that come from the same source as the training rows, on average over "
    "many of them: it is not a promise for one row or one kind of row."
)


def percent(share: float, digits: int = 3) -> str:
    """Return a share in percent, with a space at which lines do not break.

    >>> percent(0.9), percent(0.999)
    ('90\\xa0%', '99.9\\xa0%')
    """
    return f"{100 * share:.{digits}g}\N{NO-BREAK SPACE}%"


def expectation(alpha: float, certificate: Certificate, unlike: bool = False) -> str:
    """Return what to expect of intervals of this level, in a sentence or two."""
    aim, certified = percent(1 - alpha), certificate.coverage
    if not certified:
        return f"The intervals aim at {aim} of new values, but no coverage is guaranteed."
    if certified == 1.0:
        return "The intervals are infinite: there are too few training rows for this level."
    about = f"{aim} or more" if certified >= 1 - alpha else f"about {aim}"
    least = f"at least {percent(math.floor(100 * certified) / 100)}"
    if unlike:
        return (
            f"For rows like the training rows the intervals contain {about} of the values, "
            f"guaranteed {least}. These new rows do not look like them, so expect less."
        )
    return (
        f"Expect {about} of new values inside their intervals; guaranteed: {least}, whatever the "
        "distribution."
    )


def verdict(
    alpha: float, certificate: Certificate, unlike: bool, covered: tuple[float, int] | None
) -> Verdict:
    """Return what a page says first.

    ``unlike`` says that new rows differ from the training rows, ``covered`` which share of how many
    new rows with a known value is covered.
    """
    details = []
    if covered is not None:
        share, count = covered
        details.append(
            f"Measured: {percent(share)} of the {count:,} new rows, whose values are known, lie "
            "inside."
        )
    tone = "doubtful" if unlike else "certified"
    if not certificate.coverage:
        tone = "warning"
    elif not unlike:
        details.append(LIKE)
    return Verdict(TITLE, expectation(alpha, certificate, unlike), tuple(details), tone)
