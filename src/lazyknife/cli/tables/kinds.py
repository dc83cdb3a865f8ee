"""The kind of a column: numbers, dates, durations or categories.

It is decided on the rows of both files together, so it does not depend on which row is in which
file: the kinds of the two files are joined, and kinds that differ are an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from .columns import Source, distinct_texts, parse_date
from .formats import TableError, load, option, quoted

# Kinds of a column in one file, and how they are called; "empty" is a column without values.
KNOWN = {
    "number": "numbers",
    "date": "dates",
    "duration": "durations",
    "text": "text",
    "category": "categories",
    "empty": "nothing",
}
# Classes of the values of a column of Python objects.
OBJECTS: dict[str, tuple[type, ...]] = {
    "number": (Real, Decimal, np.bool_),
    "date": (datetime.date,),
    "duration": (datetime.timedelta,),
    "text": (str,),
}


def kind_of(column: Any) -> str:
    """Return a key of ``KNOWN``, or the name of another type."""
    pandas = load("pandas")
    types, dtype = pandas.api.types, column.dtype
    if column.isna().all():
        return "empty"
    if isinstance(dtype, pandas.CategoricalDtype):
        return "category"
    if types.is_object_dtype(dtype):
        found = {type(value) for value in column.dropna()}
        fits = (kind for kind, of in OBJECTS.items() if all(issubclass(one, of) for one in found))
        return next(fits, " and ".join(sorted(one.__name__ for one in found)))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_timedelta64_dtype(dtype):
        return "duration"
    return "text" if types.is_string_dtype(dtype) else str(dtype)


def kind_of_pool(name: str, old: Source, new: Source, declared: bool) -> str:
    """Return "number", "date", "duration" or "category" for a column of both files.

    ``declared`` says that the user asked for categories.
    """
    kinds = [(source, kind_of(source[name])) for source in (old, new)]
    found = {kind for _, kind in kinds} - {"empty"}
    drop, categorical = option("--drop", name), option("--categorical", name)
    if not found:
        raise old.error(name, f"has no values: pass {drop}")
    if declared:
        return "category"
    for source, kind in kinds:
        if kind not in KNOWN:
            message = f"has values of type {kind}: convert them to numbers, or pass {drop}"
            raise source.error(name, message)
    texts = [source for source, kind in kinds if kind == "text"]
    if found in ({"text"}, {"text", "date"}) and _are_dates(name, texts, "date" in found):
        return "date"
    if found in ({"text"}, {"text", "number"}):
        _check_not_numbers(name, texts)
    if found <= {"text", "category"}:
        return "category"
    if len(found) > 1:
        different = " in one file and ".join(KNOWN[kind] for kind in sorted(found))
        raise TableError(
            f"{old.name} and {new.name}: column {quoted(name)} contains {different} in the other: "
            f"use one type, or pass {categorical} or {drop}"
        )
    return found.pop()


def _are_dates(name: str, sources: Sequence[Source], expected: bool) -> bool:
    """Whether all texts are ISO dates; an error if most of them are, or if dates are expected."""
    first = _first_rows(name, sources)
    valid = [parse_date(text) is not None for text in first]
    if not all(valid) and (expected or 2 * sum(valid) >= len(valid)):
        _refuse_odd_value(name, first, valid, "date")
    return all(valid)


def _check_not_numbers(name: str, sources: Sequence[Source]) -> None:
    """Refuse text of which at least half the distinct values are numbers: a typo, or codes.

    Silently making categories of them would hide the order of the numbers from the network.
    """
    first = _first_rows(name, sources)
    with_point = [text.replace(",", ".", 1) for text in first]  # "1,5" is meant as a number
    if 2 * sum(are_numbers(with_point)) < len(first):
        return
    _refuse_odd_value(name, first, are_numbers(list(first)), "number")
    way_out = f"convert them, or pass {option('--categorical', name)} if they are codes"
    raise sources[0].error(name, f"contains numbers that are stored as text: {way_out}")


def _refuse_odd_value(
    name: str, first: dict[str, tuple[Source, int]], valid: Sequence[bool], kind: str
) -> None:
    """Raise an error that names the first text that is not valid, if there is one."""
    for (text, (source, row)), right in zip(first.items(), valid, strict=True):
        if not right:
            raise source.error(
                name,
                f"contains {kind}s, but {quoted(text)} in row {row} is not a {kind}: correct it, "
                f"leave it empty, or pass {option('--categorical', name)}",
            )


def _first_rows(name: str, sources: Sequence[Source]) -> dict[str, tuple[Source, int]]:
    """Return the distinct texts of all files with the file and row in which each occurs first."""
    first: dict[str, tuple[Source, int]] = {}
    for source in sources:
        for text, row in distinct_texts(source[name]).items():
            first.setdefault(text, (source, row))
    return first


def are_numbers(texts: Sequence[str]) -> list[bool]:
    """Return which of the texts are numbers."""
    pandas = load("pandas")
    stripped = pandas.Series([text.strip() for text in texts], dtype=object)
    return [bool(valid) for valid in pandas.to_numeric(stripped, errors="coerce").notna()]
