"""How text files are to be read: what the user said, and the choices there are."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from datetime import datetime

from ...errors import TableError

SEPARATORS = (",", ";", "\t", "|")  # that are guessed
NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
DECIMALS = (".", ",")
THOUSANDS = (",", ".", " ", "'")
ORDERS = {"day-first": "dmy", "month-first": "mdy"}  # of --dates
# Missing values of every column; of columns of numbers or dates also the marks.
MISSING = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>"),
    *("#N/A", "#NA", "#N/A N/A", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
)
MARKS = ("?", "-", "--", "–", "—", ".", "*")


@dataclass(frozen=True)
class Reading:
    """The options of text files; None is a guess from the file."""

    sep: str | None = None  # between fields
    decimal: str | None = None  # mark of decimals
    thousands: str | None = None  # mark between groups of three digits
    na: tuple[str, ...] | None = None  # texts that are missing values, besides the empty one
    encoding: str | None = None
    dates: str | None = None  # a key of ORDERS, or a format of strptime

    def __post_init__(self) -> None:
        self._check_sep()
        self._check_numbers()
        self._check_encoding()
        self._check_dates()

    def _check_sep(self) -> None:
        if self.sep is None:
            return
        object.__setattr__(self, "sep", NAMED.get(self.sep.lower(), self.sep))
        if len(self.sep) != 1 or self.sep in '"\r\n' or self.sep.isalnum() or ord(self.sep) > 127:
            raise TableError(f"--sep {self.sep!r}: give one character such as ; or |, or tab")

    def _check_numbers(self) -> None:
        object.__setattr__(self, "thousands", NAMED.get(self.thousands or "", self.thousands))
        if self.decimal is not None and self.decimal not in DECIMALS:
            raise TableError(f"--decimal {self.decimal!r}: give . or ,")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise TableError(f"--thousands {self.thousands!r}: give one of , . ' or space")
        if self.thousands is not None and self.thousands == self.decimal:
            raise TableError(f"--decimal and --thousands are both {self.decimal!r}: they differ")

    def _check_encoding(self) -> None:
        if self.encoding is None:
            return
        try:
            is_text = codecs.lookup(self.encoding)._is_text_encoding
        except (LookupError, ValueError):  # ValueError: a null character in the name
            is_text = False
        if not is_text:
            raise TableError(f"--encoding {self.encoding}: unknown; try utf-8, cp1252 or utf-16")

    def _check_dates(self) -> None:
        if self.dates is None or self.dates in ORDERS:
            return
        try:
            valid = re.search("%[dfeHIjmMSyYbBpz]", self.dates) is not None
            datetime.strptime(datetime(2000, 1, 31).strftime(self.dates), self.dates)
        except (ValueError, re.error):
            valid = False
        if not valid:
            choices = ", ".join(ORDERS)
            raise TableError(
                f"--dates {self.dates!r}: give {choices}, or a format such as %d/%m/%y"
            )

    @property
    def missing(self) -> tuple[str, ...]:
        """Texts that are missing values in every column."""
        return MISSING if self.na is None else ("", *self.na)

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that are missing values in columns of numbers or dates."""
        return MARKS if self.na is None else ()
