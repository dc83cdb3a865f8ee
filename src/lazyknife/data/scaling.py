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

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

from .. import sentences
from .encoder import Expansion
from .rows import Rows, stack, take

Features = NDArray[Any]

# Columns this many times as large as one, or as the others, are named; so many at most.
UNLIKE, MOST_NAMED = 1e3, 3

# Equal rows are no chance where they are this many times as many as repeated values explain, after
# these more rows count as repeated.
TIMES_CHANCE, FEW_MORE = 2.0, 3


def symlog(X: Features) -> Features:
    """sign(x)·log(1 + |x|), elementwise: compresses heavy tails and depends on no data."""
    result: Features = np.sign(X) * np.log1p(np.abs(X))
    return result


# Scalings by name. "auto" scales by each model's own rows, see own_scaling.py.
TRANSFORMS: dict[str | None, Callable[[], Any]] = {
    None: lambda: None,
    "auto": lambda: None,
    "symlog": lambda: FunctionTransformer(symlog),
    "standardize": StandardScaler,
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What learning from covariates means for the certificate."""

    assumptions: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    rows: str = sentences.ANY_ROW  # for which a certificate holds
    pool: frozenset[int] | None = None  # their fingerprints, if they are those of X_pool only


@dataclass(frozen=True)
class Scaling(Terms):
    """From rows to features, and what it means for the certificate."""

    transformer: Any = None  # a fitted scikit-learn transformer
    expansion: Expansion | None = None  # of categories and gaps, where the models need numbers
    shape: tuple[int, ...] | None = None  # of a row of the features that were fitted

    def __call__(self, X: Rows) -> Features:
        if self.expansion is not None:
            X = self.expansion(X)
        if self.transformer is None:
            return np.asarray(X)
        with np.errstate(all="ignore"):  # what overflows is refused below
            found = self.transformer.transform(X)
        try:
            if np.iscomplexobj(found):
                raise TypeError("complex numbers are not real")
            dense = found.toarray() if issparse(found) else found
            result: Features = np.asarray(dense, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"scaling={self.transformer!r} gave values that are not numbers: {error}"
            ) from None
        gaps = np.isnan(X) if isinstance(X, np.ndarray) and X.shape == result.shape else False
        if result.ndim < 2 or len(result) != len(X) or not result.size:
            wrong = f"an array of shape {result.shape} for {len(X)} rows"
            remedy = "gives a row of features for each row"
        elif self.shape not in (None, result.shape[1:]):
            wrong = f"rows of shape {result.shape[1:]}, but {self.shape} in fit"
            remedy = "always gives the same features"
        elif not (np.isfinite(result) | (np.isnan(result) & gaps)).all():
            wrong, remedy = "values that are not finite", "is defined on all rows"
        else:
            return result
        raise ValueError(
            f"scaling={self.transformer!r} gave {wrong}: choose a scaling that {remedy}"
        )

    @property
    def new_rows(self) -> int | None:
        """How many rows the certificate is about, where that is known."""
        return None if self.pool is None else len(self.pool)

    def outside_pool(self, X: Features) -> int:
        """Return how many rows the certificate does not hold for."""
        return 0 if self.pool is None else sum(row not in self.pool for row in fingerprints(X))


def fingerprints(X: Rows) -> list[int]:
    """One number a row, equal for equal rows and in every process (a model may be pickled)."""
    if isinstance(X, np.ndarray):
        rows = np.ascontiguousarray(X) + 0.0  # -0.0 is 0.0
        texts = [row.tobytes() for row in rows]
    else:
        texts = [repr(row).encode() for row in nw.from_native(X, eager_only=True).rows()]
    digests = (blake2b(text, digest_size=8).digest() for text in texts)
    return [int.from_bytes(digest) for digest in digests]


@dataclass(frozen=True)
class Source(Terms):
    """Covariates to learn from, and what that means for the certificate."""

    covariates: Rows


def find_source(
    X: Rows, *, apart: Rows | None, pool: Rows | None, unlabeled: Rows | None
) -> Source:
    """Return the covariates to learn from, without a leak where the rows given allow it.

    X are all training rows, ``apart`` those that the leave-one-out step will not use (a ``Split``
    base's part), ``pool`` the rows to predict, ``unlabeled`` rows outside training and test.
    """
    if pool is not None and unlabeled is not None:
        raise ValueError("give X_pool or X_unlabeled, not both")
    if pool is not None:
        return Source(
            distinct_rows(stack([X, pool])),
            assumptions=(sentences.POOLED,),
            rows=sentences.POOL_ROWS,
            pool=frozenset(fingerprints(pool)),
        )
    if unlabeled is not None:
        count = _training_rows(X, unlabeled)
        leak = (sentences.TRAINING_ROWS_OUTSIDE.format(count=count),) if count else ()
        return Source(unlabeled, assumptions=(sentences.OUTSIDE,), objections=leak)
    if apart is not None:
        return Source(apart)
    return Source(X, objections=(sentences.FITTED_ON_TRAINING,))


def _training_rows(X: Rows, others: Rows) -> int:
    """Count the others that are rows of X, and not merely equal to one.

    Rows of columns that repeat their values are often equal by chance. How often is estimated for
    each column by the share of rows that have the value of another one in the same table: it is
    about as likely that a row of the other table has a value of this one (Good and Turing). Rows
    that were repeated raise the share in one of the tables, and count once among the equal ones.
    Refusing a certificate by looking at rows is no leak, since that counts as covered; removing
    rows would be one.
    """
    known, marks = fingerprints(X), fingerprints(others)
    equal = len(set(known) & set(marks))
    repeats = _repeats(X), _repeats(others)
    alike = known == marks or not (repeats[0] + repeats[1]).all()
    for of, table, every in ((repeats[0], X, marks), (repeats[1], others, known)):
        by_chance = TIMES_CHANCE * (of.min() + FEW_MORE) / len(table)
        alike = alike or equal > by_chance * len(set(every))
    return sum(map(set(known).__contains__, marks)) if equal and alike else 0


def _repeats(X: Rows) -> NDArray[np.int_]:
    """For each column, how many rows have a value that another row has."""
    if isinstance(X, np.ndarray):
        counts = [np.unique(of, return_counts=True)[1] for of in X.reshape(len(X), -1).T]
        return np.array([len(X) - (count == 1).sum() for count in counts])
    frame = nw.from_native(X, eager_only=True)
    return np.array([len(X) - int(column.is_unique().sum()) for column in frame.iter_columns()])


def distinct_rows(X: Rows) -> Rows:
    """Each row once, in the order of its first place.

    A pool that contains training rows must not count them twice. What is learnt from the set of
    rows is a symmetric function of them, as it must be.
    """
    marks = fingerprints(X)
    first = {mark: place for place, mark in reversed(list(enumerate(marks)))}
    return take(X, np.array(sorted(first.values())))


def unlike_columns(X: Features, names: Sequence[str] | None = None) -> str:
    """Return a clause that names columns far larger than the others, or nothing."""
    if X.ndim != 2 or X.dtype.kind != "f":
        return ""
    sizes = np.nan_to_num(np.abs(X)).max(axis=0)
    with np.errstate(over="ignore"):
        typical = np.median(sizes[sizes > 0]) if sizes.any() else 1.0
    order = np.argsort(-sizes, kind="stable")[:MOST_NAMED]
    found = ", ".join(
        f"{f'number {k}' if names is None else repr(str(names[k]))} ({sizes[k]:.2g})"
        for k in order
        if sizes[k] > UNLIKE * min(typical, 1.0)
    )
    return sentences.UNLIKE_SCALES.format(columns=found) if found else ""


def fit_scaling(
    scaling: Any, X: Rows, source: Source, learnt: bool = False, expansion: Expansion | None = None
) -> Scaling:
    """Fit the scaling where the guarantee allows it, and say what follows.

    A fixed one is fitted on all training rows X, any other on the source's covariates. ``learnt``
    says whether a base learns from these too; so was ``expansion``.
    """
    transformer = _unfitted(scaling)
    fixed = transformer is None or not get_tags(transformer).requires_fit
    assumed: tuple[str, ...] = ()
    if is_transformer(scaling):
        assumption = sentences.ROW_BY_ROW if fixed else sentences.IGNORES_ORDER
        assumed = (assumption.format(transformer=transformer),)
    if transformer is not None:
        rows = X if fixed else source.covariates
        with np.errstate(all="ignore"):
            transformer.fit(rows if expansion is None else expansion(rows))
    if fixed and not learnt and not (expansion is not None and expansion.learnt):
        return Scaling(transformer, expansion, assumptions=assumed)
    both = (assumed, source.assumptions) if fixed else (source.assumptions, assumed)
    leak = (sentences.ENCODED_ON_TRAINING,) if fixed and not learnt else source.objections
    return Scaling(
        transformer,
        expansion,
        assumptions=sum(both, ()),
        objections=leak if source.objections else (),
        rows=source.rows,
        pool=source.pool,
    )


def is_transformer(scaling: Any) -> bool:
    """Whether a scaling is a transformer that the user gave."""
    return not isinstance(scaling, str | None)


def _unfitted(scaling: Any) -> Any:
    """A transformer for what the user gave; None for no scaling."""
    if not is_transformer(scaling) and scaling in TRANSFORMS:
        return TRANSFORMS[scaling]()
    if isinstance(scaling, type) or not (hasattr(scaling, "fit") and hasattr(scaling, "transform")):
        error = ValueError if isinstance(scaling, str) else TypeError
        raise error(
            f"scaling={scaling!r}: choose from {', '.join(map(repr, TRANSFORMS))}, or give a "
            "scikit-learn transformer"
        )
    return clone(scaling)
