"""Exact coverage of what is asked beside an interval, of every bag of few atoms, ties among them.

Limits, boxes, sets of classes, groups and clusters; each has a mutant that misses more often.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lazyknife as lk
from enumeration.exact import Enumeration
from reference import Array

WIDE: dict[str, Any] = {"network": lk.wide("laplace", 1.0), "ridge": 0.3, "scaling": None}
WIDE |= {"feature_weights": None, "random_state": 0}
ATOMS = np.array([(0, 0.3), (0, 1.7), (1, 0.1 + 0.2), (1, 1.7), (3, -1.0)])
LABELS = np.array([(0, 0), (0, 1), (1, 1), (2, 0), (2, 2)], dtype=float)
UNKNOWN = SimpleNamespace(certificate_=SimpleNamespace(coverage=None))
Make = Callable[[Array, Array, float], Any]


@dataclass
class Answer:
    """What was fitted, its certificate, and whether rows are covered."""

    certificate_: Any
    covered: Callable[[Array, Array], Array]

    def predict_interval(self, X: Array) -> Any:
        return SimpleNamespace(covers=lambda truth: self.covered(X, truth))


def regressor(alpha: float, **terms: Any) -> Any:
    return lk.LazyJackknifeRegressor(**WIDE | terms, target_transform=None, alpha=alpha)


def limit(side: str) -> Make:
    def made(X: Array, y: Array, alpha: float) -> Any:
        model = regressor(alpha).fit(X, y)
        return Answer(
            model.predict_interval(X, side=side).certificate,
            lambda new, truth: model.predict_interval(new, side=side).covers(truth),
        )

    return made


def box(construction: str) -> Make:
    def made(X: Array, y: Array, alpha: float) -> Any:
        def both(X: Array, y: Array) -> Array:
            return np.column_stack([y, (y - X[:, 0]) ** 2])

        if (np.ptp(both(X, y), axis=0) == 0).any():
            return UNKNOWN
        model = regressor(alpha, construction=construction).fit(X, both(X, y))
        return Answer(
            model.certificate_,
            lambda new, truth: model.predict_box(new).covers(both(new, truth)),
        )

    return made


def labels(construction: str) -> Make:
    """A class that no training row has counts as covered: the certificate assumes it away."""

    def made(X: Array, y: Array, alpha: float) -> Any:
        if len(set(y)) < 2:
            return UNKNOWN
        model = lk.LazyJackknifeClassifier(**WIDE, construction=construction, alpha=alpha)
        model.fit(X, y.astype(int))

        def covered(new: Array, truth: Array) -> Array:
            known = np.isin(truth, model.classes_)
            places = np.searchsorted(model.classes_, truth).clip(max=len(model.classes_) - 1)
            return ~known | model.predict_set(new)[np.arange(len(new)), places]

        return Answer(model.certificate_, covered)

    return made


def point_alone(X: Array, y: Array, alpha: float) -> Any:
    """A mutant: the most likely class alone, with the certificate of sets."""
    if len(set(y)) < 2:
        return UNKNOWN
    model = lk.LazyJackknifeClassifier(**WIDE, construction="full", alpha=alpha)
    model.fit(X, y.astype(int))
    return Answer(
        model.certificate_,
        lambda new, truth: (model.predict(new) == truth) | ~np.isin(truth, model.classes_),
    )


def other_side(X: Array, y: Array, alpha: float) -> Any:
    """A mutant: the lower limit in place of the upper one."""
    model = regressor(alpha).fit(X, y)
    certificate = model.predict_interval(X, side="upper").certificate
    return Answer(
        certificate, lambda new, truth: truth <= model.predict_interval(new, side="lower").lower
    )


CASES: dict[str, tuple[Make, Array, int, int]] = {
    **{f"{side} limit": (limit(side), ATOMS, 4, 1) for side in ("upper", "lower")},
    "upper limit, rank 2": (limit("upper"), ATOMS[:4], 5, 2),
    **{f"box, {each}": (box(each), ATOMS, 4, 1) for each in ("plus", "minmax")},
    **{f"classes, {each}": (labels(each), LABELS, 4, 1) for each in ("plus", "minmax", "full")},
    "classes, full, rank 2": (labels("full"), LABELS[:4], 5, 2),
}
MUTANTS = {
    "the class alone": (point_alone, LABELS, 4, 1),
    "the other side": (other_side, ATOMS, 4, 1),
}


def worst(make: Make, atoms: Array, n: int, rank: int) -> tuple[Fraction, float]:
    """The largest probability of a miss of any bag, and the coverage that is certified."""
    alpha = rank / (n + 1)
    found = Enumeration(lambda X, y: [(1, make(X, y, alpha))], atoms, [range(n)])
    missed = max(Fraction(found.miss(bag)) for bag in found.bags())
    (coverage,) = found.certified
    return missed, coverage


@pytest.mark.parametrize("name", CASES)
def test_no_law_is_covered_less_than_certified(name: str) -> None:
    missed, coverage = worst(*CASES[name])
    assert 1 - missed >= coverage - 1e-12
    assert missed > 0  # some law misses


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_error_is_found(name: str) -> None:
    missed, coverage = worst(*MUTANTS[name])
    assert 1 - missed < coverage - 0.04


def misses_of_groups(bag: Array, alpha: float, swapped: bool) -> dict[float, list[bool]]:
    """Of each group whether each of its rows is missed by the rows before it; the group is x."""
    found: dict[float, list[bool]] = {}
    for k, (x, y) in enumerate(bag):
        rows = np.delete(bag, k, axis=0)
        model = regressor(alpha).fit(rows[:, :1], rows[:, 1], groups=rows[:, 0])
        asked = 1 - x if swapped else x
        inside = model.predict_interval([[x]], groups=[asked]).covers([y])[0]
        found.setdefault(x, []).append(not inside)
    return found


@pytest.mark.filterwarnings("ignore:groups with too few")
def test_groups_are_covered_in_each_of_them_with_ties_and_by_other_groups_not() -> None:
    values, alpha, caught = [0.3, 0.1 + 0.2, 1.7, 9.0], 0.34, 0
    for ys in itertools.combinations_with_replacement(values, 4):
        bag = np.array([*((0.0, y) for y in ys), *((1.0, y / 9) for y in values)])
        bound = (2 * int(alpha * 4 + 1e-9) - 1) / 4
        for misses in misses_of_groups(bag, alpha, swapped=False).values():
            assert np.mean(misses) <= bound
        swapped = misses_of_groups(bag, alpha, swapped=True)
        caught += any(np.mean(misses) > bound for misses in swapped.values())
    assert caught


@pytest.mark.parametrize("sizes", [(1, 2, 1, 3), (2, 2, 2, 1)])
def test_clusters_of_tied_rows_are_covered_in_any_bag(sizes: tuple[int, ...]) -> None:
    """Each cluster is as likely to be the new one, and each of its rows the new row."""
    alpha, some = 0.5, False
    for ys in itertools.product([0.3, 1.7], repeat=4):
        labels = np.repeat(np.arange(4), sizes)
        X = np.array([[k % 2] for k in labels], dtype=float)
        y = np.array(ys)[labels] + 0.1 * (np.arange(len(labels)) % 2)
        missed = []
        for k in range(4):
            old = labels != k
            model = regressor(alpha).fit(X[old], y[old], clusters=labels[old])
            missed.append(1 - model.predict_interval(X[~old]).covers(y[~old]).mean())
        assert np.mean(missed) <= 1 - model.certificate_.coverage + 1e-12
        some |= max(missed) > 0
    assert some
