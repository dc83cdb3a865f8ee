"""From rows, one a trial, to means with standard errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .grid import SETTING_FIELDS
from .trial import MEASURES

if TYPE_CHECKING:
    import pandas as pd

MEANS = [*MEASURES, "seconds"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each combination of data, method and setting, in the rows' order.

    Columns are those of the combination, ``trials``, ``failed``, and for each measure its mean
    and its standard error, ``width`` and ``width_se``. ``seconds`` is fit plus prediction.
    """
    groups = ["data", "method", *SETTING_FIELDS]
    rows = rows.assign(
        seconds=rows["fit_seconds"] + rows["predict_seconds"], failed=rows["error"].notna()
    )
    grouped = rows.groupby(groups, sort=False, dropna=False)
    with np.errstate(invalid="ignore"):  # an infinite width has a mean, but no spread
        means = grouped[MEANS].mean()
        errors = grouped[MEANS].sem().add_suffix("_se")
    counts = grouped.agg(trials=("trial", "count"), failed=("failed", "sum"))
    return means.join(errors).join(counts).reset_index()
