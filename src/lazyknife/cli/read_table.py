"""Files, standard input and typed rows as frames with typed columns, by pandas and pyarrow.

A text file says neither how it is written nor what its columns are. Separator and encoding are
found from the file, the type of a column and its mark of decimals by fixed rules from its values in
all files together, so it makes no difference in which file a row is. A guess is a note that names
the option for it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import shlex
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import TableError, counted, quoted, quoted_list

if TYPE_CHECKING:
    import pandas as pd

TEXTS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}  # suffixes with their usual separators
SUFFIXES = (*TEXTS, ".parquet", ".xlsx")
STANDARD = Path("-")  # standard input or output, whose first bytes tell the kind of file
FIRST_BYTES = {b"PAR1": ".parquet", b"PK\3\4": ".xlsx", b"\x1f\x8b": ".csv.gz"}
BATCH_BYTES, BATCH_ROWS = 2**20, 2**15  # of a text or Parquet file that are read at a time
# Missing values of every column, and of columns of numbers and dates.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "#NV")
DASHES = ("?", "-", "--", "–", "—", ".", "*")
DECIMALS = {".": "points", ",": "commas"}
UNIT = r"US\$|[$€£¥₹%]|USD|EUR|GBP|CHF|JPY"
# Spaces of all widths, apostrophes and minus signs.
ALIKE = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'", "ʼ": "'", "−": "-"})
SAMPLE = 1000  # texts that can rule an interpretation out
ORDERS = {"day-first": True, "month-first": False}
ISO = "ISO8601"  # dates like 2024-12-31, with or without a time
UNNAMED = "Unnamed: "
UNCLOSED = "look for a double quote that is never closed"


@dataclass(frozen=True)
class Formats:
    """How text files are written, by the options; None is found out.

    A model keeps those of its fit; the last two are what was found then, for new rows that leave
    it open.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    dates: str | None = None  # a key of ORDERS, or a format of strptime
    na: Sequence[str] | None = None  # texts of missing values, instead of those above
    sheet: str | None = None  # of an Excel file
    usual_decimal: str | None = None
    usual_dates: Mapping[str, str] = field(default_factory=dict)  # formats, by column

    def __post_init__(self) -> None:
        object.__setattr__(self, "sep", "\t" if self.sep in ("tab", "\\t") else self.sep)
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise TableError(f"--sep {self.sep!r}: give one character such as ; or |, or tab")
        if self.dates is not None and self.dates not in ORDERS and "%" not in self.dates:
            ways = f"give {', '.join(ORDERS)} or a format such as %d/%m/%y"
            raise TableError(f"--dates {self.dates!r}: {ways}")


@dataclass(frozen=True)
class Source:
    """Rows with named columns; those of text files and typed rows are texts, without gaps."""

    name: str  # for messages
    columns: tuple[str, ...]
    batches: Callable[[], Iterator[pd.DataFrame]]  # the rows
    notes: Sequence[str] = ()
    size: int = 0  # bytes of the file


# Files


def open_source(path: Path, formats: Formats) -> Source:
    """Look at a file, or at standard input, and read its header."""
    suffix, name, data = suffix_of(path), path.name, None
    if path == STANDARD:
        data, name = sys.stdin.buffer.read(), "standard input"
        found = (kind for start, kind in FIRST_BYTES.items() if data.startswith(start))
        suffix = next(found, ".csv")

    def opened() -> Any:
        file = path if data is None else io.BytesIO(data)
        if suffix.endswith(".gz"):
            return gzip.open(file)
        return file.open("rb") if isinstance(file, Path) else file

    with named_errors(path if data is None else name):
        with opened() as file:
            start = file.read(2**20)
        if not start.removeprefix(codecs.BOM_UTF8).strip():
            raise TableError(f"{name}: the file is empty: give one with a header and rows")
        if suffix == ".parquet":
            source = _parquet(name, opened)
        elif suffix == ".xlsx":
            source = _excel(name, opened, formats.sheet)
        else:
            source = _text(name, opened, start, TEXTS[suffix], formats)
        return replace(source, size=path.stat().st_size if data is None else len(data))


