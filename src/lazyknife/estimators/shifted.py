"""What an estimator knows of its training rows: whether other rows look like them."""

from __future__ import annotations

from typing import Any

from ..data.reading import Reader
from ..data.scaling import Scaling
from ..records import Array
from ..shift import Shift, check_exchangeable, compare_rows, kept_rows
from .warn import warn_if_shifted


class ComparesRows:
    """Estimators that keep a sample of their training rows."""

    sample_: Array  # rows as they were read, at most 2,000 of them
    reader_: Reader
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
        rows = self._comparable(X_new)
        names = None if self.reader_.raw else getattr(self, "feature_names_in_", None)
        return compare_rows(self.sample_, rows, names, self.reader_.schema)

    def _comparable(self, X: Any) -> Array:
        """Rows as an array; of frames that a given transformer takes, what it makes of them."""
        rows = self._check_new(X)
        found: Array = self.scaling_(rows) if self.reader_.raw else rows
        return found

    def _keep_rows(self, X: Any) -> None:
        self.sample_ = kept_rows(self._comparable(X))

    def _compare_pool(self, X: Any, X_pool: Any) -> None:
        """Warn if the rows to predict, given before the fit, do not look like the training rows."""
        if X_pool is not None:
            warn_if_shifted(check_exchangeable(X, X_pool))
