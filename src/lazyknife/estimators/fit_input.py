"""From what the caller passes to ``fit`` to scaled rows and targets, without a leak or named.

``Given`` is what an estimator's own fit takes, and ``Fitted`` what it gives back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..certificate import Certificate
from ..data.rows import RowReader, check_target, make_reader, take, to_tensor
from ..data.scaling import Scaling, find_source, fit_scaling, is_transformer
from ..data.targets import Target
from ..errors import warn
from ..records import Array, Predictor
from ..shift import Shift, ShiftWarning, compare_rows, kept_rows

if TYPE_CHECKING:
    from .base import IntervalRegressor


RandomState = int | np.random.Generator | np.random.RandomState | None


class Seeds(NamedTuple):
    """Independent seeds for the parts of a fit.

    The seed of the lazy step (folds, sketches, probes) differs from the base's, because these draws
    must be independent of the base's noise.
    """

    start: int
    base: int
    rows: int
    lazy: int

    @classmethod
    def of(cls, random_state: RandomState) -> Seeds:
        """Draw the seeds; numpy's and torch's global states are not changed."""
        if isinstance(random_state, np.random.RandomState):
            draws = random_state.randint(0, 2**31 - 1, size=4)
        else:
            draws = generator_of(random_state).integers(0, 2**31 - 1, size=4)
        return cls(*(int(draw) for draw in draws))


def generator_of(random_state: RandomState) -> np.random.Generator:
    """Return numpy's generator for a seed; refuse what is none."""
    try:
        if not isinstance(random_state, bool | np.bool_):
            return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"random_state={random_state!r}: give None, a whole number of at least 0, or a generator "
        "of numpy.random"
    )


class Given(NamedTuple):
    """What the shared part hands to an estimator's own fit."""

    X: Tensor  # scaled rows
    y: Tensor  # targets on the scale of the models, shape (n,)
    shape: tuple[int, ...]  # of a row as it was read, before scaling
    reader: RowReader
    scaling: Scaling
    seeds: Seeds
    covariates: Tensor | None  # scaled rows without labels, if the estimator learns from them
    names: Sequence[str] | None  # of the features
    sample: Array  # some rows, to compare new ones with
    target: Target  # the scale of the models
    # Which features are codes of categories, of which only equality matters; None: none.
    nominal: tuple[bool, ...] | None = None
    clusters: tuple[Tensor, ...] | None = None  # the rows of each, which are left out together

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What scaling and target assume."""
        return (*self.scaling.assumptions, *self.target.assumptions)

    @property
    def stated(self) -> dict[str, Any]:
        """What the certificate takes from the input."""
        terms = {"rows": self.scaling.rows, "new_rows": self.scaling.new_rows}
        return {"assumptions": self.assumptions, "objections": self.scaling.objections, **terms}


class Fitted(NamedTuple):
    """What an estimator's own fit hands to the shared part."""

    loo: Predictor  # the models
    certify: Callable[..., Certificate]  # from a level ``alpha``; it can be pickled
    attributes: dict[str, Any]  # fitted attributes by name
    target: Target | None = None  # with the scale that models chose; None: the given one
    left_out: NDArray[np.intp] | None = None  # which rows are left out, in order; None: all


def prepare(estimator: IntervalRegressor, X: Any, y: Any, X_pool: Any, X_unlabeled: Any) -> Given:
    """Read, check and scale what was passed to ``fit``."""
    raw = is_transformer(estimator.scaling)
    reader = make_reader(X, (X_pool, X_unlabeled), estimator.encoding, raw)
    rows = reader(X, estimator, min_rows=2)
    labels = check_target(y, rows, estimator, estimator._several_outputs)
    if labels.ndim == 2:
        estimator._check_outputs(labels.shape)
    target = estimator._target().check(labels)
    seeds = Seeds.of(estimator.random_state)
    apart = estimator._rows_apart(len(rows), seeds)
    pool = reader.others(X_pool, rows, estimator, "X_pool")
    source = find_source(
        rows,
        apart=None if apart is None else take(rows, apart),
        pool=pool,
        unlabeled=reader.others(X_unlabeled, rows, estimator, "X_unlabeled"),
    )
    learns = estimator._learns_from_covariates()
    mixed = reader.encodes and estimator._takes_categories(rows)
    expansion = None if mixed else reader.expansion(source.covariates)
    wanted = estimator._scaling_for(rows, source)
    scaling = fit_scaling(wanted, rows, source, learns, expansion)
    scaled = scaling(rows)
    scaling = replace(scaling, shape=scaled.shape[1:])
    names = reader.names(X)
    # A transformer of the user's takes frames of any content: what it makes of them is compared.
    sample = kept_rows(scaled if reader.raw else rows)
    if pool is not None:
        same = (None, None) if reader.raw else (names, reader.schema)
        _warn_if_shifted(compare_rows(sample, scaling(pool) if reader.raw else pool, *same))
    clean = learns and not source.objections
    return Given(
        to_tensor(scaled, copy=not reader.encodes),  # of a frame it is an array of our own
        to_tensor(target.forward(labels)),
        rows.shape[1:],
        reader,
        scaling,
        seeds,
        to_tensor(scaling(source.covariates)) if clean else None,
        names,
        sample,
        target,
        reader.nominal if mixed else None,
    )


def _warn_if_shifted(shift: Shift) -> None:
    """Warn if the rows to predict, given before the fit, do not look like the training rows."""
    if shift.clear:
        warn(
            f"{shift} The certificate assumes exchangeable rows. With those, this warning appears "
            "in at most 1 % of the fits",
            ShiftWarning,
        )