def suffix_of(path: Path) -> str:
    """Return the known suffix of a file's name, in lower case."""
    if path.is_dir():
        raise TableError(f"{path} is a folder: give a file inside it")
    if path.exists() and not path.is_file():  # it is read more than once
        raise TableError(f"{path} is not a file: pipe the rows to the command, and give - instead")
    found = [suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)]
    if not found and path != STANDARD:
        raise TableError(f"{path}: unknown file type: use one of {', '.join(SUFFIXES)}")
    return found[0] if found else ".csv"


@contextmanager
def named_errors(name: object) -> Iterator[None]:
    """Whatever is wrong with a file is a TableError that names it."""
    from pyarrow import ArrowException, ArrowMemoryError

    try:
        yield
        return
    except (TableError, ArrowMemoryError):
        raise
    except (UnicodeError, LookupError):  # LookupError: an unknown encoding
        message = ": some characters cannot be read: pass its --encoding"
    except (EOFError, gzip.BadGzipFile, zlib.error):
        message = ": not a gzip file, or truncated: compress it again"
    except (ArrowException, csv.Error) as error:
        message = ": damaged, or of another type than its name says: write it again"
        if ragged := re.search(r"Expected (\d+) columns, got (\d+): (.*)", str(error), re.DOTALL):
            row = f"the row {quoted(ragged[3])} has {ragged[2]} fields and the header {ragged[1]}"
            message = f": {row}: correct it, or put double quotes around fields with separators"
        elif isinstance(error, csv.Error) or re.search("CSV|straddl", str(error)):
            message = f": the rows cannot be separated: {UNCLOSED}"
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or "damaged, or no such name"
        message = f" cannot be read ({reason}): check name and permissions"
    raise TableError(f"{name}{message}")


def _names(columns: Iterable[object], file: str) -> tuple[str, ...]:
    """Names of columns, without spaces around them; refuse equal ones, number those without."""
    names = ["" if name is None else str(name).strip() for name in columns]
    twice = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if twice:
        raise TableError(f"{file}: several columns are named {quoted_list(twice)}: rename them")
    return tuple(name or f"{UNNAMED}{place}" for place, name in enumerate(names))


def _text(
    name: str, opened: Callable[[], Any], start: bytes, usual: str, formats: Formats
) -> Source:
    import pyarrow as pa
    from pyarrow import csv as arrow

    encoding = formats.encoding or _encoding(name, opened, start)
    lines = list(io.StringIO(start.decode(encoding, "replace").removeprefix("\ufeff"), newline=""))
    blank = next((number for number, line in enumerate(lines) if line.strip()), 0)
    sep = formats.sep or _separator(name, lines[blank:], usual)
    header = next(csv.reader(lines[blank:], delimiter=sep))
    names, notes = _names(header, name), []
    if encoding not in (formats.encoding, "utf-8", "utf-8-sig"):
        notes.append(f"{name}: read as {encoding} (--encoding).")
    if sep not in (formats.sep, usual):
        notes.append(f"{name}: fields are separated by {sep!r} (--sep).")
    block = max(BATCH_BYTES, 16 * len(lines[blank]))  # pyarrow has some 32 of them in memory
    # A field with a whole line of the file in it.
    swallowed = rf"\n(?:[^\n]*?{re.escape(sep)}){{{max(1, min(len(names) - 1, 1000))}}}"

    def batches() -> Iterator[pd.DataFrame]:
        reading = arrow.ReadOptions(block_size=block, skip_rows=blank, encoding=encoding)
        parsing = arrow.ParseOptions(
            delimiter=sep,
            newlines_in_values=True,
            invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
        )
        as_text = arrow.ConvertOptions(column_types=dict.fromkeys(header, pa.string()))
        with named_errors(name), opened() as file:
            for batch in arrow.open_csv(file, reading, parsing, as_text):
                frame = batch.rename_columns(list(names)).to_pandas()
                if any(frame[column].str.contains(swallowed).any() for column in names):
                    raise TableError(f"{name}: a field contains whole lines: {UNCLOSED}")
                yield frame

    return Source(name, names, batches, notes)


def _encoding(name: str, opened: Callable[[], Any], start: bytes) -> str:
    """UTF-8, with or without a byte order mark, UTF-16 with one; otherwise cp1252."""
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16"}
    for mark, encoding in (marks | {codecs.BOM_UTF16_BE: "utf-16"}).items():
        if start.startswith(mark):
            return encoding
    if b"\0" in start:
        kinds = "give a CSV, Parquet or Excel file, or pass its --encoding"
        raise TableError(f"{name} is a binary file: {kinds}")
    try:
        with opened() as file, io.TextIOWrapper(file, "utf-8") as text:
            while text.read(BATCH_BYTES):
                pass
    except UnicodeDecodeError:
        return "cp1252"  # which has the letters of latin-1
    return "utf-8"


