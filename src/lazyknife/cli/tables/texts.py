"""Text files with a known separator: what is guessed, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import TableError, quoted
from .blocks import BLOCK_BYTES, LOOK, UNSEPARATED, Block, Blocks, Pieces, end_of_line, rows
from .encodings import as_utf8, encoding_of
from .formats import SUFFIX_SEPARATORS, check_unique, suffix_of
from .reading import SEPARATORS, Reading

SHOWN = {"\t": "a tab", " ": "a space"}
LONGEST_HEADER = 2**20  # bytes


@dataclass(frozen=True)
class Text:
    """A text file."""

    path: Path
    blocks: Iterable[Block]  # one in memory, or any number that are read anew by every loop
    separator: str
    names: tuple[str, ...]  # of the columns
    notes: tuple[str, ...] = ()  # what was guessed, one sentence each


def open_text(
    path: Path, reading: Reading, whole: bool = True, block_bytes: int = BLOCK_BYTES
) -> Text:
    """Return the text of a file, or of its first lines if it is not ``whole``.

    Encoding and separator are decided here, the latter by the first block.
    """
    pieces = Pieces(path, block_bytes if whole else LONGEST_HEADER)
    beginning = iter(pieces)
    first = next(beginning, b"")
    more = len(first) == pieces.size and next(beginning, b"") != b""
    seen = pieces if whole and more else (first,)
    encoding, guess = encoding_of(path, seen, reading.encoding, whole or not more)
    head = next(as_utf8((first,), encoding))
    if not head or head.isspace():
        raise TableError(f"{path}: the file is empty: give one with a header and rows")
    text = _text(path, _whole_rows(head) if more else head, reading)
    notes = () if guess is None else (f"{path.name}: read as {guess} (--encoding).",)
    blocks = Blocks(pieces, encoding, text.separator) if whole and more else text.blocks
    return Text(path, blocks, text.separator, text.names, (*notes, *text.notes))


def _text(path: Path, data: bytes, reading: Reading) -> Text:
    """Return a text of one block."""
    try:
        separator = reading.sep or _separator(path, data)
        header = next((row for _, row in rows(data, separator)), [""])
    except csv.Error:
        raise TableError(f"{path}: {UNSEPARATED}") from None
    usual = reading.sep is not None or separator == SUFFIX_SEPARATORS[suffix_of(path)]
    note = f"{path.name}: fields are separated by {shown(separator)} (--sep)."
    # pandas numbers blank names, and would silently rename duplicates.
    check_unique([name for name in header if name.strip()], str(path))
    names = [name if name.strip() else f"Unnamed: {k}" for k, name in enumerate(header)]
    return Text(path, (Block(data),), separator, tuple(names), () if usual else (note,))


def _whole_rows(data: bytes) -> bytes:
    """Return a beginning without the row that is cut off, as far as quotes tell."""
    end = end_of_line(data)
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return data[:end] or data


def shown(separator: str) -> str:
    """Return a separator in words or quotation marks."""
    return SHOWN.get(separator, repr(separator))


def _separator(path: Path, data: bytes) -> str:
    """Return the separator that makes several columns; refuse a header that several could cut."""
    usual = SUFFIX_SEPARATORS[suffix_of(path)]
    candidates = ("\t",) if usual == "\t" else SEPARATORS
    found = [one for one in candidates if len(_first(data, one)) > 1]
    if len(found) > 1:  # several cut the header: which one also cuts all rows alike?
        found = [one for one in found if not trouble(Block(data), one)] or found
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


def trouble(block: Block, separator: str, width: int = 0) -> str:
    """Return what is wrong with rows; nothing if all have the ``width``, or that of the header."""
    try:
        for number, row in rows(block.data, separator, strict=True):
            line, width = block.line + number, width or len(row)
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
