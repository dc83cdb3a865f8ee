"""Text files as UTF-8 bytes with a known separator: what is guessed, and what is refused."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...words import TableError, quoted
from .formats import SUFFIX_SEPARATORS, check_unique, suffix_of
from .reading import SEPARATORS, Reading

# Longest first: the mark of UTF-16 begins that of UTF-32.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"  # whose printable characters include those of latin-1
LOOK = "look for a double quote that is never closed"
UNSEPARATED = f"the rows cannot be separated: {LOOK}"
SHOWN = {"\t": "a tab", " ": "a space"}
MAX_FIELD = 2**24  # characters
LONGEST_HEADER = 2**20  # bytes


@dataclass(frozen=True)
class Text:
    """A text file."""

    path: Path
    data: bytes  # UTF-8 without a byte order mark
    separator: str
    names: tuple[str, ...]  # of the columns
    notes: tuple[str, ...] = ()  # what was guessed, one sentence each


def as_text(path: Path, data: bytes, reading: Reading, whole: bool = True) -> Text:
    """Return the text of a file, or of its first lines if it is not ``whole``."""
    decoded, encoding = decode(path, data, reading.encoding, whole)
    if not decoded or decoded.isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    notes = []
    if encoding is not None:
        notes.append(f"{path.name}: read as {encoding} (--encoding).")
    try:
        separator = reading.sep or _separator(path, decoded)
        header = next((row for _, row in rows(decoded, separator)), [""])
    except csv.Error:
        raise TableError(f"{path}: {UNSEPARATED}") from None
    if reading.sep is None and separator != SUFFIX_SEPARATORS[suffix_of(path)]:
        notes.append(f"{path.name}: fields are separated by {shown(separator)} (--sep).")
    # pandas numbers blank names, and would silently rename duplicates.
    check_unique([name for name in header if name.strip()], str(path))
    names = [name if name.strip() else f"Unnamed: {k}" for k, name in enumerate(header)]
    return Text(path, decoded, separator, tuple(names), tuple(notes))


def decode(path: Path, data: bytes, encoding: str | None, whole: bool) -> tuple[bytes, str | None]:
    """Return a file as UTF-8 without its mark, and its encoding if that is a guess."""
    mark = next((mark for mark in BYTE_ORDER_MARKS if data.startswith(mark)), b"")
    marked = BYTE_ORDER_MARKS.get(mark)
    given = encoding or marked
    if given is not None:
        try:
            text = codecs.getincrementaldecoder(given)().decode(data, final=whole)
        except (UnicodeError, ValueError):
            raise TableError(f"{path}: not {given} text: pass its --encoding") from None
        guessed = None if encoding or marked == "utf-8" else marked
        return text.removeprefix("\ufeff").encode("utf-8", "replace"), guessed
    if b"\0" in data:
        raise TableError(
            f"{path} is a binary file: give a CSV, TSV or Parquet file, or pass its --encoding"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
        return data, None
    except UnicodeDecodeError:
        return _western(path, data), WESTERN


def _western(path: Path, data: bytes) -> bytes:
    """Return text of one byte a character as UTF-8; refuse characters that no text has."""
    message = (
        f"{path}: neither UTF-8 nor {WESTERN} text: save it as CSV in UTF-8, or pass --encoding"
    )
    try:
        text = data.decode(WESTERN)
    except UnicodeDecodeError:
        raise TableError(message) from None
    if any(ord(letter) < 32 and letter not in "\t\r\n\f" for letter in set(text)):
        raise TableError(f"{path} is a binary file: give a CSV, TSV or Parquet file")
    return text.encode("utf-8")


def shown(separator: str) -> str:
    """Return a separator in words or quotation marks."""
    return SHOWN.get(separator, repr(separator))


def _separator(path: Path, data: bytes) -> str:
    """Return the separator that makes several columns; refuse a header that several could cut."""
    usual = SUFFIX_SEPARATORS[suffix_of(path)]
    candidates = ("\t",) if usual == "\t" else SEPARATORS
    found = [one for one in candidates if len(_first(data, one)) > 1]
    if len(found) > 1:  # several cut the header: which one also cuts all rows alike?
        found = [one for one in found if not trouble(data, one)] or found
    if len(found) > 1:
        marks = " or ".join(map(shown, found))
        message = f"fields may be separated by {marks}: pass --sep"
        raise TableError(f"{path}: {message}")
    return found[0] if found else usual


def _first(data: bytes, separator: str) -> list[str]:
    try:
        return next((row for _, row in rows(data, separator)), [""])
    except csv.Error:
        return [""]


def rows(data: bytes, separator: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row ends, and its fields; blank lines are skipped."""
    csv.field_size_limit(MAX_FIELD)
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace", newline="")
    reader = csv.reader(text, delimiter=separator, skipinitialspace=True, strict=strict)
    return ((reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip())


def trouble(data: bytes, separator: str) -> str:
    """Return what is wrong with the rows of a text file; nothing if they are all alike."""
    width = 0
    try:
        for line, row in rows(data, separator, strict=True):
            width = width or len(row)
            if len(row) != width:
                found = f"line {line} has {len(row)} fields and the header {width}"
                return f"{found}: correct it, or put double quotes around fields with separators"
            if any("\n" in field and _has_rows(field, separator, width) for field in row):
                return f"line {line} ends a field that contains whole lines of the file: " + LOOK
    except csv.Error:
        return UNSEPARATED
    return ""


def _has_rows(field: str, separator: str, width: int) -> bool:
    """Whether a field has swallowed lines that have as many separators as a row."""
    return width > 1 and any(line.count(separator) >= width - 1 for line in field.splitlines())


def check_header(text: Text) -> None:
    """Refuse a file with another separator, which would be read as a single column."""
    found = [other for other in SEPARATORS if other != text.separator and other in text.names[0]]
    if len(text.names) == 1 and found:
        message = f"only one column, {quoted(text.names[0])}: fields are separated by"
        raise TableError(
            f"{text.path}: {message} {shown(text.separator)}, not by {shown(found[0])}: pass --sep"
        )
