"""Ways to get base weights θ0: one way, one file."""

from .dpsgd import DPSGD
from .method import BaseMethod, Task
from .perturbed import Perturbed
from .plain import Plain
from .pretrained import Pretrained
from .public import Public
from .split import Split

BASES: dict[str, type[BaseMethod]] = {
    "public": Public,
    "split": Split,
    "dpsgd": DPSGD,
    "perturbed": Perturbed,
    "pretrained": Pretrained,
    "plain": Plain,
}

__all__ = [
    "BASES",
    "DPSGD",
    "BaseMethod",
    "Perturbed",
    "Plain",
    "Pretrained",
    "Public",
    "Split",
    "Task",
]
