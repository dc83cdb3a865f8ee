"""What the modules of this package share: the error, the suffixes, the optional packages."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

SUFFIX_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}  # of text files
SUFFIXES = (*SUFFIX_SEPARATORS, ".parquet")


class TableError(ValueError):
    """A problem with a user's file: one line that names the file and says how to fix it."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(message: str) -> str:
    """Return the message without line breaks, which file and column names may contain."""
    return " ".join(message.splitlines())


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


def option(flag: str, name: object) -> str:
    """Return an option of the command line as it is typed in a shell."""
    return f"{flag} {shlex.quote(str(name))}"


def suffix_of(path: Path) -> str:
    """Return the known suffix of a file's name, in lower case."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path}: unknown file type: use one of {', '.join(SUFFIXES)}")


def check_unique(columns: Iterable[object], name: str) -> None:
    """Refuse duplicated column names."""
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise TableError(f"{name}: several columns are named {quoted_list(twice)}: rename them")


def load(module: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"tables need {module}: pip install 'lazyknife[cli]'") from error
