"""Infinitely wide networks: random starts of unlimited width, of which only a kernel remains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.checks import check_choice, check_flag, check_reasonable
from .kernels import KINDS

SQUASH = 2.0  # x ↦ sign(x)·log(1 + 2|x|)

Kernel = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class wide:
    """An infinitely wide network, as a candidate for ``network``.

    Parameters
    ----------
    kind
        A key of ``lazyknife.networks.KINDS``: ``"gaussian"``, ``"laplace"``, ``"matern32"``,
        ``"matern52"``, ``"anova_gaussian"``, ``"anova_laplace"`` or ``"relu"``. Or a positive
        definite kernel: a function of two tensors (m, features) and (n, features) that returns
        their kernel (m, n), or a kernel of ``sklearn.gaussian_process.kernels``.
    scale
        Inputs are multiplied by scale/√features. None lets every model choose among powers of 2;
        a kernel function has its own scale and takes no other.
    squash
        Whether inputs are first compressed, x ↦ sign(x)·log(1 + 2|x|): for heavy tails.

    """

    kind: str | Kernel = "laplace"
    scale: float | None = None
    squash: bool = False

    def __post_init__(self) -> None:
        if not callable(self.kind):
            check_choice("kind", self.kind, KINDS)
        elif self.scale is not None:
            raise ValueError(f"scale={self.scale!r}: a kernel function has its own scale")
        if self.scale is not None:
            check_reasonable("scale", self.scale)
        check_flag("squash", self.squash)

    def __str__(self) -> str:
        """Return a short name, for tables."""
        kind = self.kind
        if not isinstance(kind, str):
            kind = str(getattr(kind, "__name__", type(kind).__name__))
        return kind + (" squashed" if self.squash else "")

    def prepared(self, X: Tensor) -> Tensor:
        """Inputs as the kernel takes them; different codes of a category stay different."""
        return X.sign() * torch.log1p(SQUASH * X.abs()) if self.squash else X


def is_known(network: Any) -> bool:
    """Whether a network is infinitely wide and of a known kind: it takes categories and gaps."""
    return isinstance(network, wide) and isinstance(network.kind, str)


def listed_networks(network: Any) -> tuple[Any, ...] | None:
    """The candidates that were given; None for a single finite network or none at all."""
    if isinstance(network, wide):
        return (network,)
    if isinstance(network, list | tuple):
        if not network:
            raise ValueError("network=[]: give at least one candidate")
        return tuple(network)
    return None


# The meaning of ``network=None``, where nothing else needs a finite network.
CANDIDATES = tuple(
    wide(kind, squash=squash)
    for squash in (False, True)
    for kind in ("gaussian", "laplace", "anova_laplace", "anova_gaussian")
)