def _separator(name: str, lines: Sequence[str], usual: str) -> str:
    """The separator that cuts the header into several columns, and the next lines alike."""
    widths = {
        sep: [len(row) for row in csv.reader(lines[:20], delimiter=sep) if row]
        for sep in (("\t",) if usual == "\t" else (",", ";", "\t", "|"))
    }
    found = [sep for sep, counts in widths.items() if counts[0] > 1]
    found = [sep for sep in found if len(set(widths[sep])) == 1] or found
    if len(found) > 1:
        marks = " or ".join(map(repr, found))
        raise TableError(f"{name}: fields may be separated by {marks}: pass --sep")
    return found[0] if found else usual


def _parquet(name: str, opened: Callable[[], Any]) -> Source:
    from pyarrow import parquet

    with opened() as raw, parquet.ParquetFile(raw) as file:
        columns = [one for one in file.schema_arrow.names if not one.startswith("__index_level_")]
    names = _names(columns, name)

    def batches() -> Iterator[pd.DataFrame]:
        with named_errors(name), opened() as raw, parquet.ParquetFile(raw) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                frame = batch.select(columns).to_pandas(ignore_metadata=True)
                yield frame.set_axis(list(names), axis=1)

    return Source(name, names, batches)


def _excel(name: str, opened: Callable[[], Any], sheet: str | None) -> Source:
    """A sheet; a column with numbers and texts is one of texts."""
    import pandas as pd

    from ..data.schema import label_of

    options: dict[str, Any] = {"header": None, "dtype": object, "keep_default_na": False}
    try:
        with opened() as file:
            sheets = pd.read_excel(file, sheet_name=None, engine="openpyxl", **options)
    except ImportError:
        raise ImportError("Excel files need openpyxl: pip install 'lazyknife[cli]'") from None
    except Exception:  # openpyxl's errors have no class in common
        raise TableError(f"{name}: not an Excel file (.xlsx), or damaged: save it again") from None
    chosen = next(iter(sheets)) if sheet is None else sheet
    if chosen not in sheets:
        ways = f"choose from {quoted_list(list(sheets))}"
        raise TableError(f"{name}: no sheet {quoted(sheet)}: {ways}")
    cells = sheets[chosen].replace("", float("nan")).dropna(how="all").dropna(axis=1, how="all")
    if not len(cells):
        raise TableError(f"{name}: sheet {quoted(chosen)} is empty: pass --sheet")
    names = _names(cells.iloc[0], name)
    frame = cells[1:].set_axis(list(names), axis=1).reset_index(drop=True).infer_objects()
    for column in names:
        if frame[column].map(lambda cell: isinstance(cell, str)).any():
            frame[column] = frame[column].map(label_of, na_action="ignore").fillna("").astype("str")
    several = sheet is None and len(sheets) > 1
    notes = [f"{name}: sheet {quoted(chosen)} is read (--sheet)."] if several else []
    return Source(name, names, lambda: iter([frame]), notes)


def typed_rows(rows: Sequence[str]) -> Source:
    """Rows that were typed as ``a=1, b=2``; a comma within a value is one of decimals."""
    import pandas as pd

    found = []
    for row in rows:
        parts = [part.partition("=") for part in re.split(r"[,;](?=[^=,;]+=)", row)]
        if not all(name.strip() and mark for name, mark, _ in parts):
            raise TableError(f"--row {quoted(row)}: give it like 'a=1, b=2'")
        found.append({name.strip(): value.strip() for name, _, value in parts})
    if any(row.keys() != found[0].keys() for row in found):
        raise TableError("--row: the rows have different columns: give each a value, or 'a='")
    frame = pd.DataFrame(found, dtype="str")
    return Source("--row", tuple(frame.columns), lambda: iter([frame]))


def rows_of(source: Source) -> pd.DataFrame:
    """Return all rows, at least one."""
    import pandas as pd

    frames = [frame for frame in source.batches() if len(frame)]
    if not frames:
        raise TableError(f"{source.name}: the file has no rows: give one with a header and rows")
    return pd.concat(frames, ignore_index=True)


# Columns


