"""What a study consists of: data × methods × settings × trials, written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from lazyknife.methods import MethodSettings


@dataclass(frozen=True)
class Setting(MethodSettings):
    """What a trial is run with; the values are those of the paper's experiments.

    Attributes
    ----------
    n, n_test
        Training rows, and test rows; None tests on all others.
    transform
        None or ``"symlog"``, applied to the features.

    """

    intercept: bool = False
    n: int = 100
    n_test: int | None = None
    transform: str | None = None


# In the order of the columns in results/; the network is a method's own.
SETTING_FIELDS = (
    *("n", "n_test", "alpha", "transform", "epochs", "batch_size"),
    *("epsilon", "delta", "ridge", "readout", "intercept"),
)


def vary(setting: Setting = Setting(), **values: Sequence[Any]) -> tuple[Setting, ...]:  # noqa: B008, frozen
    """Return one setting for each combination of the values given for its fields."""
    names = list(values)
    return tuple(
        replace(setting, **dict(zip(names, combination, strict=True)))
        for combination in product(*values.values())
    )


@dataclass(frozen=True)
class Grid:
    """All combinations of data sets, methods and settings; methods are keys of ``METHODS``."""

    data: tuple[str, ...]
    methods: tuple[str, ...]
    settings: tuple[Setting, ...] = (Setting(),)


@dataclass(frozen=True)
class Trial:
    """One fit and one prediction: the number seeds the data, the split and the method."""

    data: str
    method: str
    setting: Setting
    number: int

    @property
    def key(self) -> dict[str, str]:
        """What identifies the trial, as it is written in a file."""
        settings = {name: getattr(self.setting, name) for name in SETTING_FIELDS}
        values = {"data": self.data, "method": self.method, **settings, "trial": self.number}
        return {name: shown(value) for name, value in values.items()}


@dataclass(frozen=True)
class Study:
    """A named question and the trials that answer it.

    Attributes
    ----------
    name, title
        For files and for people.
    grids
        What to run.
    figure
        Which figure to draw of the rows: a key of ``FIGURES``.
    trials
        Repetitions of every combination.
    question
        What the study is to find out, for a page.
    across
        The field of ``Setting`` that a figure has on its x-axis, if it has one.

    """

    name: str
    title: str
    grids: tuple[Grid, ...]
    figure: str = "comparison"
    trials: int = 15
    question: str = ""
    across: str = ""

    def expand(self, trials: int | None = None) -> list[Trial]:
        """Return all trials, each once, in a fixed order."""
        numbers = range(self.trials if trials is None else trials)
        every = (
            Trial(data, method, setting, number)
            for grid in self.grids
            for data, setting, number, method in product(
                grid.data, grid.settings, numbers, grid.methods
            )
        )
        return list(dict.fromkeys(every))


def shown(value: Any) -> str:
    """Write a value as a file shows it; None and NaN are empty."""
    return "" if value is None or value != value else str(value)
