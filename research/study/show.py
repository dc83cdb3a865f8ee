"""What tables and figures of studies share: means with standard errors, and names for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import datasets
from .grid import SETTING_FIELDS
from .trial import MEASURES, SIMULATED

if TYPE_CHECKING:
    import pandas as pd

MEANS = [*MEASURES, "seconds"]
SCHEMES = {"cv": "CV+", "split": "split", "quantile": "quantile", "normalised": "normalised"}
MODELS = {
    "ridge": "ridge",
    "forest": "forest",
    "boosting": "boosting",
    "gp": "Gaussian process",
    "extratrees": "extra trees",
    "boosting5": "boosting, small leaves",
    "gradient": "gradient boosting",
}
WORDS = {
    "cv+": "CV+",
    "split_conformal": "split conformal",
    "lazy_finetune": "lazy fine-tuned",
    "lazy_dp": "DP-Lazy PI",
    "lazy_public": "lazy public",
    "lazy_split": "lazy split",
    "lazyknife": "lazyknife, private",
    "lazyknife_public": "lazyknife, public",
    "lazyknife_leverage": "lazyknife, leverage widths",
    "lazyknife_absolute": "lazyknife, constant widths",
    "lazyknife_minmax": "lazyknife, minmax",
    "lazyknife_full": "lazyknife, full conformal",
    "lazyknife_cv+": "lazyknife, CV+",
    "lazyknife_network": "lazyknife, network readout",
    "lightgbm_cv": "CV+, LightGBM",
    "lightgbm_cross_quantile": "cross-conformal quantiles, LightGBM",
    "lightgbm_quantile": "CQR, LightGBM",
    "lazyknife_linear": "lazyknife, linear network",
    "lazyknife_no_skip": "lazyknife, no skip connection",
    "lazyknife_256": "lazyknife, 256 units",
    "lazyknife_starts": "lazyknife, 8 starts",
    "lazyknife_starts_leverage": "lazyknife, 8 starts, leverage widths",
    "lazyknife_tables": "lazyknife's default",
    "lazyknife_tables_minmax": "lazyknife's default, minmax",
    "lazyknife_tables_full": "lazyknife's default, full conformal",
    "jackknife_forest": "jackknife+ of forests",
    "cross_quantile": "cross-conformal quantile boosting",
    "online_ridge": "online-cp, kernel ridge",
    "crepes_forest": "crepes, forest",
    "puncc_adaptive": "puncc, adaptive forests",
    "laplace_network": "laplace-torch, network",
    **{
        f"mapie_{scheme}_{model}": f"MAPIE {scheme_words}, {words}"
        for scheme, scheme_words in SCHEMES.items()
        for model, words in MODELS.items()
    },
}
# Sets that are only used in their own units.
UNCHANGED = {
    **{name: e.title for name, e in {**datasets.TABLES, **datasets.PUBLISHED}.items()},
    **{name: formula.title for name, formula in datasets.FORMULAS.items()},
    "diabetes": "diabetes",
}


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


def in_words(method: str) -> str:
    """Return a method's name for people; a caller's own method has the caller's name."""
    return WORDS.get(method, method)


def heading(data: str, transform: Any) -> str:
    """Name a data set for people."""
    if data.startswith(SIMULATED):
        return f"simulation, p = {data.removeprefix(SIMULATED)}"
    if data in UNCHANGED:
        return UNCHANGED[data]
    if data not in datasets.DATASETS:  # a caller's own
        return data
    title = datasets.DATASETS[data].title
    if data in datasets.FRAMES:
        return title.replace("_", " ")
    return f"{title}, {transform}" if isinstance(transform, str) else f"{title}, raw"


def labels(
    summary: pd.DataFrame, part: pd.DataFrame, name: Callable[[str], str] = str
) -> list[str]:
    """Name the methods; with their readout where a method is shown with several."""
    several = summary.groupby("method")["readout"].nunique().max() > 1
    pairs = zip(part["method"], part["readout"], strict=True)
    return [f"{name(m)}, {readout}" if several else name(m) for m, readout in pairs]
