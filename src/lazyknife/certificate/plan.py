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
from ..choosing.rows import MANY, SEARCHED, Leaving
from ..data.checks import check_choice, check_folds, check_fraction, check_level, check_positive_int
from ..intervals import CONSTRUCTIONS, kappa, rows_needed
from ..sentences import either, rounded_down
from .certificate import Certificate
from .certify import certify, certifying, left_out

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
    """A coverage to certify."""

    n: int
    coverage: float
    construction: str
    folds: int
    network: Any = None

    def certificate(self, alpha: float, base: BaseMethod) -> Certificate:
        terms = {"construction": self.construction, "network": self.network, "folds": self.folds}
        return certify(n=self.n, alpha=alpha, base=base, **terms)

    def leaving(self, base: BaseMethod, n: int | None = None) -> Leaving:
        return left_out(n or self.n, self.construction, base)

    def certified(self, alpha: float, base: BaseMethod) -> float:
        return self.certificate(alpha, base).coverage or 0.0

    def reached(self, alpha: float, base: BaseMethod) -> bool:
        return self.certified(alpha, base) >= self.coverage

    def possible(self, base: BaseMethod) -> bool:
        """Whether the least alpha with finite intervals certifies the coverage."""
        try:
            return self.reached(1 / (self.leaving(base).rows + 1), base)
        except ValueError:  # fewer rows than folds, or than a batch of the base
            return False


