"""Words of messages about tables; importing them loads no other package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

# What a terminal obeys, also to write backwards, and halves of characters; but not line breaks.
_CONTROL = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class TableError(ValueError):
    """A problem with a user's table: one line that names the column and says how to fix it."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(message: str) -> str:
    """Return the message without line breaks, which names of files and columns may contain."""
    return " ".join(message.splitlines())


def visible(text: str) -> str:
    r"""Return the text with control characters spelled out.

    >>> print(visible("\x1b[31mred"))
    \x1b[31mred
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def quoted(name: object) -> str:
    """Return a column's name or a value in quotation marks, shortened if it is long."""
    text = str(name)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def quoted_list(names: Sequence[object], most: int = 5) -> str:
    """Return the first ``most`` names, and how many more there are."""
    shown = ", ".join(map(quoted, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return "1 value" or "2 values"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def column_error(table: str, column: object, message: str) -> TableError:
    """An error about a column of a table."""
    return TableError(f"{table}: column {quoted(column)} {message}")


def encoder_setting(parameter: str, column: object) -> str:
    """How a column is declared: the command spells it as its own option."""
    return f"encoding=TableEncoder({parameter}=[{column!r}])"


def label_of(value: Any) -> str:
    """The name of a category: the same for a code, whether it is an integer or a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))  # no float: large integers stay different
    return str(int(float(value))) if float(value).is_integer() else str(value)


UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}
TIMES = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def bytes_in_words(count: float) -> str:
    """Return a number of bytes with two digits.

    >>> bytes_in_words(640e6), bytes_in_words(15e9), bytes_in_words(10)
    ('640 MB', '15 GB', '0 MB')
    """
    unit = next((unit for unit, size in UNITS.items() if count >= size), "MB")
    return f"{float(f'{count / UNITS[unit]:.2g}'):g} {unit}" if count >= 5e5 else "0 MB"


def time_in_words(seconds: float) -> str:
    """Return a time with two digits.

    >>> time_in_words(4.4), time_in_words(150), time_in_words(86400)
    ('4.4 seconds', '2.5 minutes', '24 hours')
    """
    unit = next((unit for unit, size in TIMES.items() if seconds >= 2 * size), "seconds")
    return f"{float(f'{seconds / TIMES[unit]:.2g}'):g} {unit}"
