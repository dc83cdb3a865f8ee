"""The inverse of ``certify``: settings, or numbers of rows, that certify a wanted coverage."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..base import DPSGD, BaseMethod, Public, check_base, check_trainable
from ..base.privacy import falling_root
from ..choosing.rows import MANY, SEARCHED
from ..data.checks import check_choice, check_folds, check_fraction, check_level, check_positive_int
from ..intervals import AUTO, CONSTRUCTIONS, kappa, rows_needed
from ..sentences import either, rounded_down
from .certify import Certificate, certify, certifying, construction_for, left_out

MARGIN = 4e-4  # extra noise, in logarithms, that makes up for the tolerance of the root
PLANNED_N = 2**20  # rows at which the search for a number of rows ends
LARGEST_N = 2**60  # rows; more than any level takes


@dataclass(frozen=True, repr=False)
class Plan:
    """How to reach a wanted coverage.

    Attributes
    ----------
    sentence
        The plan in words.
    base
        The base to use.
    alpha
        The level to use; None if there is no plan.
    epsilon
        The ε that the base spends; None for a base without one, or if no ε is small enough.
    certificate
        What the plan certifies; None if there is no plan.
    n
        The number of rows that it is for.

    """

    sentence: str
    base: BaseMethod
    alpha: float | None = None
    epsilon: float | None = None
    certificate: Certificate | None = None
    n: int | None = None

    def __repr__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Goal:
    """A coverage to certify with a base, and the settings that are given."""

    coverage: float
    base: BaseMethod
    construction: str
    folds: int
    network: Any = None

    def at(self, n: int) -> Goal:
        """The same with the construction that n rows have."""
        own = construction_for(n, self.construction, self.base, self.network)
        return replace(self, construction=str(own))

    def rows(self, n: int) -> int:
        """How many of n rows are left out."""
        return left_out(n, self.construction, self.base).rows

    def certificate(self, n: int, alpha: float) -> Certificate:
        settings = {name: value for name, value in vars(self).items() if name != "coverage"}
        return certify(n=n, alpha=alpha, **settings)

    def certified(self, n: int, alpha: float) -> float:
        return self.certificate(n, alpha).coverage or 0.0

    def possible(self, n: int) -> bool:
        """Whether the least alpha with finite intervals certifies the coverage."""
        try:
            return self.certified(n, 1 / (self.rows(n) + 1)) >= self.coverage
        except ValueError:  # fewer rows than folds, or than a batch of the base
            return False

    def better(self, n: int) -> str:
        """The constructions with which it is possible, as a remedy; empty if there are none."""
        others = [c for c in certifying() if replace(self, construction=c).possible(n)]
        return f"construction {either(others)}" if others else ""


def plan(
    *,
    n: int,
    coverage: float,
    construction: str = AUTO,
    epsilon: float | None = None,
    base: BaseMethod | None = None,
    alpha: float | None = None,
    network: Any = None,
    folds: int = 10,
) -> Plan:
    """Find the settings that certify a wanted coverage with n rows: the inverse of ``certify``.

    Without ``alpha`` it finds the largest alpha; with ``alpha``, the largest ε. Noise is what there
    is to plan, so ``epsilon`` alone or ``alpha`` alone plans a ``DPSGD`` base, whereas the default
    base of ``certify`` and of the estimator is ``Public()``.

    Parameters
    ----------
    n
        Number of rows that will be passed to ``fit``.
    coverage
        The coverage to certify.
    construction
        ``"auto"``, or a key of ``CONSTRUCTIONS`` that has a coverage guarantee.
    epsilon
        Short for ``base=DPSGD(epsilon=epsilon)``.
    base
        The base to find alpha for; with ``alpha``, the ``DPSGD`` or ``Perturbed`` base to find ε
        for, ``DPSGD()`` by default.
    alpha
        The level to find ε for.
    network, folds
        As in ``LazyJackknifeRegressor``.

    """
    check_positive_int("n", n)
    check_fraction("coverage", coverage)
    check_choice("construction", construction, (AUTO, *CONSTRUCTIONS))
    if construction != AUTO and CONSTRUCTIONS[construction].miss is None:
        raise ValueError(
            f"construction={construction!r} has no coverage guarantee: use {either(certifying())}"
        )
    if epsilon is not None and (base is not None or alpha is not None):
        raise ValueError(
            f"epsilon={epsilon!r} cannot be combined with base= or alpha=: give epsilon alone, or "
            "base=DPSGD(epsilon=...)"
        )
    if alpha is None and base is None and epsilon is None:
        raise ValueError("give epsilon= or base= to find an alpha, or alpha= to find an ε")
    private = DPSGD() if epsilon is None else DPSGD(epsilon=epsilon)
    method = private if base is None else check_base(base)
    goal = Goal(coverage, method, construction, folds, network).at(n)
    if alpha is None:
        return _plan_alpha(goal, n)
    return _plan_epsilon(goal, n, check_level("alpha", alpha))


def plan_rows(
    *,
    coverage: float,
    construction: str = AUTO,
    base: BaseMethod | None = None,
    network: Any = None,
    folds: int = 10,
) -> Plan:
    """Find the fewest rows that certify a wanted coverage with finite intervals.

    Parameters
    ----------
    coverage
        The coverage to certify.
    construction, base, network, folds
        As in ``plan``; the base is ``Public()`` by default.

    Returns
    -------
    Plan
        The plan for that number of rows, ``n``; None if there is none below a million.

    """
    check_fraction("coverage", coverage)
    check_choice("construction", construction, (AUTO, *certifying()))
    method = check_base(base)
    check_trainable(method, network)
    goal = Goal(coverage, method, construction, check_folds(folds), network)
    # A certificate may become worse beyond these numbers of rows: folds of one row have a better
    # bound of their own, and with more rows coins or a part of the rows make choices.
    edges = [most_rows(left, method) for left in (folds - 1, SEARCHED, MANY)]
    edges[0] += 1
    n = fewest(goal.possible, [0, *sorted(min(edge, PLANNED_N) for edge in edges), PLANNED_N])
    if n is None:
        remedy = goal.better(PLANNED_N) or "a base with a guarantee, or a smaller ε"
        wanted = f"a coverage of {coverage:g} with construction {construction!r} and {method}"
        none = f"No number of rows below {PLANNED_N:,} certifies {wanted}. Use {remedy}."
        return Plan(none, method)
    found, own = _plan_alpha(goal.at(n), n), goal.at(n).construction
    wanted = f"a coverage of {coverage:g} with construction {own!r} and {method}"
    sentence = (
        f"At least {n} rows are needed to certify {wanted}; more rows give narrower and steadier "
        f"intervals. With {n} rows: {found.sentence}"
    )
    return replace(found, sentence=sentence)


def _plan_alpha(goal: Goal, n: int) -> Plan:
    """Find the largest alpha: only κ = ⌊α(n+1)⌋ matters, and the certificate falls in it."""
    rows, base = goal.rows(n), goal.base

    def fails(rank: int) -> bool:
        return goal.certified(n, rank / (rows + 1)) < goal.coverage

    rank, spent = bisect_left(range(1, rows + 1), True, key=fails), base.spent(n)
    if rank == 0:
        return Plan(_no_alpha(goal, n, 1 / (rows + 1)), base, epsilon=spent)
    alpha = rank / (rows + 1)
    certificate = goal.certificate(n, alpha)
    reached = certificate.coverage or 0.0
    sentence = (
        f"alpha = {alpha:.4g} certifies a coverage of {rounded_down(reached)} with n = {n}, "
        f"construction {goal.construction!r} and {base}."
    )
    if 1 - alpha > reached + 0.01:
        sentence += f" Expect about {1 - alpha:.1%}: what is certified is a lower bound."
    return Plan(sentence, base, alpha, spent, certificate, n)


def _no_alpha(goal: Goal, n: int, least: float) -> str:
    """Why not even the least alpha with finite intervals certifies the coverage."""
    found, base = goal.certificate(n, least), goal.base
    reason = " ".join(found.objections)
    if found.coverage is not None:
        smaller = "" if base.spent(n) is None else "a smaller ε"
        remedies = " or ".join(filter(None, ("more rows", smaller, goal.better(n))))
        reason = f"finite intervals certify at most {rounded_down(found.coverage)}. Use {remedies}."
    return f"No alpha certifies {goal.coverage:g} with n = {n} and {base}: {reason}"


def _plan_epsilon(goal: Goal, n: int, alpha: float) -> Plan:
    """Find the least noise whose certificate reaches the wanted coverage."""
    without = _no_epsilon(goal, n, alpha)
    if without:
        return Plan(without, goal.base)

    def noisy(log_noise: float) -> Goal:
        return replace(goal, base=goal.base.with_noise(math.exp(log_noise)))

    root = falling_root(lambda noise: goal.coverage - noisy(noise).certified(n, alpha), 0.0, 1.0)
    chosen = noisy(root + MARGIN)
    certificate, spent = chosen.certificate(n, alpha), chosen.base.spent(n)
    sentence = (
        f"At alpha = {alpha:g} with n = {n} and construction {goal.construction!r}, a base may "
        f"spend up to ε = {spent:.4g} and still certify "
        f"{rounded_down(certificate.coverage or 0.0)}: {chosen.base}."
    )
    return Plan(sentence, chosen.base, alpha, spent, certificate, n)


def _no_epsilon(goal: Goal, n: int, alpha: float) -> str:
    """Say why no ε can be planned, if so."""
    rows, _, coins = left_out(n, goal.construction, goal.base)
    if kappa(alpha, rows) == 0:
        needed = rows_in_all(rows_needed(alpha), n, goal.base, goal.rows)
        return (
            f"No ε to plan at alpha = {alpha:g} with n = {n}: the intervals are infinite, "
            f"whatever the base. At least {needed} rows are needed."
        )
    kind = CONSTRUCTIONS[goal.construction]
    miss = kind.bound(alpha, rows, goal.folds, False, coins=coins).miss
    assert miss is not None
    if 1 - miss > goal.coverage:
        return ""
    # Weights that never saw the rows may have a better bound than any that did.
    public = replace(goal, base=Public()).certified(n, alpha)
    instead = f", or base=Public(), which certifies {rounded_down(public)}"
    return (
        f"No ε certifies {goal.coverage:g} at alpha = {alpha:g} with n = {n}: however small its ε, "
        f"a base certifies at most {rounded_down(1 - miss)}. Use a smaller "
        f"alpha{instead if public >= goal.coverage else ''}."
    )


def rows_in_all(needed: int, n: int, base: BaseMethod, left: Callable[[int], int]) -> int:
    """Return the fewest rows, but at least n, of which ``left`` leaves so many out."""
    edge = most_rows(MANY, base)  # beyond it rows may be parted, so that fewer are left out
    found = fewest(lambda total: left(total) >= needed, (n - 1, max(n - 1, edge), LARGEST_N))
    return found or LARGEST_N


def most_rows(left: int, base: BaseMethod) -> int:
    """Return the largest number of rows of which a base leaves no more than so many."""
    return bisect_right(range(1, LARGEST_N), left, key=base.rows_left)


def fewest(enough: Callable[[int], bool], edges: Iterable[int]) -> int | None:
    """Return the smallest number above the first edge that is enough; None if none is.

    From one edge to the next, whatever is above a number that is enough must be enough, too.
    """
    for low, high in pairwise(edges):
        if low < high and enough(high):
            return low + 1 + bisect_left(range(low + 1, high), True, key=enough)
    return None
