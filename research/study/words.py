"""Words for the methods, for the labels of figures."""

from __future__ import annotations

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
    "lazyknife_linear": "lazyknife, linear network",
    "lazyknife_no_skip": "lazyknife, no skip connection",
    "lazyknife_256": "lazyknife, 256 units",
    "lazyknife_starts": "lazyknife, 8 starts",
    "lazyknife_starts_leverage": "lazyknife, 8 starts, leverage widths",
    "lazyknife_tables": "lazyknife's default",
    "lazyknife_tables_minmax": "lazyknife's default, minmax",
    "lazyknife_tables_full": "lazyknife's default, full conformal",
    "lazyknife_before": "lazyknife's earlier default",
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


def in_words(method: str) -> str:
    """Return a method's name for people; a caller's own method has the caller's name."""
    return WORDS.get(method, method)
