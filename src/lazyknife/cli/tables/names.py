"""The columns that the user names, checked against the headers of the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import TableError, quoted, quoted_list


@dataclass(frozen=True)
class Roles:
    """The columns that are not plain features."""

    target: str | None = None  # may be missing in new rows: its type is decided for each file
    id_column: str | None = None  # names of rows, kept as they are written
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()  # text, whatever it looks like
    optional: bool = False  # whether features may have no values

    @property
    def apart(self) -> set[str]:
        """The columns that are not features."""
        return {name for name in (self.target, self.id_column, *self.drop) if name is not None}


@dataclass(frozen=True)
class Header:
    """The name of a file, and the names of its columns."""

    file: str
    columns: tuple[str, ...]


def check_known(name: str, columns: Iterable[object], files: str) -> None:
    """Refuse a name that no column has, and suggest the closest."""
    names = list(columns)
    if name in names:
        return
    folded = {str(column).strip().casefold(): column for column in names}
    closest = get_close_matches(name.strip().casefold(), folded, n=1)
    hint = f"the columns are {quoted_list(names)}"
    if closest:
        hint = f"did you mean {quoted(folded[closest[0]])}?"
    raise TableError(f"{files}: no column {quoted(name)}: {hint}")


def check_names(old: Header, new: Header | None, roles: Roles) -> None:
    """Refuse names that no column has, the target in other roles, and columns of one file only."""
    headers = [old] if new is None else [old, new]
    either = list(dict.fromkeys(name for header in headers for name in header.columns))
    if roles.target is not None:
        check_known(roles.target, old.columns, old.file)
    files = " and ".join(header.file for header in headers)
    ids = [] if roles.id_column is None else [roles.id_column]
    for flag, names, columns, where in (
        ("--drop", roles.drop, either, files),
        ("--categorical", roles.categorical, old.columns, old.file),
        ("--id", ids, headers[-1].columns, headers[-1].file),
    ):
        for name in names:
            check_known(name, columns, where)
        if roles.target in names:
            column = f"column {quoted(roles.target)}"
            raise TableError(f"{old.file}: {column} is the target: remove it from {flag}")
    for name in roles.categorical:
        if name in roles.apart:
            raise TableError(
                f"{old.file}: column {quoted(name)} is not a feature: remove it from --categorical"
            )
    if new is not None:
        _check_same(old, new, roles.apart)


def _check_same(old: Header, new: Header, apart: Iterable[str]) -> None:
    """Refuse features that only one file has."""
    for here, there in ((old, new), (new, old)):
        known: Sequence[str] = (*there.columns, *apart)
        extra = [name for name in here.columns if name not in known]
        if extra:
            raise TableError(
                f"{there.file}: no column {quoted_list(extra)}, which {here.file} has: add what "
                "is missing, or pass --drop for each"
            )
