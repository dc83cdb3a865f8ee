"""When coverage refutes what was certified, each with its probability of a false alarm."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from reference import Array

FALSE_ALARM = 1e-6


def misses_refute(missed: int, repetitions: int, bound: float) -> bool:
    """Whether so many misses, one at most in each repetition, refute a bound on their probability.

    A false alarm has probability 1e-6 at most.
    """
    return bool(missed > stats.binom.isf(FALSE_ALARM, repetitions, bound))


def standard_errors_above(coverages: Array | Sequence[float], level: float) -> float:
    """Mean coverage less the level, in standard errors from the spread between repetitions.

    Below −3 a true level is refuted with probability 1.3e-3 at most.
    """
    error = np.std(coverages, ddof=1) / math.sqrt(len(coverages))
    return float((np.mean(coverages) - level) / error)
