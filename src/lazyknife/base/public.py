"""Public: starting weights that never saw the data."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from ..networks import listed_networks, wide
from ..records import INDEPENDENT, Base, PrivacyCurve
from .method import BaseMethod, Task


@dataclass(frozen=True)
class Public(BaseMethod):
    """Keep the network's own weights: a random start, or a network trained on other data.

    Its weights cost the guarantee nothing, whatever seed was fixed before looking at the rows.
    """

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        return Base(copy.deepcopy(task.start), INDEPENDENT, {"method": "public"})


def check_base(base: BaseMethod | None) -> BaseMethod:
    """Return the base; None is ``Public()``."""
    if not isinstance(base, BaseMethod | None):
        raise TypeError(f"base={base!r}: give an instance such as DPSGD(), Public() or Split()")
    return Public() if base is None else base


def check_trainable(base: BaseMethod, network: Any) -> None:
    """Refuse a base that would have nothing to train."""
    listed = listed_networks(network)
    if listed and type(base) is not Public and all(isinstance(each, wide) for each in listed):
        raise ValueError(
            f"base={base} with network={network!r}: infinitely wide networks have no weights to "
            "train: use base=Public(), or add a finite network such as mlp((64, 64))"
        )
