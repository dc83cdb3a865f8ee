"""What a study consists of: data × methods × settings × trials, written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from lazyknife.networks import Network


@dataclass(frozen=True)
class Setting:
    """What a trial is run with; the values are those of the paper's experiments."""

    alpha: float = 0.1
    network: Network | None = None
    epochs: int = 10
    batch_size: int = 10
    epsilon: float = 0.01  # privacy of the DP-SGD bases, as delta
    delta: float = 1e-3
    ridge: float | Literal["auto"] = 10.0
    readout: str = "network"
    intercept: bool = False
    n: int = 100  # training rows
    n_test: int | None = None  # test rows; None takes all others
    transform: str | None = None  # of the features: None or "symlog"
    y_in_sd: bool = False  # whether y is divided by its standard deviation over the whole set
    split: str = "random"  # how rows are cut into training and test rows, a key of SPLITS


# In the order of the columns in results/; the network is a method's own, the unit of y and the
# split are a study's.
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
    """All combinations of data sets, methods and settings.

    Methods are keys of ``METHODS``, or names of a caller's own, as data are.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...]
    settings: tuple[Setting, ...] = (Setting(),)
    trials: int | None = None  # repetitions, where they are not the study's


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
    """A named question and the trials that answer it."""

    name: str  # of its files
    title: str
    grids: tuple[Grid, ...]
    figure: str = "comparison"  # a key of FIGURES
    trials: int = 15  # repetitions of every combination
    across: str = ""  # the field of Setting on the x-axis of curves

    def expand(self, trials: int | None = None) -> list[Trial]:
        """Return all trials, each once, in a fixed order."""
        every = (
            Trial(data, method, setting, number)
            for grid in self.grids
            for data, setting, number, method in product(
                grid.data,
                grid.settings,
                range(trials or grid.trials or self.trials),
                grid.methods,
            )
        )
        return list(dict.fromkeys(every))


def shown(value: Any) -> str:
    """Write a value as a file shows it; None and NaN are empty."""
    return "" if value is None or value != value else str(value)