def plan(
    *,
    n: int,
    coverage: float,
    construction: str = "plus",
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
        A key of ``CONSTRUCTIONS`` that has a coverage guarantee.
    epsilon
        Short for ``base=DPSGD(epsilon=epsilon)``.
    base
        The base to find alpha for; with ``alpha``, the ``DPSGD`` or ``Perturbed`` base to find ε
        for, ``DPSGD()`` by default.
    alpha
        The level to find ε for.
    network
        The network or the candidates, as in ``LazyJackknifeRegressor``.
    folds
        Number of folds of construction ``"cv+"``.

    """
    check_positive_int("n", n)
    check_fraction("coverage", coverage)
    check_choice("construction", construction, CONSTRUCTIONS)
    if CONSTRUCTIONS[construction].miss is None:
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
    goal = Goal(n, coverage, construction, folds, network)
    if alpha is None:
        return _plan_alpha(goal, method)
    return _plan_epsilon(goal, method, check_level("alpha", alpha))


def plan_rows(
    *,
    coverage: float,
    construction: str = "plus",
    base: BaseMethod | None = None,
    network: Any = None,
    folds: int = 10,
) -> Plan:
    """Find the fewest rows that certify a wanted coverage with finite intervals.

    Parameters
    ----------
    coverage
        The coverage to certify.
    construction
        A key of ``CONSTRUCTIONS`` that has a coverage guarantee.
    base
        The base; ``Public()`` by default.
    network
        The network or the candidates, as in ``LazyJackknifeRegressor``.
    folds
        Number of folds of construction ``"cv+"``.

    Returns
    -------
    Plan
        The plan for that number of rows, ``n``; None if there is none below a million.

    """
    check_fraction("coverage", coverage)
    check_choice("construction", construction, certifying())
    goal, method = Goal(1, coverage, construction, check_folds(folds), network), check_base(base)
    check_trainable(method, network)
    n = fewest(lambda n: replace(goal, n=n).possible(method), _edges(folds, method))
    if n is None:
        return Plan(_no_rows(goal, method), method)
    terms = {"construction": construction, "network": network, "folds": folds}
    found = plan(n=n, coverage=coverage, base=method, **terms)
    sentence = (
        f"At least {n} rows are needed to certify a coverage of {coverage:g} with construction "
        f"{construction!r} and {method}; more rows give narrower and steadier intervals. With "
        f"{n} rows: {found.sentence}"
    )
    return replace(found, sentence=sentence, n=n)


def _plan_alpha(goal: Goal, base: BaseMethod) -> Plan:
    """Bisect over κ: only ⌊α(n+1)⌋ matters, and the certificate falls in it."""
    rows = goal.leaving(base).rows
    low, high = 0, rows  # κ = 0 always "certifies", by an infinite interval
    while low < high:
        middle = (low + high + 1) // 2
        enough = goal.reached(middle / (rows + 1), base)
        low, high = (middle, high) if enough else (low, middle - 1)
    spent = base.spent(goal.n)
    if low == 0:
        return Plan(_no_alpha(goal, base, 1 / (rows + 1)), base, epsilon=spent)
    alpha = low / (rows + 1)
    certificate = goal.certificate(alpha, base)
    sentence = (
        f"alpha = {alpha:.4g} certifies a coverage of {rounded_down(certificate.coverage or 0.0)} "
        f"with n = {goal.n}, construction {goal.construction!r} and {base}."
    )
    if 1 - alpha > (certificate.coverage or 0.0) + 0.01:
        sentence += f" Expect about {1 - alpha:.1%}: what is certified is a lower bound."
    return Plan(sentence, base, alpha, spent, certificate, goal.n)


def _no_alpha(goal: Goal, base: BaseMethod, least: float) -> str:
    """Say why not even the least alpha with finite intervals certifies the coverage."""
    found = goal.certificate(least, base)
    reason = " ".join(found.objections)
    if found.coverage is not None:
        better = [c for c in certifying() if replace(goal, construction=c).possible(base)]
        remedies = ["more rows"]
        remedies += [] if base.spent(goal.n) is None else ["a smaller ε"]
        remedies += [f"construction {either(better)}"] if better else []
        reason = (
            f"finite intervals certify at most {rounded_down(found.coverage)}. Use "
            f"{' or '.join(remedies)}."
        )
    return f"No alpha certifies {goal.coverage:g} with n = {goal.n} and {base}: {reason}"


def _plan_epsilon(goal: Goal, base: BaseMethod, alpha: float) -> Plan:
    """Find the least noise whose certificate reaches the wanted coverage."""
    without = _no_epsilon(goal, base, alpha)
    if without:
        return Plan(without, base)

    def shortfall(log_noise: float) -> float:
        return goal.coverage - goal.certified(alpha, base.with_noise(math.exp(log_noise)))

    chosen = base.with_noise(math.exp(falling_root(shortfall, 0.0, 1.0) + MARGIN))
    certificate = goal.certificate(alpha, chosen)
    spent = chosen.spent(goal.n)
    sentence = (
        f"At alpha = {alpha:g} with n = {goal.n} and construction {goal.construction!r}, a base "
        f"may spend up to ε = {spent:.4g} and still certify "
        f"{rounded_down(certificate.coverage or 0.0)}: {chosen}."
    )
    return Plan(sentence, chosen, alpha, spent, certificate, goal.n)


def _no_epsilon(goal: Goal, base: BaseMethod, alpha: float) -> str:
    """Say why no ε can be planned, if so."""
    rows, _, coins = goal.leaving(base)
    if kappa(alpha, rows) == 0:
        needed = rows_in_all(rows_needed(alpha), goal.n, base, lambda n: goal.leaving(base, n).rows)
        return (
            f"No ε to plan at alpha = {alpha:g} with n = {goal.n}: the intervals are infinite, "
            f"whatever the base. At least {needed} rows are needed."
        )
    kind = CONSTRUCTIONS[goal.construction]
    miss = kind.bound(alpha, rows, goal.folds, False, coins=coins).miss
    assert miss is not None
    if 1 - miss > goal.coverage:
        return ""
    # Weights that never saw the rows may have a better bound than any that did.
    public = goal.certified(alpha, Public())
    instead = f", or base=Public(), which certifies {rounded_down(public)}"
    return (
        f"No ε certifies {goal.coverage:g} at alpha = {alpha:g} with n = {goal.n}: however small "
        f"its ε, a base certifies at most {rounded_down(1 - miss)}. Use a smaller "
        f"alpha{instead if public >= goal.coverage else ''}."
    )


def _edges(folds: int, base: BaseMethod) -> list[int]:
    """Numbers of rows beyond which a certificate may become worse.

    Folds of one row have a better bound of their own; beyond the others coins or a part of the rows
    make choices.
    """
    beyond = [most_rows(left, base) for left in (SEARCHED, MANY)]
    every = [0, most_rows(folds - 1, base) + 1, *beyond, PLANNED_N]
    return sorted({min(edge, PLANNED_N) for edge in every})


def _no_rows(goal: Goal, base: BaseMethod) -> str:
    """Say that no number of rows is enough, and what would do."""
    better = [c for c in certifying() if replace(goal, n=PLANNED_N, construction=c).possible(base)]
    remedy = (
        f"construction {either(better)}" if better else "a base with a guarantee, or a smaller ε"
    )
    return (
        f"No number of rows below {PLANNED_N:,} certifies {goal.coverage:g} with construction "
        f"{goal.construction!r} and {base}. Use {remedy}."
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
