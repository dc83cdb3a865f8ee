"""Which of the methods that were compared to use, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SHORT = 2.33  # standard errors: 1 % of the methods that cover 1 − alpha fall shorter by chance
SAME = 0.05  # level of the paired test for differences in interval score
CLOSE = 1.1  # times the smallest interval score: what is close enough to matter little


@dataclass(frozen=True)
class Recommendation:
    """The method with the smallest interval score among those that cover enough.

    Attributes
    ----------
    method
        Its name; None if no method covers enough.
    same
        Methods with interval scores at most 10 % larger, a difference within noise.
    unclear
        Methods with larger interval scores, though that may be noise: more folds would tell.
    short
        Methods whose coverage is significantly below 1 − alpha.
    certified
        The coverage that the method certifies on average over the folds; None without a guarantee.
    alpha
        The level of the intervals.

    """

    method: str | None
    same: tuple[str, ...]
    unclear: tuple[str, ...]
    short: tuple[str, ...]
    certified: float | None
    alpha: float

    def __str__(self) -> str:
        return " ".join([self.claim, *self.reasons])

    @property
    def claim(self) -> str:
        """The advice in a sentence."""
        if self.method is None:
            return "No method covers enough on these data."
        if self.same:
            return f"Use {self.method}; {_listed(self.same)} did about as well."
        if self.unclear:
            return f"Use {self.method}, which has the smallest interval score."
        return f"Use {self.method}: it did better than all others by more than noise."

    @property
    def reasons(self) -> tuple[str, ...]:
        """The rule, and what else to know, in sentences."""
        aim = f"{100 * (1 - self.alpha):.3g} %"
        rule = (
            "The rule: the smallest interval score (width, plus a penalty for each miss) among the "
            f"methods whose coverage is not significantly below {aim}; others did about as well if "
            "theirs is at most 10 % larger and the difference is within noise."
        )
        found = [rule]
        if self.method is not None:
            found.append(
                f"{self.method} has no coverage guarantee."
                if self.certified is None
                else f"{self.method} guarantees a coverage of at least {self.certified:.3f}."
            )
        if self.unclear:
            found.append(f"More folds would tell whether {_listed(self.unclear)} can do as well.")
        if self.short:
            found.append(f"Too little coverage: {_listed(self.short)}.")
        return tuple(found)


def recommend(rows: pd.DataFrame, alpha: float) -> Recommendation:
    """Recommend one of the methods in the rows of ``compare_methods``.

    Among the methods without errors whose coverage is not significantly below 1 − alpha (one-sided,
    1 %), the one with the smallest mean interval score is recommended. Another method is about as
    good if its score is at most 10 % larger and a paired t-test over the folds, at 5 %, does not
    tell the two apart.
    """
    table = rows.pivot(index="fold", columns="method", values="score")
    table = table[list(dict.fromkeys(rows["method"]))]
    works = [name for name in table if np.isfinite(table[name]).all()]
    short = [name for name in works if falls_short(rows[rows["method"] == name], alpha)]
    left = [name for name in works if name not in short]
    if not left:
        return Recommendation(None, (), (), tuple(short), None, alpha)
    best = min(left, key=lambda name: float(table[name].mean()))
    others = [name for name in left if name != best]
    noise = [name for name in others if not differs((table[name] - table[best]).to_numpy())]
    same = [name for name in noise if table[name].mean() <= CLOSE * table[best].mean()]
    unclear = [name for name in noise if name not in same]
    certified = float(rows.loc[rows["method"] == best, "certified"].mean())
    known = None if math.isnan(certified) else certified
    return Recommendation(best, tuple(same), tuple(unclear), tuple(short), known, alpha)


def falls_short(rows: pd.DataFrame, alpha: float) -> bool:
    """Whether the coverage of a method's folds is significantly below 1 − alpha.

    Given the training rows of a fold, coverage varies with variance α(1 − α)/(n + 2); folds share
    training rows, so this does not become smaller with their number.
    """
    tested = rows["n_test"].sum()
    coverage = float((rows["coverage"] * rows["n_test"]).sum() / tested)
    error = math.sqrt(alpha * (1 - alpha) * (1 / tested + 1 / (rows["n"].min() + 2)))
    return coverage < 1 - alpha - SHORT * error


def differs(differences: np.ndarray) -> bool:
    """Whether differences, one a fold, have a mean that is not 0, by a two-sided t-test."""
    from scipy.stats import t

    count = len(differences)
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    return abs(float(differences.mean())) > float(t.isf(SAME / 2, count - 1)) * error


def _listed(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
