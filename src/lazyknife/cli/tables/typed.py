"""Files as frames whose columns have types, the same in all files and decided on all together.

A text file does not say what type a column has. Which type it is, how numbers and dates are
written and which texts are missing values is decided by the rows of all files as one pool, so it
does not matter in which file a row is; a guess is noted, and what is open is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .days import convert_dates
from .files import File, open_file
from .names import Roles
from .numbers import Numbers, as_numbers, convert, decimal_mark, style_of
from .pools import Pool, kind_of
from .reading import Reading
from .same import same_types
from .written import Written, notes_of

if TYPE_CHECKING:
    import pandas as pd

PLAIN = Written()  # as pandas reads it


@dataclass(frozen=True)
class Tables:
    """Frames with typed columns, and what was guessed."""

    frames: tuple[pd.DataFrame, ...]  # one for each file, with a default index
    notes: tuple[str, ...]  # one sentence each
    written: Mapping[str, Written]  # how each column is written


def read_tables(
    paths: Sequence[Path], reading: Reading | None = None, roles: Roles | None = None
) -> Tables:
    """Read files into frames whose columns are numbers, booleans, dates or text in all of them."""
    return type_files([open_file(path, reading) for path in paths], reading, roles)


def type_files(
    files: Sequence[File],
    reading: Reading | None = None,
    roles: Roles | None = None,
    known: Mapping[str, Written] | None = None,
) -> Tables:
    """Read open files; ``known`` is how other rows of the same columns are written."""
    reading, roles = reading or Reading(), roles or Roles()
    frames = [_read(file, roles) for file in files]
    pools = list(_pools(files, frames, roles))
    _read_mixed_as_text(files, frames, pools)
    pools = list(_pools(files, frames, roles))
    notes = [note for file in files if file.text for note in file.text.notes]
    written = _convert(files, frames, pools, reading, known or {})
    notes += notes_of(written)
    columns: dict[str, Written] = {}
    for pool in _pools(files, frames, roles, with_text=roles.categorical):
        may_be_empty = roles.optional or pool.name == roles.target
        notes += same_types(pool, pool.name in roles.categorical, may_be_empty)
        columns[pool.name] = _as_typed(pool, written.get(pool.name, PLAIN))
    return Tables(tuple(frames), tuple(dict.fromkeys(notes)), columns)


def _as_typed(pool: Pool, written: Written) -> Written:
    """Return how a column is written, with its final type; plain numbers have no unit."""
    kind = next((kind for kind in pool.kinds_now if kind != "empty"), "empty")
    unit = "" if kind == "number" and written.unit is None else written.unit
    return replace(written, kind=kind, unit=unit)


def _read(file: File, roles: Roles) -> Any:
    """Return the columns of a file that have a role or are features."""
    raw = () if roles.id_column is None else (roles.id_column,)
    only = [name for name in file.columns if name not in roles.drop]
    return file.frame(roles.categorical, raw, only if roles.drop else ())


def _pools(
    files: Sequence[File], frames: Sequence[Any], roles: Roles, with_text: Collection[str] = ()
) -> Iterator[Pool]:
    """Yield every column of features in all files that have it, and every target on its own."""
    known = {roles.id_column, *roles.drop} | (set(roles.categorical) - set(with_text))
    for name in dict.fromkeys(name for frame in frames for name in frame.columns):
        if name in known:
            continue
        places = [place for place, frame in enumerate(frames) if name in frame.columns]
        groups = [[place] for place in places] if name == roles.target else [places]
        for group in groups:
            yield Pool(
                name,
                tuple(frames[place] for place in group),
                tuple(files[place].path.name for place in group),
                tuple(files[place].text is None for place in group),
            )


def _read_mixed_as_text(
    files: Sequence[File], frames: Sequence[Any], pools: Sequence[Pool]
) -> None:
    """Read columns again that look like numbers or booleans in one file and otherwise in another.

    They are text in both, then: "01" stays "01".
    """
    mixed = {pool.name for pool in pools if _is_mixed(pool)}
    _read_again(files, frames, mixed)


def _is_mixed(pool: Pool) -> bool:
    found = set(pool.kinds) - {"empty"}
    of_text = {
        kind for kind, parquet in zip(pool.kinds, pool.declared, strict=True) if not parquet
    } - {"empty"}
    return len(found) > 1 and bool(of_text & {"number", "boolean"}) and found != {"number", "date"}


def _read_again(files: Sequence[File], frames: Sequence[Any], names: set[str]) -> None:
    """Read columns of the text files as text, in place."""
    for file, frame in zip(files, frames, strict=True):
        here = [name for name in frame.columns if name in names]
        if here and file.text is not None:
            again = file.frame(texts=here, only=here, trusted=True)
            for name in here:
                frame[name] = again[name]


def _convert(
    files: Sequence[File],
    frames: Sequence[Any],
    pools: Sequence[Pool],
    reading: Reading,
    known: Mapping[str, Written],
) -> dict[str, Written]:
    """Turn texts into numbers or dates, in place, where all of them are; return how."""
    written, columns = {}, []
    for pool in pools:
        if "text" not in pool.kinds:
            continue
        dates = convert_dates(pool, reading, known.get(pool.name, PLAIN).order)
        if dates is not None:
            written[pool.name] = dates
            continue
        found = as_numbers(pool, reading.marks)
        if found is not None:
            _check_not_declared(pool)
            columns.append(found)
    columns += _doubtful_floats(files, frames, pools, columns, reading)
    decimal = decimal_mark(columns, reading)
    for column in columns:
        style = style_of(column, decimal, reading.thousands)
        written[column.pool.name] = convert(column, style)
    return {pool.name: written[pool.name] for pool in pools if pool.name in written}


def _check_not_declared(pool: Pool) -> None:
    """Refuse text of a Parquet file that is numbers: the file says that it is text."""
    for place, (kind, parquet) in enumerate(zip(pool.kinds, pool.declared, strict=True)):
        if kind == "text" and parquet:
            way_out = f"convert them, or pass --categorical {pool.name} if they are codes"
            raise pool.error(f"contains numbers that are stored as text: {way_out}", place)


def _doubtful_floats(
    files: Sequence[File],
    frames: Sequence[Any],
    pools: Sequence[Pool],
    columns: Sequence[Numbers],
    reading: Reading,
) -> list[Numbers]:
    """Return columns that pandas read as numbers, whose points may stand between thousands.

    They may where decimals have commas, as given or in some column, and where semicolons separate
    the fields, as they do in countries with decimal commas.
    """
    commas = any("," in number.digits for column in columns for number in column.numerals)
    semicolons = any(file.text is not None and file.text.separator == ";" for file in files)
    if reading.decimal == "." or not (commas or semicolons or reading.decimal or reading.thousands):
        return []
    floats = [pool for pool in pools if _has_floats(pool)]
    _read_again(files, frames, {pool.name for pool in floats})
    again = [Pool(pool.name, pool.frames, pool.files, pool.declared) for pool in floats]
    return [_all_numbers(pool, reading) for pool in again if "text" in pool.kinds]


def _all_numbers(pool: Pool, reading: Reading) -> Numbers:
    found = as_numbers(pool, reading.marks)
    if found is None:  # what only pandas takes for a number, such as "inf"
        raise pool.odd_one((), "number")
    return found


def _has_floats(pool: Pool) -> bool:
    """Whether a text file has decimals in the column."""
    return any(
        not parquet and kind_of(frame[pool.name]) == "number" and frame[pool.name].dtype.kind == "f"
        for frame, parquet in zip(pool.frames, pool.declared, strict=True)
    )
