"""Write a table to a file, in the format of its suffix."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import replacing
from .formats import SEPARATORS, TableError, suffix_of

if TYPE_CHECKING:
    import pandas as pd


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame without its index; an old file stays until the new one is complete."""
    suffix = suffix_of(path)
    try:
        with replacing(path) as temporary:
            if suffix in SEPARATORS:
                data = frame.to_csv(index=False, sep=SEPARATORS[suffix]).encode()
                # Without a time stamp, the same table gives the same bytes.
                packed = gzip.compress(data, mtime=0) if suffix.endswith(".gz") else data
                temporary.write_bytes(packed)
            else:
                frame.to_parquet(temporary, index=False)
    except OSError as error:
        reason = error.strerror or error
        raise TableError(f"{path} cannot be written ({reason}): choose another folder") from None
