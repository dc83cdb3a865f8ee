"""Records that the shared part of the estimators and each one's own fit exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..certificate import Certificate
from ..data.rows import RowReader
from ..data.scaling import Scaling
from ..data.targets import Target
from ..records import Predictor


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
    def of(cls, random_state: Any) -> Seeds:
        """Draw the seeds; numpy's and torch's global states are not changed."""
        if isinstance(random_state, np.random.RandomState):
            draws = random_state.randint(0, 2**31 - 1, size=4)
        else:
            draws = generator_of(random_state).integers(0, 2**31 - 1, size=4)
        return cls(*(int(draw) for draw in draws))


def generator_of(random_state: Any) -> np.random.Generator:
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
    """What the shared part hands to an estimator's own fit.

    Attributes
    ----------
    X, y
        Scaled rows, and targets on the scale of the models, shape (n,).
    shape
        Of a row as it was read, before scaling.
    reader, scaling, seeds
        How the rows were read and scaled, and the seeds to use.
    covariates
        Scaled rows without labels, if the estimator learns from them.
    names
        Names of the features, if there are any.
    target
        The scale of the models.
    nominal
        Which features are codes of categories, of which only equality matters; None: none.

    """

    X: Tensor
    y: Tensor
    shape: tuple[int, ...]
    reader: RowReader
    scaling: Scaling
    seeds: Seeds
    covariates: Tensor | None
    names: Sequence[str] | None
    target: Target
    nominal: tuple[bool, ...] | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What scaling and target assume."""
        return (*self.scaling.assumptions, *self.target.assumptions)


class Fitted(NamedTuple):
    """What an estimator's own fit hands to the shared part.

    Attributes
    ----------
    loo
        The models.
    certify
        From a level ``alpha`` to its certificate; it can be pickled.
    attributes
        Fitted attributes by name.

    """

    loo: Predictor
    certify: Callable[..., Certificate]
    attributes: dict[str, Any]
