"""One column of several files, whose values decide together what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import TableError, quoted
from .formats import load, option


@dataclass(frozen=True)
class Pool:
    """The columns of one name in the frames of some files."""

    name: str
    frames: tuple[Any, ...]  # pandas frames that have the column
    files: tuple[str, ...]  # the names of their files
    declared: tuple[bool, ...]  # whether the file says that the column is text, as Parquet does

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What the column is in each file."""
        return tuple(kind_of(frame[self.name]) for frame in self.frames)

    @property
    def kinds_now(self) -> tuple[str, ...]:
        """What the column is in each file after conversions."""
        return tuple(kind_of(frame[self.name]) for frame in self.frames)

    @cached_property
    def texts(self) -> list[str]:
        """The distinct texts of all files."""
        columns = [
            f[self.name] for f, kind in zip(self.frames, self.kinds, strict=True) if kind == "text"
        ]
        return list(dict.fromkeys(text for column in columns for text in column.dropna().unique()))

    def first(self, text: str) -> tuple[int, int]:
        """Return the file and the row, counted from 1, in which a text occurs first."""
        for place, frame in enumerate(self.frames):
            found = (frame[self.name] == text).to_numpy().nonzero()[0]
            if self.kinds[place] == "text" and len(found):
                return place, int(found[0]) + 1
        raise KeyError(text)

    def convert(self, values: dict[str, Any], dtype: str) -> None:
        """Replace the texts by values, in place; other texts become missing values."""
        for frame, kind in zip(self.frames, self.kinds, strict=True):
            if kind == "text":
                frame[self.name] = frame[self.name].astype(object).map(values).astype(dtype)
        self.__dict__.pop("kinds", None)
        self.__dict__.pop("texts", None)

    def odd_one(self, valid: Iterable[str], kind: str) -> TableError:
        """Return an error that names the first text that is not of the kind of the others."""
        right = set(valid)
        text = next(text for text in self.texts if text not in right)
        place, row = self.first(text)
        found = f"contains {kind}s, but {quoted(text)} in row {row} is not a {kind}"
        ways = f"correct it, leave it empty, pass {option('--na', text)} or"
        return self.error(f"{found}: {ways} {option('--categorical', self.name)}", place)

    def error(self, message: str, place: int = 0) -> TableError:
        """Return an error about the column of one file."""
        return TableError(f"{self.files[place]}: column {quoted(self.name)} {message}")


def kind_of(column: Any) -> str:
    """Return "empty", "text", "category", "number", "boolean", "date", or something else."""
    pandas = load("pandas")
    types, dtype = pandas.api.types, column.dtype
    if column.isna().all():
        return "empty"
    checks: dict[str, Callable[[Any], bool]] = {
        "category": lambda of: isinstance(of, pandas.CategoricalDtype),
        "boolean": types.is_bool_dtype,
        "number": lambda of: types.is_numeric_dtype(of) and not types.is_complex_dtype(of),
        "date": types.is_datetime64_any_dtype,
        "duration": types.is_timedelta64_dtype,
    }
    found = next((kind for kind, fits in checks.items() if fits(dtype)), None)
    if found is not None:
        return found
    inferred = str(types.infer_dtype(column, skipna=True))
    known = {"string": "text", "boolean": "boolean", "decimal": "number", "datetime": "date"}
    return (known | {"date": "date", "timedelta": "duration"}).get(inferred, inferred)
