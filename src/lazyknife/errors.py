"""Messages: errors about tables, warnings that point at the user's line, numbers in words.

Importing this module loads no other package, so that the command answers quickly.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence

# What a terminal obeys, also to write backwards, and halves of characters; but not line breaks.
_CONTROL = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Packages that may lie between the user's line and a warning.
BETWEEN = (__package__, "sklearn", "joblib", "torch")
UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package and those that call it."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None:
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        if package not in BETWEEN:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class TableError(ValueError):
    """A problem with a user's table: one line that names the column and says how to fix it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names keep their runs of spaces


def column_error(table: str, column: object, message: str) -> TableError:
    """An error about a column of a table."""
    return TableError(f"{table}: column {quoted(column)} {message}")


def one_line(message: object) -> str:
    """Return a message without line breaks, which names of files and columns may contain."""
    return " ".join(str(message).split())


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


def listed(names: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return "1 value" or "2 values"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def bytes_in_words(count: float) -> str:
    """Return a number of bytes with two digits.

    >>> bytes_in_words(640e6), bytes_in_words(2.34e9), bytes_in_words(10)
    ('640 MB', '2.3 GB', '0 MB')
    """
    unit = next((unit for unit, size in UNITS.items() if count >= size), "MB")
    return f"{float(f'{count / UNITS[unit]:.2g}'):g} {unit}" if count >= 5e5 else "0 MB"


def in_figures(value: float, digits: int = 4) -> str:
    """Return four figures, without an exponent where that is short: 28,120."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"
