"""One type for a column in all files, and rows that have a target."""

from __future__ import annotations

from typing import Any

from ...errors import TableError, counted, quoted
from .formats import load, option
from .pools import Pool, kind_of
from .written import NAMES


def same_types(pool: Pool, as_text: bool, may_be_empty: bool) -> list[str]:
    """Give a column the same type in all files, in place; return notes, refuse what differs."""
    found = set(pool.kinds) - {"empty"}
    if not found:
        return [] if may_be_empty else _refuse_empty(pool)
    if as_text or found in ({"text", "category"}, {"category"}):
        for frame in pool.frames:
            frame[pool.name] = as_labels(frame[pool.name])
    elif found <= {"number", "boolean"}:
        _same_numbers(pool)
    elif found == {"date"}:
        for frame in pool.frames:
            frame[pool.name] = as_moments(frame[pool.name])
    elif len(found) > 1:
        raise _different(pool, found)
    return [] if may_be_empty else _empty_notes(pool)


def _refuse_empty(pool: Pool) -> list[str]:
    raise pool.error(f"has no values: pass {option('--drop', pool.name)}")


def _empty_notes(pool: Pool) -> list[str]:
    """Return a note for each file that has no values of the column."""
    return [
        f"{file}: column {quoted(pool.name)} has no values; all its rows count as missing."
        for file, frame in zip(pool.files, pool.frames, strict=True)
        if kind_of(frame[pool.name]) == "empty"
    ]


def _different(pool: Pool, found: set[str]) -> TableError:
    different = " in one file and ".join(NAMES.get(kind, kind) for kind in sorted(found))
    ways = f"pass {option('--categorical', pool.name)} or {option('--drop', pool.name)}"
    files = " and ".join(dict.fromkeys(pool.files))
    message = f"column {quoted(pool.name)} contains {different} in the other"
    return TableError(f"{files}: {message}: use one type, or {ways}")


def _same_numbers(pool: Pool) -> None:
    """Turn booleans with gaps, decimals and numbers of different types into plain types."""
    types = {str(frame[pool.name].dtype) for frame in pool.frames}
    if len(types) == 1 and "object" not in types:
        return
    of = "boolean" if set(pool.kinds) <= {"boolean", "empty"} else "float64"
    for frame in pool.frames:
        frame[pool.name] = frame[pool.name].astype(of)


def as_moments(column: Any) -> Any:
    """Return dates and date-times as ``datetime64``, in UTC without a zone."""
    pandas = load("pandas")
    if not pandas.api.types.is_datetime64_any_dtype(column.dtype):
        column = pandas.to_datetime(column, utc=True)
    if column.dt.tz is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.astype("datetime64[us]")


def as_labels(column: Any) -> Any:
    """Return text: the same for a code whether its file has integers or, next to gaps, floats."""
    from ...data.schema import label_of

    try:
        return column.astype(object).map(label_of, na_action="ignore").astype("str")
    except TypeError:  # lists and the like
        return column


def with_target(frame: Any, target: str, file: str) -> tuple[Any, list[str]]:
    """Return the rows that have a target, and a note on how many have none."""
    present = frame[target].notna()
    missing = int((~present).sum())
    if not missing or not present.any():
        return frame, []
    note = (
        f"{file}: {counted(missing, 'row')} without a target left out; the certificate is about "
        "rows that have a target."
    )
    return frame[present].reset_index(drop=True), [note]
