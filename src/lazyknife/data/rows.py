"""The caller's rows: arrays, tensors, frames and batches of them as arrays, and results back.

Rows are read in the same way when fitting and when predicting (``RowReader``). What could be
misread is refused, and results come back in the caller's container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import _get_feature_names
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import warn
from .encoder import Expansion, TableEncoder, expansion_of
from .schema import Schema, as_frame, check_columns

Values = NDArray[Any]
Rows = Any  # an array, or the caller's frame

PAIRS = "give batches (X, y), such as those of a DataLoader over a TensorDataset"
COLUMN = "A column-vector y was passed when a 1d array was expected: pass y.ravel(), of shape (n,)"

# Batches.


def is_stream(X: Any) -> bool:
    """Whether X yields its rows in batches: an iterator, such as a generator, or a DataLoader."""
    return isinstance(X, (Iterator, DataLoader))


def batch_rows(batch: Any) -> Any:
    """Return the rows of a batch; a loader that also yields targets puts them after the rows."""
    if isinstance(batch, dict):
        raise TypeError(
            f"a batch is a dict with keys {list(batch)}: give an iterator of rows, or of tuples "
            "that begin with them"
        )
    if isinstance(batch, (tuple, list)) and len(batch) and hasattr(batch[0], "shape"):
        return batch[0]
    return batch


def all_rows(X: Any) -> Any:
    """Return the rows of all batches together; what is no stream, as it is."""
    return stack([batch_rows(batch) for batch in X]) if is_stream(X) else X


def rows_and_targets(X: Any, y: Any) -> tuple[Any, Any]:
    """Return the rows and targets of all batches together; what is no stream, as it is."""
    if not is_stream(X):
        return X, y
    if y is not None:
        raise ValueError(f"y was passed beside an X that yields batches: {PAIRS}, and y=None")
    pairs = list(X)
    for batch in pairs:
        if batch_rows(batch) is batch or len(batch) != 2:
            parts = isinstance(batch, (tuple, list))
            what = f"{len(batch)} parts" if parts else type(batch).__name__
            raise TypeError(f"X yields batches of {what}, without targets: {PAIRS}")
    return stack([rows for rows, _ in pairs]), stack([y for _, y in pairs])


# Containers.


def stack(parts: Sequence[Rows]) -> Rows:
    """Rows below each other, in their container: tensors, frames of one library, or arrays."""
    if not parts:
        raise ValueError("X yields no batches: an iterator can be read once only")
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat(list(parts))
    frames = [nw.from_native(part, pass_through=True) for part in parts]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        return nw.concat(frames).to_native()
    return np.concatenate([np.asarray(part) for part in parts])


def take(rows: Rows, places: NDArray[np.intp]) -> Rows:
    """Some of the rows, in the caller's container."""
    frame = nw.from_native(rows, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame[places].to_native()
    return (rows if isinstance(rows, Tensor) else np.asarray(rows))[places]


def plain(values: Any, name: str) -> Any:
    """Return a tensor as an array, and other containers as they are; refuse what would be misread.

    Floating tensors become float64, since numpy has no bfloat16.
    """
    _refuse(values, name)
    if isinstance(values, Tensor):
        dense = values.detach().cpu()
        return (dense.double() if dense.is_floating_point() else dense).numpy()
    if isinstance(values, np.ma.MaskedArray):
        return values.data  # nothing is masked
    return values


def _refuse(values: Any, name: str) -> None:
    """Refuse containers whose numbers cannot be read as rows of numbers."""
    kind, dtype = type(values).__name__, getattr(values, "dtype", None)
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor: pass {name}.to_dense()")
        if values.is_meta or values.is_quantized or values.is_complex():
            raise TypeError(f"{name} is a tensor of {dtype} on {values.device}: give real numbers")
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise TypeError(
            f"{name} is a masked array with masked values, which are no data: remove those rows, "
            "or pass a frame with missing values"
        )
    if isinstance(values, np.ndarray):
        if fields := values.dtype.names:
            rest = "pass a frame, or an array of numbers"
            raise TypeError(f"{name} is a structured array with fields {list(fields)}: {rest}")
        if values.dtype.kind in "mM":
            raise TypeError(f"{name} has type {dtype}: pass dates in a frame, or as numbers")
    if kind == "LazyFrame" or hasattr(values, "compute"):
        raise TypeError(f"{name} is lazy ({kind}): call .collect() or .compute() first")
    if isinstance(values, dict):
        raise TypeError(f"{name} is a dict with keys {list(values)}: pass a frame or an array")
    if isinstance(values, (Iterator, DataLoader, set, frozenset)):
        raise TypeError(f"{name} is of type {kind}: pass an array, a tensor or a frame")
    if isinstance(values, Dataset):
        raise TypeError(f"{name} is of type {kind}: pass DataLoader({name}, batch_size=256)")


def to_tensor(X: Values, copy: bool = True) -> Tensor:
    """Return a float64 tensor, or int64 for integer codes: a copy, which a network may change.

    Without ``copy`` the array is given away, and not copied if its rows lie one after the other.
    """
    return torch.from_numpy(np.array(X, order="C", copy=True if copy else None))


def give_back(values: Tensor, X: Any) -> Any:
    """Return a tensor on the device of X where the caller's rows X are one, else an array."""
    return values.to(X.device) if isinstance(X, Tensor) else values.cpu().numpy()


def backend_of(X: Any) -> str | None:
    """Return the library of a frame, such as ``"polars"``; None for what is not a frame."""
    frame = as_frame(X, "X")
    return None if frame is None else frame.implementation.value


def row_labels(X: Any) -> Any:
    """Return the index of a pandas frame, or None."""
    return X.index if hasattr(X, "index") and hasattr(X, "iloc") else None


def make_frame(
    columns: Mapping[str, NDArray[np.float64]], backend: str | None, index: Any = None
) -> Any:
    """Return columns as a frame of a library, pandas for None, with row labels if there are any."""
    library = backend or "pandas"
    try:
        frame = nw.from_dict(dict(columns), backend=library).to_native()  # type: ignore[arg-type]
    except ImportError as error:
        raise ImportError(f"to_frame needs {library}: install it, or use to_numpy()") from error
    if index is not None:
        frame.index = index
    return frame


# Numbers.


def is_shaped(X: Any) -> bool:
    """Whether X needs a network of its own: it has more than two axes, or integer codes."""
    if isinstance(X, Tensor):
        return X.ndim != 2 or not X.is_floating_point()
    return isinstance(X, np.ndarray) and X.ndim > 2


def check_features(X: Any, estimator: Any, *, name: str = "X", min_rows: int = 1) -> Values:
    """Return X as an array: float64, or integer codes where an integer tensor was given."""
    values, shaped = plain(X, name), is_shaped(X)
    codes = shaped and values.dtype.kind in "iu"
    way_out = "remove such rows" if shaped else "pass a frame for text, dates and gaps"
    terms = {"estimator": estimator, "input_name": name, "ensure_min_samples": min_rows}
    try:
        with np.errstate(all="ignore"):  # of huge values, which its test for infinity adds up
            dtype = np.int64 if codes else np.float64
            result: Values = check_array(values, dtype=dtype, allow_nd=shaped, **terms)
            return result
    except ValueError as error:
        first = str(error).splitlines()[0].rstrip(".")
        if "contains NaN" not in first and "could not convert" not in first:
            raise
        raise ValueError(f"{first}: {way_out}") from None


def check_target(y: Any, X: Values, estimator: Any, several: bool = False) -> NDArray[np.float64]:
    """Return y as a float64 vector as long as X, or, of ``several`` outputs, (n, outputs)."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    values = np.asarray(plain(y, "y"))
    if values.ndim == 2 and values.shape[1] == 1:
        warn(COLUMN, DataConversionWarning)
    if values.ndim > 2:
        raise ValueError(f"y has shape {values.shape}: give a number for each row of X")
    outputs = several and values.ndim == 2 and values.shape[1] > 1
    vector = values if outputs else column_or_1d(values)
    check_consistent_length(X, vector)
    return finite_numbers(vector, "y")


def finite_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return numbers in any container as float64; refuse text, missing and infinite ones."""
    found = np.asarray(plain(values, name))
    try:
        text = any(isinstance(value, str | bytes | complex) for value in found.ravel().tolist())
        if text or found.dtype.kind in "mM":
            raise ValueError(found.ravel()[:3].tolist())
        with np.errstate(over="ignore"):
            result: NDArray[np.float64] = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} has values that are not numbers: {error}: convert them") from None
    if not np.isfinite(result).all():
        place = tuple(np.argwhere(~np.isfinite(result))[0])
        shown = f"{name}[{', '.join(map(str, place))}]" if place else name
        raise ValueError(f"{shown}={found[place]} is not a finite number: leave such rows out")
    return result


