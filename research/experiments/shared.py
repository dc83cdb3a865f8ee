"""What several experiments use: the level, and files of rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ..pages import write_whole

ALPHA = 0.1


def keep(rows: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write rows to a file, and return what a reader of the file finds."""
    write_whole(path, rows.to_csv(index=False, float_format="%.6g"))
    return pd.read_csv(path)
