"""How the rows of a data set are cut into training rows, test rows and others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from .grid import Setting

Parts = list[NDArray[np.intp]]  # training rows, test rows, others
FOLDS = 10


def random(count: int, setting: Setting, number: int) -> Parts:
    """Draw n rows at random, and as many test rows as the setting asks for."""
    rows = np.random.default_rng([number, 1]).permutation(count)
    n_test = count if setting.n_test is None else setting.n_test
    return np.split(rows, [setting.n, setting.n + n_test])


def ten_fold(count: int, setting: Setting, number: int) -> Parts:
    """Fold ``number`` of ten, as in the code of Tailor et al. with their first seed.

    The setting's n is the smallest training part; some folds leave one row more.
    """
    folds = KFold(FOLDS, shuffle=True, random_state=1)
    train, test = list(folds.split(np.arange(count)))[number]
    return [train, test, train[:0]]


def jaws(count: int, setting: Setting, number: int) -> Parts:
    """Draw n rows by numpy's old generator, test on the rest: as the code of Prinster et al."""
    train = np.random.RandomState(number).choice(count, setting.n, replace=False)
    return [train, np.setdiff1d(np.arange(count), train), train[:0]]


SPLITS: dict[str, Callable[[int, Setting, int], Parts]] = {
    "random": random,
    "ten_fold": ten_fold,
    "jaws": jaws,
}