def as_fitted(rows: Values, codes: bool, name: str) -> Values:
    """Return an array in the type of the rows that were fitted: numbers, or integer codes."""
    fitted = np.int64 if codes else np.float64
    if not isinstance(rows, np.ndarray) or rows.dtype == fitted:
        return rows
    with np.errstate(invalid="ignore"):
        found = rows.astype(fitted)
    if codes and not np.array_equal(found, rows):
        raise ValueError(
            f"{name} has numbers that are not whole, but the rows that were fitted were a tensor "
            "of integer codes: pass integers"
        )
    return found


# Reading.


@dataclass(frozen=True)
class RowReader:
    """How rows are read: of arrays and tensors the numbers, of frames the columns by name."""

    schema: Schema | None = None  # how the columns of a frame become features
    columns: tuple[Any, ...] | None = None  # of frames that a transformer of the user takes

    @property
    def raw(self) -> bool:
        """Whether frames are passed on as they are."""
        return self.columns is not None

    @property
    def encodes(self) -> bool:
        """Whether rows of a frame are read: they may have codes of categories, and gaps."""
        return self.schema is not None

    def finds_by_name(self, X: Any) -> bool:
        """Whether X is a frame like that of the fit, so that the order of its columns is free."""
        return (self.encodes or self.raw) and as_frame(X, "X") is not None

    @property
    def nominal(self) -> tuple[bool, ...] | None:
        """Which features are codes of categories; None: none of them."""
        codes = () if self.schema is None else self.schema.nominal
        return codes if any(codes) else None

    def __call__(self, X: Any, estimator: Any, *, name: str = "X", min_rows: int = 1) -> Rows:
        """Return rows as an array (rows, features), in which NaN is a missing value of a frame."""
        frame = as_frame(X, name)
        if frame is None or not (self.encodes or self.raw):
            if self.schema is None or self.schema.plain:
                return check_features(X, estimator, name=name, min_rows=min_rows)
            raise TypeError(
                f"{name} is of type {type(X).__name__}, but the rows that were fitted were a "
                "frame: pass a frame with the same columns"
            )
        if len(frame) < min_rows:
            raise ValueError(f"{name} has {len(frame)} row(s): give at least {min_rows}")
        if self.schema is not None:
            return self.schema.read(frame, name)
        columns = list(self.columns or ())
        check_columns(columns, frame.columns, name)
        same = frame.columns == columns
        return X if same else frame[:, list(map(frame.columns.index, columns))].to_native()

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
        found = _get_feature_names(X) if self.schema is None and not is_shaped(X) else None
        return found if self.schema is None else self.schema.features


def make_reader(X: Any, others: Sequence[Any], encoding: Any, raw: bool) -> RowReader:
    """Return how rows like X are read.

    ``others`` are further rows, some of which may be None; ``encoding`` is a ``TableEncoder``, or
    None for its defaults; ``raw`` says that a transformer of the user takes frames as they are.
    """
    frame = as_frame(X, "X")
    if encoding is not None:
        if not isinstance(encoding, TableEncoder):
            raise TypeError(f"encoding={encoding!r}: give a TableEncoder or None")
        if frame is None:
            kind = type(X).__name__
            raise TypeError(f"encoding={encoding!r} requires X to be a frame, not {kind}")
        if raw:
            raise ValueError(
                f"encoding={encoding!r} with a transformer as scaling, which receives the frame as "
                "it is: give one of them"
            )
    if frame is None:
        return RowReader()
    if raw:
        return RowReader(columns=tuple(frame.columns))
    given = [other for other in others if other is not None]
    return RowReader((encoding or TableEncoder()).schema(X, given))
