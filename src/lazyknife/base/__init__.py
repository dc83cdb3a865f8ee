"""How base weights θ0 are obtained: each way is a class and an entry of ``BASES``."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .dpsgd import DPSGD
from .method import BaseMethod, Task
from .perturbed import Perturbed
from .plain import Plain, Public, Split, check_base, check_trainable

BASES: dict[str, type[BaseMethod]] = {
    "public": Public,
    "split": Split,
    "dpsgd": DPSGD,
    "perturbed": Perturbed,
    "plain": Plain,
}
