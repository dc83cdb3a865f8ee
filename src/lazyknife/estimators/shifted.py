"""What an estimator knows of its training rows: whether other rows look like them."""

from __future__ import annotations

from typing import Any

from ..data.rows import RowReader, take
from ..data.scaling import Scaling
from ..records import Array
from ..shift import Shift, compare_rows, kept_places, kept_rows
from .records import Given
from .warn import warn_if_shifted


class ComparesRows:
    """Estimators that keep a sample of their training rows."""

    sample_: Array  # rows as they were read, at most 2,000 of them
    reader_: RowReader
    scaling_: Scaling
    _check_new: Any

    def check_exchangeable(self, X_new: Any) -> Shift:
        """Test whether new rows look like the training rows; see ``lazyknife.check_exchangeable``.

        It uses a sample of at most 2,000 training rows that the fitted estimator keeps. Intervals
        and certificate stay as they are.

        Parameters
        ----------
        X_new
            New rows, as for ``predict_interval``.

        """
        rows = _comparable(self._check_new(X_new), self.reader_, self.scaling_)
        names = None if self.reader_.raw else getattr(self, "feature_names_in_", None)
        return compare_rows(self.sample_, rows, names, self.reader_.schema)

    def _keep_rows(self, X: Any) -> None:
        """Keep a sample of the training rows."""
        rows = self.reader_(_some(X, self.reader_), self)
        self.sample_ = kept_rows(_comparable(rows, self.reader_, self.scaling_))

    def _compare_pool(self, given: Given, X: Any, X_pool: Any) -> None:
        """Warn if the rows to predict, given before the fit, do not look like the training rows."""
        if X_pool is None:
            return
        reader, scaling = given.reader, given.scaling
        old, new = (_comparable(reader(part, self), reader, scaling) for part in (X, X_pool))
        names = None if reader.raw else given.names
        warn_if_shifted(compare_rows(old, new, names, reader.schema))


def _some(X: Any, reader: RowReader) -> Any:
    """The rows of a frame that are kept, so that no others are encoded again; other rows."""
    if reader.schema is None:
        return X
    places = kept_places(len(X), len(reader.schema.features))
    return X if isinstance(places, slice) else take(X, places)


def _comparable(rows: Any, reader: RowReader, scaling: Scaling) -> Array:
    """Rows as an array; of frames that a given transformer takes, what it makes of them."""
    found: Array = scaling(rows) if reader.raw else rows
    return found
