"""The encoding of a text file, found from all of its bytes, and its text as UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...errors import TableError

# Longest first: the mark of UTF-16 begins that of UTF-32.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"  # whose printable characters include those of latin-1
PLAIN = ""  # UTF-8 without a mark: bytes stay as they are


def encoding_of(
    path: Path, pieces: Iterable[bytes], given: str | None, whole: bool
) -> tuple[str, str | None]:
    """Return the encoding of a file, and again if it is a guess to be noted.

    Parameters
    ----------
    path
        For messages.
    pieces
        Its bytes, in order; they are gone through once or twice.
    given
        The user's choice.
    whole
        Whether the pieces are the whole file, and not only its beginning.

    """
    first = next(iter(pieces), b"")
    mark = next((mark for mark in BYTE_ORDER_MARKS if first.startswith(mark)), b"")
    marked = BYTE_ORDER_MARKS.get(mark)
    name = given or marked
    if name is not None:
        if not _fits(pieces, name, whole):
            raise TableError(f"{path}: not {name} text: pass its --encoding")
        return name, None if given or marked == "utf-8" else marked
    if any(b"\0" in piece for piece in pieces):
        raise TableError(
            f"{path} is a binary file: give a CSV, TSV or Parquet file, or pass its --encoding"
        )
    if _fits(pieces, "utf-8", whole):
        return PLAIN, None
    _check_western(path, pieces)
    return WESTERN, WESTERN


def as_utf8(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the text as UTF-8 without a byte order mark."""
    if encoding == PLAIN:
        yield from pieces
        return
    decoder, start = codecs.getincrementaldecoder(encoding)(), True
    for piece in pieces:
        text = decoder.decode(piece)
        yield (text.removeprefix("\ufeff") if start else text).encode("utf-8", "replace")
        start = start and not text


def _fits(pieces: Iterable[bytes], encoding: str, whole: bool) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for piece in pieces:
            decoder.decode(piece)
        decoder.decode(b"", final=whole)
    except (UnicodeError, ValueError):
        return False
    return True


def _check_western(path: Path, pieces: Iterable[bytes]) -> None:
    """Refuse bytes that are no text of one byte a character."""
    try:
        letters = {letter for piece in pieces for letter in piece.decode(WESTERN)}
    except UnicodeDecodeError:
        raise TableError(
            f"{path}: neither UTF-8 nor {WESTERN} text: save it as CSV in UTF-8, or pass --encoding"
        ) from None
    if any(ord(letter) < 32 and letter not in "\t\r\n\f" for letter in letters):
        raise TableError(f"{path} is a binary file: give a CSV, TSV or Parquet file")