class Typed(NamedTuple):
    """Frames whose columns have types, with what was found, and notes of guesses."""

    frames: list[pd.DataFrame]
    formats: Formats
    notes: list[str]


def type_columns(
    frames: Sequence[pd.DataFrame],
    files: Sequence[str],
    formats: Formats,
    as_text: Sequence[str] = (),
) -> Typed:
    """Give columns of texts the types that they have in all frames; those ``as_text`` stay."""
    names = dict.fromkeys(name for frame in frames for name in frame if name not in as_text)
    columns = [Column(name, frames, files, formats) for name in names]
    columns = [column for column in columns if len(column.texts)]
    commas = any(column.fits(",") and not column.fits(".") for column in columns)
    decimal = formats.decimal or ("," if commas else formats.usual_decimal or ".")
    hows = {column.name: column.interpretation(decimal) for column in columns}
    notes = [note for column in columns for note in column.notes(hows[column.name])]
    with_commas = [
        column.name for column in columns if hows[column.name] == "," and column.has(",")
    ]
    if with_commas and "," not in (formats.decimal, formats.usual_decimal):
        notes.append(f"{quoted_list(with_commas)}: numbers with decimal commas (--decimal).")
    typed = [frame.copy() for frame in frames]
    for frame in typed:
        for name in frame:
            if (texts := texts_of(frame, name, formats)) is not None:
                frame[name] = parse(texts, hows.get(name, "text"))
    dates = {name: how for name, how in hows.items() if how.startswith("%")}
    dates = {**formats.usual_dates, **dates}
    return Typed(typed, replace(formats, usual_decimal=decimal, usual_dates=dates), notes)


class Column:
    """The texts of a column, each once, without those of missing values."""

    def __init__(
        self, name: str, frames: Sequence[pd.DataFrame], files: Sequence[str], formats: Formats
    ) -> None:
        import pandas as pd

        self.name, self.formats, self.files = name, formats, files
        texts = {file: texts_of(frame, name, formats) for file, frame in enumerate(frames)}
        known = {file: found for file, found in texts.items() if found is not None}
        whole = pd.concat(known).dropna() if known else pd.Series(dtype="str")
        dashes = whole.isin(DASHES if formats.na is None else ())
        self.dashes = whole[dashes].value_counts()
        distinct = whole[~dashes].drop_duplicates()
        self.places, self.texts = distinct.index, distinct.reset_index(drop=True)
        self.read: dict[str, pd.Series] = {}  # the first texts, or all, by interpretation

    def has(self, mark: str) -> bool:
        return bool(self.texts.str.contains(mark, regex=False).any())

    def fits(self, how: str) -> bool:
        """Whether all texts have an interpretation: a mark of decimals, "bool", a date's format."""
        if how not in self.read:
            sample = parse(self.texts[:SAMPLE], how)
            likely = 2 * sample.notna().sum() >= len(sample)
            self.read[how] = parse(self.texts, how) if likely else sample
        return int(self.read[how].notna().sum()) == len(self.texts)

    def interpretation(self, decimal: str) -> str:
        """How the texts are read; refuse a few that are odd among numbers or dates.

        Numbers and dates that leave it open have the mark ``decimal``, and the day first where
        that is a comma.
        """
        marks = [decimal] if self.formats.decimal else sorted(DECIMALS, key=decimal.__ne__)
        usual = self.formats.usual_dates.get(self.name)
        guessed = date_formats(self.texts[:5], self.formats.dates, decimal == ",")
        dates = [usual, *guessed] if usual else guessed
        for how in (*marks, "bool", *dates):
            if self.fits(how):
                return how
        for how in (*marks, *dates):
            odd = self.read[how].isna()
            if 2 * odd.sum() <= len(odd):
                text, (file, row) = self.texts[odd.idxmax()], self.places[odd.idxmax()]
                kind = f"number with decimal {DECIMALS[how]}" if how in DECIMALS else "date"
                ways = f"--na {shlex.quote(text)} or --categorical {shlex.quote(self.name)}"
                raise TableError(
                    f"{self.files[file]}: column {quoted(self.name)} has {quoted(text)} in row "
                    f"{row + 1}, which is not a {kind} like others: correct it, leave it empty, or "
                    f"pass {ways}"
                )
        return "text"

    def notes(self, how: str) -> Iterator[str]:
        """Say what was guessed."""
        if how == "text":
            return
        for text, count in self.dashes.items():
            yield f"{self.name}: {counted(count, 'value')} {quoted(text)} read as missing (--na)."
        first = self.texts.iloc[0]
        if how in DECIMALS and re.search(UNIT, first):
            yield f"{self.name}: {quoted(first)} is read as {self.read[how].iloc[0]:.15g}."
        if how == "." and self.has(",") and self.formats.decimal is None:
            yield f"{self.name}: numbers with commas between thousands (--decimal)."
        known = self.formats.dates or how == self.formats.usual_dates.get(self.name)
        if how.startswith(("%d", "%m")) and not known:
            order = "day" if how.startswith("%d") else "month"
            yield f"{self.name}: dates like {first} have the {order} first (--dates)."


