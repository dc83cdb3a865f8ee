"""What the modules of this package share: options, suffixes, optional packages."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import TableError, quoted_list

SUFFIX_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}  # of text files
SUFFIXES = (*SUFFIX_SEPARATORS, ".parquet")


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
