"""The caller's rows as an array, in the same way when fitting and when predicting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _get_feature_names

from ..tables import Expansion, Schema, TableEncoder, as_frame, expansion_of
from .inputs import as_fitted, check_features, is_shaped

Rows = Any  # an array, or the caller's frame


@dataclass(frozen=True)
class Reader:
    """How rows are read.

    Attributes
    ----------
    schema
        Of a frame; None for arrays and tensors.
    raw
        Whether the frame itself is passed on, to a transformer that the user gave.

    """

    schema: Schema | None = None
    raw: bool = False

    @property
    def nominal(self) -> tuple[bool, ...] | None:
        """Which features are codes of categories; None: none of them."""
        codes = () if self.schema is None else self.schema.nominal
        return codes if any(codes) else None

    def __call__(self, X: Any, estimator: Any, *, name: str = "X", min_rows: int = 1) -> Rows:
        """Return rows as an array (rows, features), in which NaN is a missing value of a frame."""
        frame = as_frame(X, name)
        if frame is not None and self.raw:
            _check_rows(len(frame), min_rows, name)
            return X
        if self.schema is None:
            return check_features(X, estimator, name=name, min_rows=min_rows)
        if frame is not None:
            _check_rows(len(frame), min_rows, name)
            return self.schema.read(frame, name)
        if self.schema.plain and not self.raw:
            return check_features(X, estimator, name=name, min_rows=min_rows)
        raise TypeError(
            f"{name} is of type {type(X).__name__}, but the rows that were fitted were a frame: "
            "pass a frame with the same columns"
        )

    @property
    def encodes(self) -> bool:
        """Whether rows are those of a frame: they may have codes of categories, and gaps."""
        return self.schema is not None

    def expansion(self, covariates: Rows) -> Expansion | None:
        """How rows of a frame become numbers alone, learnt from covariates."""
        if self.schema is None:
            return None
        found = expansion_of(covariates, self.schema.nominal, self.schema.features)
        if found.empty:
            raise ValueError(
                "X has no features left for a network: every category occurs once. Give columns "
                "of numbers, or network=None"
            )
        return found

    def names(self, X: Any) -> Sequence[str] | None:
        """Names of the features, if there are any."""
        if self.schema is not None:
            return self.schema.features
        found: Sequence[str] | None = None if is_shaped(X) else _get_feature_names(X)
        return found

    def width(self, X: Any, shape: tuple[int, ...]) -> int:
        """Number of columns of X, whose rows were read in this shape."""
        frame = as_frame(X, "X")
        return shape[0] if frame is None else len(frame.columns)

    def others(self, X: Any, like: Rows, estimator: Any, name: str) -> Rows | None:
        """Return further rows, if there are any; refuse those of another shape."""
        if X is None:
            return None
        rows = self(X, estimator, name=name)
        if rows.shape[1:] != like.shape[1:]:
            raise ValueError(
                f"{name} has rows of shape {rows.shape[1:]}, but those of X have "
                f"{like.shape[1:]}: pass the same features"
            )
        return rows if self.raw else as_fitted(rows, like.dtype.kind == "i", name)


def make_reader(X: Any, others: Sequence[Any], encoding: Any, raw: bool) -> Reader:
    """Return how rows like X are read.

    Parameters
    ----------
    X
        Training rows.
    others
        Further rows, some of which may be None.
    encoding
        A ``TableEncoder``, or None for its defaults.
    raw
        Whether a transformer that the user gave takes frames as they are.

    """
    if encoding is not None and not isinstance(encoding, TableEncoder):
        raise TypeError(f"encoding={encoding!r}: give a TableEncoder or None")
    if as_frame(X, "X") is None:
        if encoding is not None:
            raise TypeError(
                f"encoding={encoding!r} requires X to be a frame, not {type(X).__name__}"
            )
        return Reader()
    if raw and encoding is not None:
        raise ValueError(
            f"encoding={encoding!r} with a transformer as scaling, which receives the frame as it "
            "is: give one of them"
        )
    if raw:
        return Reader(raw=True)
    encoder = TableEncoder() if encoding is None else encoding
    return Reader(encoder.schema(X, [other for other in others if other is not None]))


def take(rows: Rows, places: NDArray[np.intp]) -> Rows:
    """Some of the rows, in the caller's container."""
    frame = nw.from_native(rows, eager_only=True, pass_through=True)
    return frame[places].to_native() if isinstance(frame, nw.DataFrame) else rows[places]


def stack(parts: Sequence[Rows]) -> Rows:
    """Rows below each other; all parts are arrays, or frames of the same library."""
    frames = [nw.from_native(part, eager_only=True, pass_through=True) for part in parts]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        return nw.concat(frames).to_native()
    return np.concatenate(parts)


def _check_rows(rows: int, least: int, name: str) -> None:
    if rows < least:
        raise ValueError(f"{name} has {rows} row(s): give at least {least}")
