"""Files that a command reads: checked before anything is loaded, then read with their notes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import say

if TYPE_CHECKING:
    import pandas as pd

    from .tables import Reading, Roles
    from .tables.files import File

OWN_COLUMNS = r"point|(lower|upper|width)(_.*)?"  # of the output


def reading_of(given: Mapping[str, Any]) -> Reading:
    """Return how text files are read, by the options."""
    from .options import READING
    from .tables import Reading

    options = {name: given[name] for name in READING}
    return Reading(**options | {"na": tuple(given["na"]) if given["na"] else None})


def roles_of(target: str, given: Mapping[str, Any], id_column: str | None = None) -> Roles:
    """Return the columns that the options name."""
    from .tables import Roles

    drop = tuple(name for name in given["drop"] or () if name != id_column)  # no feature anyway
    return Roles(target, id_column, drop, tuple(given["categorical"] or ()))


def check_inputs(paths: Sequence[Path], reading: Reading, roles: Roles) -> list[File]:
    """Refuse files that cannot be read and columns that they lack, by their first lines alone."""
    from .tables import Header, check_names, open_file

    files = [open_file(path, reading, whole=False) for path in paths]
    headers = [Header(file.path.name, file.columns) for file in files]
    if len(paths) > 1 and paths[0].samefile(paths[1]):
        raise ValueError(f"{paths[1]}: TRAIN and TEST are the same file: give new rows as TEST")
    name = roles.id_column
    if name is not None and re.fullmatch(OWN_COLUMNS, name):
        raise ValueError(f"--id {name}: the output has a column of this name: rename yours")
    check_names(headers[0], headers[1] if len(headers) > 1 else None, roles)
    return files


def read_inputs(
    paths: Sequence[Path], reading: Reading, roles: Roles
) -> tuple[list[pd.DataFrame], tuple[str, ...]]:
    """Return the frames of the files, training rows without a target left out, and all notes."""
    from .tables import read_tables, with_target

    tables = read_tables(paths, reading, roles)
    frames = list(tables.frames)
    frames[0], left_out = with_target(frames[0], str(roles.target), paths[0].name)
    notes = (*tables.notes, *left_out)
    for note in notes:
        say(f"note: {note}")
    return frames, notes