def texts_of(frame: pd.DataFrame, name: str, formats: Formats) -> pd.Series | None:
    """The texts of a column without missing values and outer spaces; None if it has other types."""
    if name not in frame or str(frame[name].dtype) not in ("str", "string"):
        return None
    stripped = frame[name].str.strip()
    return stripped.mask(stripped.isin(MISSING if formats.na is None else ("", *formats.na)))


def parse(texts: pd.Series, how: str) -> pd.Series:
    """Read texts by an interpretation; those that do not have it become missing."""
    import pandas as pd

    if how == "text":
        return texts
    if how in DECIMALS:
        return _numbers(texts, how)
    if how == "bool":
        return texts.str.lower().map({"true": 1.0, "false": 0.0}).astype("float64")
    if how == ISO:
        texts = texts.where(texts.str.match(r"\d{4}-\d\d-\d\d").fillna(False))
    found = pd.to_datetime(texts, format=how, errors="coerce", utc=True)
    return found.dt.tz_localize(None).astype("datetime64[us]")


def _numbers(texts: pd.Series, decimal: str) -> pd.Series:
    """Numbers with a mark of decimals, without marks of thousands and the unit of the first."""
    import numpy as np
    import pandas as pd

    found = pd.to_numeric(texts, errors="coerce").astype("float64")
    plain = np.isfinite(found) & ((decimal == ".") | ~texts.str.contains(".", regex=False))
    rest = texts[texts.notna() & ~plain].astype(object).map(lambda text: text.translate(ALIKE))
    if not len(rest):
        return found
    other = "," if decimal == "." else "."
    found_unit = re.search(UNIT, rest.iloc[0])
    unit = f"(?:{re.escape(found_unit[0])})?" if found_unit else ""
    groups = rf"[1-9]\d{{0,2}}(?P<mark>[{other} '])\d{{3}}(?:(?P=mark)\d{{3}})*|\d*"
    number = rf"(?=[.,]?\d)(?:{groups})(?:[{decimal}]\d*)?(?:[eE][+-]?\d+)?"
    pattern = re.compile(rf"[+-]?{unit} ?[+-]?{number} ?{unit}", re.ASCII)
    fitting = rest[rest.map(lambda text: pattern.fullmatch(text) is not None)]
    digits = fitting.str.replace(rf"{UNIT}|[{other} ']", "", regex=True).str.replace(decimal, ".")
    read = pd.to_numeric(digits, errors="coerce").astype("float64")
    return found.where(plain).fillna(read.reindex(found.index))


def date_formats(texts: Iterable[str], given: str | None, day_first: bool) -> list[str]:
    """Formats of dates that texts may have, the likely one first, as pandas guesses them.

    Dates with points have the day first; of others both orders are tried, unless one is given.
    """
    from pandas.tseries.api import guess_datetime_format

    if given is not None and given not in ORDERS:
        return [given]
    orders, found = [ORDERS[given]] if given else [day_first, not day_first], []
    for text in texts:
        points = re.match(r"\d{1,2}\.\d{1,2}\.", text)
        whole = re.sub(r"^(\d{1,2}\.\d{1,2}\.)(?=\d\d(?!\d))", r"\g<1>20", text)  # 31.12.24
        for order in [True] if points else orders:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                guess = guess_datetime_format(whole, dayfirst=order) or ""
            is_other = "%m" in guess and guess[1] != "Y" and guess.startswith("%d") != order
            if "%d" in guess and not guess.startswith("%Y-%d") and not is_other:
                guess = guess if whole == text else guess.replace("%Y", "%y")
                found.append(ISO if guess.startswith("%Y-") else guess)
    return list(dict.fromkeys(found))
