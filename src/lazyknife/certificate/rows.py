"""How many rows a wanted coverage takes."""

from __future__ import annotations

from dataclasses import replace

from ..base import BaseMethod, Public
from ..data.checks import check_choice, check_fraction, check_positive_int
from ..intervals import CONSTRUCTIONS
from ..sentences import either
from .certify import certifying
from .plan import Goal, Plan, plan

MOST = 2**20  # rows; the search ends there


def plan_rows(
    *,
    coverage: float,
    construction: str = "plus",
    base: BaseMethod | None = None,
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
    folds
        Number of folds of construction ``"cv+"``; the number of rows is a multiple of it.

    Returns
    -------
    Plan
        The plan for that number of rows, ``n``; None if there is none below a million.

    """
    check_fraction("coverage", coverage)
    check_choice("construction", construction, certifying())
    goal = Goal(1, coverage, construction, check_positive_int("folds", folds))
    method = base or Public()
    step = folds if construction == "cv+" else 1
    n = _fewest(goal, method, step)
    if n is None:
        return Plan(_no_rows(goal, method), method)
    found = plan(n=n, coverage=coverage, construction=construction, base=method, folds=folds)
    sentence = (
        f"At least {n} rows are needed to certify a coverage of {coverage:g} with construction "
        f"{construction!r} and {method}; more rows give narrower and steadier intervals. With "
        f"{n} rows: {found.sentence}"
    )
    return replace(found, sentence=sentence, n=n)


def _fewest(goal: Goal, base: BaseMethod, step: int) -> int | None:
    """Double until there are enough rows, then bisect."""
    high = 1
    while not _enough(goal, base, high * step):
        high *= 2
        if high * step > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(goal, base, middle * step) else (middle, high)
    return high * step


def _enough(goal: Goal, base: BaseMethod, n: int) -> bool:
    """Whether the least alpha with finite intervals certifies the coverage with n rows."""
    rows = base.rows_left(n)
    if rows < 1 or CONSTRUCTIONS[goal.construction].miss(1, rows, goal.folds) is None:
        return False
    return replace(goal, n=n).reached(1 / (rows + 1), base)


def _no_rows(goal: Goal, base: BaseMethod) -> str:
    """Say that no number of rows is enough, and what would do."""
    better = [c for c in certifying() if _enough(replace(goal, construction=c), base, MOST)]
    remedy = (
        f"construction {either(better)}" if better else "a base with a guarantee, or a smaller ε"
    )
    return (
        f"No number of rows below {MOST:,} certifies {goal.coverage:g} with construction "
        f"{goal.construction!r} and {base}. Use {remedy}."
    )
