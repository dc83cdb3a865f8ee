"""Feature scaling that does not leak, or is named as a leak.

A fixed map looks at no data. A fitted one is harmless when it is fitted without labels on rows
outside training and test, or on the pool of training and test rows together: given the bag of all
covariates it is a constant, and the points are still exchangeable. Fitted on the very rows that
the leave-one-out step uses, it is a leak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

from ..sentences import (
    ANY_ROW,
    FITTED_ON_TRAINING,
    IGNORES_ORDER,
    OUTSIDE,
    POOL_ROWS,
    POOLED,
    ROW_BY_ROW,
    TRAINING_ROWS_OUTSIDE,
    UNLIKE_SCALES,
)

Features = NDArray[Any]

# Columns this many times as large as one, or as the others, are named; so many at most.
UNLIKE, MOST_NAMED = 1e3, 3


def symlog(X: Features) -> Features:
    """sign(x)·log(1 + |x|): tames heavy tails and looks at no data."""
    result: Features = np.sign(X) * np.log1p(np.abs(X))
    return result


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "symlog": lambda: FunctionTransformer(symlog),
    "standardize": StandardScaler,
}


@dataclass(frozen=True)
class Scaling:
    """A fitted transform, and what it means for the certificate.

    Attributes
    ----------
    transformer
        A fitted scikit-learn transformer; None changes nothing.
    assumptions, objections
        Sentences for the certificate.
    rows
        The rows for which a certificate holds.
    pool
        Fingerprints of the pool's rows, if the certificate holds for these only.

    """

    transformer: Any = None
    assumptions: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    rows: str = ANY_ROW
    pool: frozenset[int] | None = None

    def __call__(self, X: Features) -> Features:
        """Transform rows."""
        if self.transformer is None:
            return X
        result = np.asarray(self.transformer.transform(X), dtype=np.float64)
        if not np.isfinite(result).all():
            raise ValueError(
                f"scaling={self.transformer!r} gave values that are not finite: choose a "
                "transform that is defined on all rows"
            )
        return result

    @property
    def new_rows(self) -> int | None:
        """How many rows the certificate is about, where that is known."""
        return None if self.pool is None else len(self.pool)

    def outside_pool(self, X: Features) -> int:
        """Return how many rows the certificate does not speak of."""
        return 0 if self.pool is None else sum(row not in self.pool for row in fingerprints(X))


def fingerprints(X: Features) -> list[int]:
    """One number a row, equal for equal rows and in every process (a model may be pickled)."""
    rows = np.ascontiguousarray(X) + 0.0  # -0.0 is 0.0
    digests = (blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return [int.from_bytes(digest) for digest in digests]


def make_transformer(transform: Any) -> Any:
    """Return an unfitted transformer for what the user gave."""
    if transform is None:
        return None
    if isinstance(transform, str):
        if transform not in TRANSFORMS:
            raise ValueError(
                f"scaling={transform!r}: choose from {sorted(TRANSFORMS)}, or give None or a "
                "scikit-learn transformer"
            )
        return TRANSFORMS[transform]()
    if not (hasattr(transform, "fit") and hasattr(transform, "transform")):
        raise TypeError(
            f"scaling={transform!r}: give None, one of {sorted(TRANSFORMS)}, or a scikit-learn "
            "transformer"
        )
    return clone(transform)


@dataclass(frozen=True)
class Source:
    """Covariates that something may be learnt from, and what that means for the certificate.

    Attributes
    ----------
    covariates
        The rows.
    assumptions, objections, rows, pool
        As in ``Scaling``.

    """

    covariates: Features
    assumptions: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    rows: str = ANY_ROW
    pool: frozenset[int] | None = None


def find_source(
    X: Features,
    *,
    apart: Features | None,
    pool: Features | None,
    unlabeled: Features | None,
) -> Source:
    """Return the covariates to learn from where the guarantee allows it.

    Parameters
    ----------
    X
        All training rows.
    apart
        Training rows that the leave-one-out step will not use (a ``Split`` base's part).
    pool
        Rows to predict, without labels: they and X together are learnt from.
    unlabeled
        Rows outside training and test: they alone are learnt from.

    """
    if pool is not None and unlabeled is not None:
        raise ValueError("give X_pool or X_unlabeled, not both: covariates are learnt from once")
    if pool is not None:
        return Source(
            distinct_rows(np.concatenate([X, pool])),
            (POOLED,),
            rows=POOL_ROWS,
            pool=frozenset(fingerprints(pool)),
        )
    if unlabeled is not None:
        return Source(unlabeled, (OUTSIDE,), _overlap(X, unlabeled))
    if apart is not None:
        return Source(apart)
    return Source(X, objections=(FITTED_ON_TRAINING,))


def distinct_rows(X: Features) -> Features:
    """Each row once, in the order of its first place.

    A pool that holds training rows again must not count them twice. What is learnt from the set of
    rows is a symmetric function of them, as it must be.
    """
    marks = fingerprints(X)
    first = {mark: place for place, mark in reversed(list(enumerate(marks)))}
    return X[sorted(first.values())]


def _overlap(X: Features, unlabeled: Features) -> tuple[str, ...]:
    """Object to rows outside training that are training rows."""
    known = frozenset(fingerprints(X))
    shared = sum(mark in known for mark in fingerprints(unlabeled))
    return (TRAINING_ROWS_OUTSIDE.format(count=shared),) if shared else ()


def unlike_columns(X: Features, names: Sequence[str] | None = None) -> str:
    """Return a clause that names columns far larger than the others, or nothing."""
    if X.ndim != 2 or X.dtype.kind != "f":
        return ""
    sizes = np.abs(X).max(axis=0)
    typical = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 1.0
    order = np.argsort(-sizes, kind="stable")[:MOST_NAMED]
    far = [place for place in order if sizes[place] > UNLIKE * min(typical, 1.0)]
    if not far:
        return ""
    called = [repr(str(names[k])) if names is not None else f"number {k}" for k in far]
    listed = ", ".join(f"{name} ({sizes[k]:.2g})" for name, k in zip(called, far, strict=True))
    return UNLIKE_SCALES.format(columns=listed)


def fit_scaling(transform: Any, X: Features, source: Source, learnt: bool = False) -> Scaling:
    """Fit the transform where the guarantee allows it, and say what follows.

    Parameters
    ----------
    transform
        None, a key of ``TRANSFORMS`` or a scikit-learn transformer.
    X
        All training rows.
    source
        What a transform may be fitted on.
    learnt
        Whether something else learns from the source too.

    """
    transformer = make_transformer(transform)
    words = (source.assumptions, source.objections, source.rows, source.pool)
    if transformer is not None and transform != "symlog" and get_tags(transformer).requires_fit:
        if not isinstance(transform, str):
            words = (
                (*source.assumptions, IGNORES_ORDER.format(transformer=transformer)),
                *words[1:],
            )
        return Scaling(transformer.fit(source.covariates), *words)
    if transformer is not None:
        transformer = transformer.fit(X)
    own: tuple[str, ...] = ()
    if transformer is not None and transform != "symlog":
        own = (ROW_BY_ROW.format(transformer=transformer),)
    if not learnt:
        return Scaling(transformer, own)
    return Scaling(transformer, (*own, *source.assumptions), *words[1:])
