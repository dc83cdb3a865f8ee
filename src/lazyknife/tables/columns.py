"""What a column holds (numbers, text, categories), and its values as numbers or as labels.

A message about a column needs a file to name: frames travel with their files' names, as ``Source``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .formats import TableError, counted, load, option, quoted, quoted_list

if TYPE_CHECKING:
    import pandas as pd

    from ..records import Array

# What pandas finds in a column of Python objects, where that is one kind of thing.
OBJECTS = {
    "boolean": "number",
    "decimal": "number",
    "floating": "number",
    "integer": "number",
    "mixed-integer-float": "number",
    "string": "text",
}


@dataclass(frozen=True)
class Source:
    """A file's frame and the name by which messages call it."""

    frame: pd.DataFrame
    name: str

    def __getitem__(self, column: str) -> Any:
        return self.frame[column]

    def error(self, column: str, message: str) -> TableError:
        """Return the error that names this file and the column."""
        return TableError(f"{self.name}: column {quoted(column)} {message}")


def check_known(name: str, columns: Iterable[object], files: str) -> None:
    """Refuse a name that no column has, and say which one is nearest."""
    names = list(columns)
    if name in names:
        return
    folded = {str(column).strip().casefold(): column for column in names}
    nearest = get_close_matches(name.strip().casefold(), folded, n=1)
    hint = (
        f"did you mean {quoted(folded[nearest[0]])}?"
        if nearest
        else f"the columns are {quoted_list(names, 5)}"
    )
    raise TableError(f"{files}: no column {quoted(name)}: {hint}")


def kind_of(column: Any) -> str:
    """Return "number", "text", "category", "empty" (all missing), or the name of another type."""
    pandas = load("pandas")
    types, dtype = pandas.api.types, column.dtype
    if column.isna().all():
        return "empty"
    if isinstance(dtype, pandas.CategoricalDtype):
        return "category"
    if types.is_object_dtype(dtype):
        found = types.infer_dtype(column, skipna=True)
        if found in OBJECTS:
            return OBJECTS[found]
        return " and ".join(sorted({type(value).__name__ for value in column.dropna()}))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    return "text" if types.is_string_dtype(dtype) else str(dtype)


def is_category(name: str, train: Source, test: Source, declared: bool) -> bool:
    """Whether a column is one of categories; otherwise it holds numbers, or is refused."""
    sources = (train, test)
    kinds = [kind_of(source[name]) for source in sources]
    found = set(kinds) - {"empty"}
    if not found:
        raise train.error(name, f"has no values at all: pass {option('--drop', name)}")
    if declared:
        return True
    for source, kind in zip(sources, kinds, strict=True):
        if kind not in ("number", "text", "category", "empty"):
            raise source.error(
                name,
                f"holds values of type {kind}, neither numbers nor text: turn them into numbers, "
                f"or pass {option('--drop', name)}",
            )
    _check_not_numbers(
        name, [source for source, kind in zip(sources, kinds, strict=True) if kind == "text"]
    )
    if "number" in found and len(found) > 1:
        raise TableError(
            f"{train.name} and {test.name}: column {quoted(name)} holds numbers in one file and "
            "text or categories in the other: make them alike, or pass "
            f"{option('--categorical', name)} or {option('--drop', name)}"
        )
    return found != {"number"}


def _check_not_numbers(name: str, sources: Sequence[Source]) -> None:
    """Refuse text of which at least half the distinct values are numbers: a typing error, or codes.

    Categories made of them in silence would hide the order of the numbers from the network.
    """
    first: dict[str, tuple[Source, int]] = {}
    for source in sources:
        for value, row in _first_rows(source[name]).items():
            first.setdefault(value, (source, row))
    with_point = [value.replace(",", ".", 1) for value in first]  # "1,5" is meant as a number
    if not first or 2 * _parses(with_point).sum() < len(first):
        return
    way_out = f"correct it, or pass {option('--categorical', name)} if these are codes"
    for (value, (source, row)), number in zip(first.items(), _parses(list(first)), strict=True):
        if not number:
            message = f"holds numbers, but {quoted(value)} in row {row} is no number: {way_out}"
            raise source.error(name, message)
    raise sources[0].error(name, f"holds numbers that are stored as text: {way_out}")


def _first_rows(column: Any) -> dict[str, int]:
    """Return the distinct texts with the row, counted from 1, in which each stands first."""
    values = column.reset_index(drop=True).dropna().drop_duplicates()
    return {str(value): row + 1 for row, value in values.items()}


def _parses(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which of the texts are numbers, (texts,)."""
    pandas = load("pandas")
    stripped = pandas.Series([text.strip() for text in texts], dtype=object)
    return np.asarray(pandas.to_numeric(stripped, errors="coerce").notna(), dtype=np.bool_)


def to_numbers(frame: pd.DataFrame) -> Array:
    """Return columns of numbers as one array, (rows, columns), missing values as NaN."""
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def to_labels(source: Source, name: str) -> tuple[NDArray[np.intp], list[str]]:
    """Return each row's position in the list of labels, −1 where it is missing, and that list."""
    try:
        codes, values = load("pandas").factorize(source[name])
    except TypeError:  # lists and the like cannot be compared
        raise source.error(
            name, f"holds values that cannot be categories: pass {option('--drop', name)}"
        ) from None
    return np.asarray(codes, dtype=np.intp), [_label(value) for value in values]


def _label(value: Any) -> str:
    """Return one text for a code, though missing values have turned a file's integers to floats."""
    whole = isinstance(value, Real) and not isinstance(value, bool) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def check_finite(source: Source, names: Sequence[str], values: Array) -> None:
    """Refuse infinite values, (rows, columns), and name the first."""
    infinite = np.isinf(values)
    if infinite.any():
        column = int(np.argmax(infinite.any(axis=0)))
        row = int(np.argmax(infinite[:, column])) + 1
        raise source.error(
            names[column],
            f"has an infinite value in row {row}: correct it, or leave it empty if it is unknown",
        )


def target_values(source: Source, target: str) -> Array:
    """Return the target, (rows,), which must be numbers without a gap."""
    column = source[target]
    kind = kind_of(column)
    if kind == "text":
        rows = _first_rows(column)
        position = int(np.argmin(_parses(list(rows))))
        value, row = list(rows.items())[position]
        raise source.error(
            target, f"is the target and holds text, {quoted(value)} in row {row}: give numbers"
        )
    if kind not in ("number", "empty"):
        raise source.error(target, f"is the target and holds values of type {kind}: give numbers")
    values = to_numbers(source.frame[[target]])
    missing = np.isnan(values[:, 0])
    if missing.any():
        raise source.error(
            target,
            f"is the target and has {counted(missing.sum(), 'missing value')}, the "
            f"first in row {int(np.argmax(missing)) + 1}: leave such rows out",
        )
    check_finite(source, [target], values)
    return values[:, 0]
