"""What all of the tables' modules share: the one error, the suffixes, the optional packages."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}  # the files of text
SUFFIXES = (*SEPARATORS, ".parquet")


class TableError(ValueError):
    """Something is wrong with a user's file: one line that names it and says the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(message: str) -> str:
    """Return the message without line breaks, which file and column names may have."""
    return " ".join(message.splitlines())


def quoted(name: object) -> str:
    """Return a column's name or a value between quotation marks, shortened if it is long."""
    text = str(name)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def counted(number: int, thing: str) -> str:
    """Return "1 thing" or "2 things"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def option(flag: str, name: object) -> str:
    """Return an option of the command line as it is written in a shell."""
    return f"{flag} {shlex.quote(str(name))}"


def quoted_list(names: Sequence[object], most: int) -> str:
    """Return the first ``most`` names, and how many more there are."""
    shown = ", ".join(map(quoted, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def suffix_of(path: Path) -> str:
    """Return the known suffix of a file's name, whatever its case."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path}: unknown kind of file: use one of {', '.join(SUFFIXES)}")


def check_unique(columns: Iterable[object], name: str) -> None:
    """Refuse names that several columns of a file share."""
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise TableError(
            f"{name}: several columns are called {quoted_list(twice, 5)}: give each its own name"
        )


def load(module: str) -> Any:
    """Import an optional package, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"tables need {module}: pip install 'lazyknife[cli]'") from error
