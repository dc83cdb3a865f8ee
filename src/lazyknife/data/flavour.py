"""The caller's kind of frame, and frames of that kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

EAGER = ("pandas", "modin", "cudf", "polars", "pyarrow")  # libraries whose frames hold their rows


def flavour_of(X: Any) -> str | None:
    """Return the library of a frame, such as ``"polars"``; None for what is not a frame."""
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return None
    library = frame.implementation.value
    return library if library in EAGER else None


def make_frame(
    columns: Mapping[str, NDArray[np.float64]], flavour: str | None, index: Any = None
) -> Any:
    """Return columns as a frame of a library, pandas for None, with row labels if there are any."""
    try:
        frame = nw.from_dict(dict(columns), backend=flavour or "pandas").to_native()  # type: ignore[arg-type]
    except ImportError as error:
        raise ImportError(
            f"to_frame needs {flavour or 'pandas'}: install it, or use to_numpy()"
        ) from error
    if index is not None:
        frame.index = index
    return frame
