"""Methods and rows to enumerate, as data."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import lazyknife as lk
from enumeration.exact import Bag, Enumeration, Method
from lazyknife.base import BaseMethod
from lazyknife.choosing.rows import Leaving, draw_part, drawn_part, part_of
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.fit_per_model import ChoosingStep
from lazyknife.estimators.lazy import LazyJackknifeRegressor
from lazyknife.networks import mlp, wide
from lazyknife.records import Base, PrivacyCurve
from lazyknife.results import Intervals
from lazyknife.ridge.leave_one_out import draw_folds
from reference import Array

Rows = Sequence[tuple[float, ...]]  # features and, last, y
SEED = 0
LAZY_SEED = Seeds.of(SEED).lazy

# Few atoms, of which every bag is fitted. Residuals tie, and .3 is not .1 + .2.
TIED: Rows = [(0, 0.3), (0, 1.7), (1, 0.1 + 0.2), (1, 1.7)]
THIRDS: Rows = [(1 / 3, 0.1), (1 / 3, 0.7), (-1 / 3, 0.1 + 0.6), (2 / 3, 0.1)]
THREE: Rows = [(0, 0.3), (1, 1.7), (3, 0.1 + 0.2)]
TWO: Rows = [(0, 0.3), (0, 1.7)]  # all residuals tie, and rounding breaks the ties
# Five rows that are one bag, by what shows best in them.
PLACES: Rows = [(3, 0.38), (10, -1.02), (0, -0.28), (3, 0.64), (1, 0.03)]
SCALES: Rows = [(0.81, -1.25), (-0.2, 0.18), (-1.58, -0.32), (0.37, -1.9), (-1.14, 0.96)]
FRAMES: Rows = [(-1.04, -0.52), (-0.89, -0.65), (0.88, 0.59), (0.41, 0.12), (-0.04, 0.37)]
RIDGES: Rows = [(2.13, 2.16), (-1.07, -0.52), (-0.56, -0.93), (1.41, 2.69), (-5.34, -0.98)]
GROUPS: Rows = [(1, 0.83), (1, 0.99), (1, 1.19), (0, 0.09), (0, -0.1)]
WIDTHS: Rows = [(0.17, 0.25), (-1.09, -1.08), (1.06, 1.09), (1.2, 1.03), (-2.53, -2.78)]
TWO_VALUES: Rows = [(0, 1.37), (0, -0.67), (1, 0.35), (1, 0.9), (1, 0.09)]
ERRORS: Rows = [(3, 1.7), (0, 0.3), (0, -1.1), (10, 0.3), (3, 0.3)]
TOGETHER: Rows = [(0, 2), (3, 11), (2, 6), (1, 1), (2, 2)]
UNITS: Rows = [(2, 2.8), (0, 0.1), (-1, -2.4), (1, 0.9), (6, 5.2)]
LEVELS: Rows = [(3, 0.5), (2, 0), (1, 0), (-1, 0)]
BAGS = (PLACES, SCALES, FRAMES, RIDGES, GROUPS)
POSITIVE: Rows = [(-2, 0.83), (1, 2.06), (3, 0.51), (10, 2.93), (0, 3.31)]
# Of all rows but one, the median tells whether 0 and 1e-17 are different numbers beside it.
NEAR: Rows = [(0, 0.5), (-1, -4.1), (-1, 0.7), (1, 3.8), (1e-17, -2.5)]
# Both rows at 4 together, and neither alone, make the kernel of a path singular.
SINGULAR: Rows = [(4, 1, 7), (4, 2, 4), (1, 3, 1), (2, 4, 2), (6, 5, 6), (8, 6, 8)]
BINARY: Rows = [(3, 1), (0, 0), (0, 1), (10, 0), (1, 1), (2, 0)]
PLANE: Rows = [(-2, -2, 0.99), (-2, 3, -0.34), (10, 10, 0.85), (1, 10, -1.03), (10, 1, -0.29)]
SEVEN: Rows = [
    *[(-1.06, 0.1, -0.88), (-3.83, -2.07, -3.41), (1.08, -1.6, 0.99), (-0.33, 0.4, -0.57)],
    *[(1.14, 3.74, 0.72), (2.02, -0.46, 2.23), (-4.26, -0.45, -3.64)],
]
FOUR: Rows = [(2, 0.92), (0, -0.59), (1, 1.52), (2, -0.67)]  # given beside a bag


class Case(NamedTuple):
    """A method, its rows, and the bags of them: None is every bag."""

    method: Method
    atoms: Rows
    blocks: Sequence[Sequence[int]]
    bags: Sequence[Bag] | None = None

    def enumeration(self) -> Enumeration:
        return Enumeration(self.method, np.array(self.atoms, dtype=float), self.blocks)


def every(method: Method, atoms: Rows, n: int) -> Case:
    """Every bag of n + 1 of the atoms."""
    return Case(method, atoms, [range(n)])


def one(method: Method, rows: Rows) -> Case:
    """All of these rows as one bag."""
    return Case(method, rows, [range(len(rows) - 1)], [tuple(range(len(rows)))])


def each(method: Method, *bags: Rows) -> list[Case]:
    """Several bags."""
    return [one(method, rows) for rows in bags]


def in_order(case: Case) -> Case:
    """The same for a method that may treat every row unlike the others."""
    return case._replace(blocks=[[row] for rows in case.blocks for row in rows])


def folded(case: Case, folds: int = 2) -> Case:
    """The same for a method that leaves folds out."""
    n = sum(map(len, case.blocks))
    return case._replace(blocks=[fold.tolist() for fold in draw_folds(n, folds, LAZY_SEED)])


def fits(
    make: Callable[[float], Any], rank: int = 1, places: Sequence[int] = (), given: Rows = ()
) -> Method:
    """The fit of an estimator, made for a level, whose rows at some places are given."""

    def method(X: Array, y: Array) -> list[tuple[int, Any]]:
        table = np.column_stack([X, y])
        for place, row in sorted(zip(places, given, strict=True)):
            table = np.insert(table, place, row, axis=0)
        return [(1, make(rank / (len(y) + 1)).fit(table[:, :-1], table[:, -1]))]

    return method


def lazy(rank: int = 1, kind: type = LazyJackknifeRegressor, **settings: Any) -> Method:
    """The estimator at the level of a rank."""
    return fits(lambda alpha: kind(**settings, alpha=alpha, random_state=SEED), rank)


@dataclass(frozen=True)
class Changed:
    """A fitted model whose certificate, level, rows or intervals are other ones."""

    model: Any
    certificate_: Any
    alpha: float | None = None
    before: Callable[[Array], Array] = lambda X: X
    after: Callable[[Intervals], Intervals] = lambda found: found

    def predict_interval(self, X: Array) -> Intervals:
        return self.after(self.model.predict_interval(self.before(X), alpha=self.alpha))


def claiming(method: Method, miss: float) -> Method:
    """The same intervals with another bound on their misses, also where they have none."""
    claim = SimpleNamespace(coverage=1 - miss)
    return lambda X, y: [(p, Changed(model, claim)) for p, model in method(X, y)]


def line(bias: bool = True) -> nn.Module:
    """A linear network at fixed weights."""
    network = nn.Linear(1, 1, bias, dtype=torch.float64)
    for weight in network.parameters():
        nn.init.constant_(weight, 0.25)
    return network


LINE = {"network": line(), "ridge": 0.5, "widths": "constant"}
FULL = {"network": line(), "ridge": 0.5, "construction": "full"}
# So few features for the rows that windows of models decide.
ONE_FEATURE = {**LINE, "network": line(bias=False), "fit_intercept": False}
AUTO = {**LINE, "ridge": "auto"}
TINY = {"network": mlp((2,)), "widths": "constant"}
MOVED = {**TINY, "readout": "network", "ridge": 2.0}
KERNELS = {"network": [wide("laplace"), wide("gaussian")], "widths": "constant"}
SCALED = {**LINE, "network": wide("laplace", 1.0), "ridge": 1.0, "feature_weights": None}


def path(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Interpolates in the first feature."""
    return torch.minimum(left[:, :1], right[:, 0])


