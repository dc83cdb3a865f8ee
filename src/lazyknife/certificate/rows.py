"""How many rows a wanted coverage takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..base import BaseMethod, check_base, check_trainable
from ..data.checks import check_choice, check_folds, check_fraction
from ..sentences import either
from ..solve.part import MANY, SEARCHED
from ..solve.widths import WIDTHS
from .certify import certifying
from .leaving import fewest, most_rows
from .plan import Goal, Plan, plan

MOST = 2**20  # rows; the search ends there


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


def _edges(folds: int, base: BaseMethod) -> list[int]:
    """Numbers of rows beyond which a certificate may become worse.

    Folds of one row have a better bound of their own; beyond the others coins or a part of the rows
    make choices.
    """
    coins = int(WIDTHS["noise"].most_rows)
    beyond = [most_rows(left, base) for left in (SEARCHED, MANY, coins)]
    every = [0, most_rows(folds - 1, base) + 1, *beyond, MOST]
    return sorted({min(edge, MOST) for edge in every})


def _no_rows(goal: Goal, base: BaseMethod) -> str:
    """Say that no number of rows is enough, and what would do."""
    better = [c for c in certifying() if replace(goal, n=MOST, construction=c).possible(base)]
    remedy = (
        f"construction {either(better)}" if better else "a base with a guarantee, or a smaller ε"
    )
    return (
        f"No number of rows below {MOST:,} certifies {goal.coverage:g} with construction "
        f"{goal.construction!r} and {base}. Use {remedy}."
    )
