"""What an estimator knows of its training rows: whether other rows look like them."""

from __future__ import annotations

from typing import Any

from ..data.inputs import is_shaped
from ..records import Array
from ..shift import Shift, compare_rows
from .warn import warn_if_shifted


class ComparesRows:
    """Estimators that keep a sample of their training rows."""

    sample_: Array  # rows as they were passed, at most 2,000 of them
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
        rows = self._check_new(X_new)
        return compare_rows(self.sample_, rows, getattr(self, "feature_names_in_", None))

    def _compare_pool(self, rows: Array, pool: Array | None, X: Any) -> None:
        """Warn if the rows to predict, given before the fit, do not look like the training rows."""
        if pool is not None:
            names = None if is_shaped(X) or not hasattr(X, "columns") else list(X.columns)
            warn_if_shifted(compare_rows(rows, pool, names))