def apart(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Knows nothing of rows that differ in the second feature."""
    return (left[:, 1:] == right[:, 1]).double()


PATHS = {
    "network": [wide(path), wide(apart)],
    "ridge": 1e-18,
    "scaling": None,
    "widths": "constant",
}


# Rows that choose by coins, and rows set aside.


class WithCoins(LazyJackknifeRegressor):
    """Three rows on average choose for all, as 400 of more do."""

    searched = 3

    def _step_for(self, *terms: Any) -> Any:
        return replace(super()._step_for(*terms), searched=self.searched)

    def _leaving_of(self, n: int, *terms: Any) -> Any:
        return super()._leaving_of(n, *terms)._replace(coins=n > self.searched)


def coins(heads: int, n: int) -> tuple[int, list[list[int]]]:
    """A seed with so many heads, and the rows by their coins."""
    for seed in range(1000):
        part = draw_part(n, Seeds.of(seed).lazy, WithCoins.searched).tolist()
        if len(part) == heads:
            return seed, [part, [row for row in range(n) if row not in part]]
    raise AssertionError(heads)


def tossed(rows: Rows, heads: int) -> Case:
    """One bag, with so many heads among the n rows before the last."""
    seed, blocks = coins(heads, len(rows) - 1)
    method = fits(lambda alpha: WithCoins(**KERNELS, alpha=alpha, random_state=seed))
    return one(method, rows)._replace(blocks=blocks)


class Parted(LazyJackknifeRegressor):
    """Choices are made on rows set aside, however few rows there are."""

    def _parted(self, *terms: Any) -> bool:
        return True

    def _chosen_by_all(self, n: float) -> bool:
        return False

    def _leaving_of(self, n: int, *terms: Any) -> Leaving:
        return Leaving(n - part_of(n), part_of(n))


class SharedStep(ChoosingStep):
    """Rows that are set aside choose, however few rows there are."""

    def models(self, X: torch.Tensor, y: torch.Tensor) -> Any:
        return self._shared(X, y)


class PartedNetworks(Parted):
    """The same for networks of one's own."""

    def _parted(self, *terms: Any) -> bool:
        return False

    def _step_for(self, *terms: Any) -> Any:
        return SharedStep(**vars(super()._step_for(*terms)))


def beside(make: Callable[[float], Any], places: Sequence[int], rows: Rows, rank: int = 1) -> Case:
    """The last five of nine rows as one bag, beside the first four at places of their own."""
    return one(fits(make, rank, places, rows[:4]), rows[4:])


def parted(kind: type[Parted] = Parted, **settings: Any) -> Callable[[float], Parted]:
    return lambda alpha: kind(**settings, alpha=alpha, random_state=SEED)


def set_aside(rows: Rows, rank: int = 1, **settings: Any) -> Case:
    """With ``kind=`` another estimator than ``Parted``."""
    return beside(parted(**settings), drawn_part(8, LAZY_SEED).tolist(), rows, rank)


def every_beside(given: Rows, atoms: Rows, n: int, rank: int = 1, **settings: Any) -> Case:
    """Every bag of n + 1 atoms beside rows that are set aside."""
    places = drawn_part(n + len(given), LAZY_SEED).tolist()
    return every(fits(parted(**settings), rank, places, given), atoms, n)


def base_apart(rows: Rows) -> Case:
    """With a base that is trained on the four."""
    base = lk.Split(0.5, lk.Plain(epochs=20, lr=0.1))

    def make(alpha: float) -> LazyJackknifeRegressor:
        return LazyJackknifeRegressor(**LINE, base=base, alpha=alpha, random_state=SEED)

    return beside(make, base.rows(8, Seeds.of(SEED).rows)[0].tolist(), rows)


def split(atoms: Rows, given: Rows) -> Case:
    """Split conformal prediction: every bag beside two rows that a network is trained on."""

    def make(alpha: float) -> lk.SplitConformalRegressor:
        return lk.SplitConformalRegressor(line(), epochs=2, alpha=alpha, random_state=SEED)

    places = make(0.5)._rows_apart(4, Seeds.of(SEED)).tolist()
    return every(fits(make, places=places, given=given), atoms, 2)


# Covariates of the pool.


@dataclass(frozen=True)
class Pooled:
    """An estimator that is fitted again for every new row, which is then in the pool."""

    X: Array
    y: Array
    alpha: float

    def _fitted(self, row: Array) -> LazyJackknifeRegressor:
        settings = LINE | {"scaling": "standardize", "alpha": self.alpha, "random_state": SEED}
        return LazyJackknifeRegressor(**settings).fit(self.X, self.y, X_pool=row)

    @property
    def certificate_(self) -> Any:
        return self._fitted(self.X[:1]).certificate_

    def predict_interval(self, X: Array) -> Intervals:
        rows = np.split(X, len(X))
        return Intervals.concat(
            [replace(self._fitted(row).predict_interval(row), certificate=None) for row in rows]
        )


def pooled(X: Array, y: Array) -> list[tuple[int, Any]]:
    return [(1, Pooled(X, y, 1 / (len(y) + 1)))]


# A private base with finitely many outcomes.

HONEST = Fraction(3, 5)  # probability that an answer is true


@dataclass(frozen=True)
class Answers(BaseMethod):
    """Whether each atom is among the rows, by randomised response: these are the answers.

    Rows are the unit vectors, and the network is linear: a yes brings its output at an atom nearer
    to y. One more row changes the law of one answer, from probability p of no to 1 − p.
    """

    answers: tuple[bool, ...]
    honest: Fraction = HONEST

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        """All that can be said of two answers: δ is linear in e^ε between two points."""
        p = float(self.honest)
        epsilon = math.log(p / (1 - p))
        return PrivacyCurve((0.0, epsilon), (2 * p - 1, 0.0), (2 * epsilon, 0.0))

    def learn(self, task: Any) -> Base:
        module = copy.deepcopy(task.start)
        with torch.no_grad():
            module.weight += 5.0 * torch.tensor(self.answers)
        return Base(module, self.dependence(task.n))

    def probability(self, present: set[int]) -> Fraction:
        """The probability of the answers if these atoms are among the rows."""
        true = [answer == (atom in present) for atom, answer in enumerate(self.answers)]
        return math.prod((self.honest if t else 1 - self.honest for t in true), start=Fraction(1))


REMEMBERED: Rows = [(*unit, 10 + k / 10) for k, unit in enumerate(np.eye(4).tolist())]


def private(honest: Fraction = HONEST, **settings: Any) -> Method:
    """The estimator around each outcome of the base."""

    def method(X: Array, y: Array) -> list[tuple[Fraction, Any]]:
        found = []
        for answers in product((False, True), repeat=X.shape[1]):
            base = Answers(answers, honest)
            network = nn.Linear(X.shape[1], 1, bias=False, dtype=torch.float64)
            nn.init.zeros_(network.weight)
            terms = {"network": network, "ridge": 1.0, "fit_intercept": False}
            model = LazyJackknifeRegressor(
                **terms, **settings, base=base, alpha=1 / (len(y) + 1), random_state=SEED
            )
            chance = base.probability(set(X.argmax(axis=1).tolist()))
            if chance:
                found.append((chance, model.fit(X, y)))
        return found

    return method


FOLDS = {"construction": "cv+", "folds": 2, **LINE}
ASIDE: dict[str, Any] = {"network": wide("laplace")}
PLUS = {**ASIDE, "construction": "plus"}
OWN: dict[str, Any] = {"kind": PartedNetworks}
LINEAR: dict[str, Any] = {"network": line()}


def refits(kind: type, **settings: Any) -> Method:
    """A baseline that really trains its networks."""
    return fits(lambda alpha: kind(line(), epochs=2, alpha=alpha, random_state=SEED, **settings))


CASES: dict[str, list[Case]] = {
    "plus": [
        *(
            every(lazy(**LINE), atoms, n)
            for atoms, n in ((TIED, 3), (TIED, 4), (THREE, 6), (TWO, 6))
        ),
        *each(lazy(**LINE), *BAGS),
    ],
    "plus, rank 2": [every(lazy(2, **LINE), THIRDS, 4), *each(lazy(2, **LINE), *BAGS)],
    "minmax": [
        every(lazy(construction="minmax", **LINE), TIED, 4),
        every(lazy(construction="minmax", **LINE), THIRDS, 3),
        *each(lazy(construction="minmax", **LINE), *BAGS),
    ],
    "minmax, rank 2": [every(lazy(2, construction="minmax", **LINE), TIED, 4)],
    "leverage": each(lazy(**LINE | {"widths": "leverage"}), *BAGS),
    "leverage, minmax": each(lazy(**LINE | {"widths": "leverage"}, construction="minmax"), *BAGS),
    "windows": [every(lazy(**ONE_FEATURE), TIED, 4), *each(lazy(**ONE_FEATURE), *BAGS)],
    "windows, rank 2": each(lazy(2, **ONE_FEATURE), *BAGS),
    "windows, minmax": each(lazy(construction="minmax", **ONE_FEATURE), *BAGS),
    "full": [
        *(every(lazy(**FULL), atoms, n) for atoms, n in ((TIED, 4), (THREE, 6))),
        *each(lazy(**FULL), *BAGS),
    ],
    "full, rank 2": [every(lazy(2, **FULL), TIED, 4)],
    "cv+": [
        folded(every(lazy(**FOLDS), THREE, 4)),
        *(folded(one(lazy(**FOLDS), rows)) for rows in BAGS[:3]),
    ],
    "cv+, two new rows": [
        # Its bound assumes that two new rows are exchangeable with the training rows.
        folded(every(lazy(**FOLDS | {"folds": 3}), THREE, 6), 3)._replace(
            bags=list(combinations_with_replacement(range(3), 8))
        )
    ],
    "cv+, unequal folds": [
        folded(every(lazy(**FOLDS), THREE, 5)),
        folded(one(lazy(**FOLDS | {"folds": 3}), RIDGES), 3),
    ],
    "chosen λ": each(lazy(**AUTO), *BAGS),
    "chosen λ, rank 2": [every(lazy(2, **AUTO), TIED, 4)],
    "chosen λ, minmax": each(lazy(construction="minmax", **AUTO), *BAGS),
    "chosen λ, full": each(lazy(**FULL | {"ridge": "auto"}), LEVELS, *BAGS),
    "chosen λ, cv+": [folded(one(lazy(**FOLDS | {"ridge": "auto"}), rows)) for rows in BAGS[:2]],
    "network": each(lazy(**TINY), *BAGS),
    "network, cv+": [folded(one(lazy(construction="cv+", folds=2, **TINY), PLACES))],
    "network, its own readout": each(lazy(**MOVED), *BAGS),
    "network, constant widths": each(lazy(network=mlp((2,))), *BAGS),
    "network, Huber loss": each(lazy(loss="huber", **TINY), *BAGS),
    "network, logistic loss": each(lazy(loss="logistic", fit_intercept=False, **TINY), BINARY),
    "network, log of y": each(lazy(target_transform="log", **TINY), POSITIVE),
    "pooled covariates": each(pooled, FRAMES, GROUPS),
    "choosing": each(lazy(**KERNELS), *BAGS),
    "choosing, in doubt": each(lazy(**PATHS), SINGULAR),
    "scaled by own rows": each(lazy(**SCALED), NEAR, *BAGS[:2]),
    "choosing, coins": [tossed(rows, 3) for rows in (PLACES, SCALES)],
    "choosing, cv+": [
        folded(one(lazy(construction="cv+", folds=2, **KERNELS), rows)) for rows in (SCALES, RIDGES)
    ],
    "default": each(lazy(), *BAGS, WIDTHS, PLANE),
    "default, rank 2": [every(lazy(2), TIED, 4), one(lazy(2), SEVEN)],
    "default, minmax": each(lazy(construction="minmax"), GROUPS, PLACES, SCALES),
    "default, full": each(lazy(construction="full"), FRAMES, GROUPS, UNITS, TOGETHER),
    "default, full, rank 2": [one(lazy(2, construction="full"), SEVEN)],
    "network, sketched, full": each(
        lazy(network=mlp((2,)), features=lk.Sketch(2), construction="full"), GROUPS
    ),
    "default, log of y": each(lazy(target_transform="log"), POSITIVE),
    "default, rows set aside": [set_aside([*FOUR, *SCALES]), set_aside([*FOUR, *SCALES], 2)],
    "rows set aside": [set_aside([*FOUR, *rows], **PLUS, widths="constant") for rows in BAGS],
    "rows set aside, minmax": [
        set_aside([*FOUR, *rows], **ASIDE, construction="minmax", widths="constant")
        for rows in BAGS
    ],
    "rows set aside, rank 2": [
        set_aside([*FOUR, *rows], 2, **PLUS, widths="constant") for rows in BAGS
    ],
    "rows set aside, network": [set_aside([*FOUR, *rows], **OWN, **LINEAR) for rows in BAGS],
    "rows set aside, network, full": [
        set_aside([*FOUR, *rows], **OWN, **LINEAR, construction="full") for rows in BAGS
    ],
    "rows set aside, network, cv+": [
        in_order(set_aside([*FOUR, *rows], **OWN, **LINEAR, construction="cv+", folds=2))
        for rows in BAGS[:2]
    ],
    "rows set aside, full": [
        *(set_aside([*FOUR, *rows], **ASIDE, construction="full") for rows in BAGS),
        every_beside(FOUR[:3], TIED, 3, **ASIDE, construction="full"),
    ],
    "rows set aside, full, rank 2": [
        *(set_aside([*FOUR, *rows], 2, **ASIDE, construction="full") for rows in BAGS),
        every_beside(FOUR, THREE, 4, 2, **ASIDE, construction="full"),
    ],
    "rows set aside, split": [
        *(set_aside([*FOUR, *rows], **ASIDE, construction="split") for rows in BAGS),
        every_beside(FOUR[:4], TIED, 4, **ASIDE, construction="split"),
    ],
    "base of rows set aside": [base_apart([*FOUR, *rows]) for rows in BAGS[:3]],
    "refits": [every(refits(lk.JackknifeRegressor), TIED, 4)],
    "refits, minmax": [every(refits(lk.JackknifeRegressor, construction="minmax"), TIED, 4)],
    "refits, cv+": [in_order(every(refits(lk.CVPlusRegressor, folds=2), THREE, 4))],
    "split conformal": [split(TIED, given) for given in (TIED[:2], TIED[1:3])],
    "private base": each(private(widths="constant"), REMEMBERED),
    "private base, full": each(private(construction="full"), REMEMBERED),
}
