"""Warnings that point at the user's line."""

from __future__ import annotations

import sys
import warnings

# Packages whose frames lie between the user's line and a warning.
BETWEEN = (__package__, "sklearn", "joblib", "torch")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package and those that call it."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _package(frame.f_globals) in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).split(".")[0]
