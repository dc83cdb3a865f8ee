"""Rows of a Parquet file as frames, column by column or in batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TableError
from .formats import check_unique, load

if TYPE_CHECKING:
    import pandas as pd

INDEX = "__index_level_"  # begins the row labels of pandas in a Parquet file, which are not data
DAMAGED = "not a Parquet file, or damaged: write it again, or give a CSV file"
BUFFER = 2**16  # bytes of a column that are read at a time


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Yield the open file; whatever is wrong with it is a TableError."""
    arrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise TableError(f"{path}: {DAMAGED}") from None


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of the columns, which are distinct."""
    with opened(path) as file:
        names = [str(name) for name in file.schema_arrow.names]
        check_unique(names, str(path))
        return tuple(name for name in names if not name.startswith(INDEX))


def read_columns(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Return columns, read one after the other: all at once would take twice the memory."""
    pandas = load("pandas")
    with opened(path) as file:
        columns = {name: _frame(file.read([name]), [name])[name] for name in names}
        index = pandas.RangeIndex(file.metadata.num_rows)
        return pandas.DataFrame(columns, index, copy=False)


def read_batches(path: Path, names: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
    """Yield the rows of columns, some at a time; one frame without rows if there are none."""
    arrow = load("pyarrow")
    with opened(path) as file:
        if not file.metadata.num_rows:
            yield _frame(file.read(list(names)), names)
        for batch in file.iter_batches(rows, columns=list(names)):
            yield _frame(arrow.Table.from_batches([batch]), names)


def _frame(table: Any, names: Collection[str]) -> Any:
    return table.select(list(names)).to_pandas(ignore_metadata=True)
