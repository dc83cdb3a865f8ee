"""How base weights θ0 are obtained: each way is one file and one entry of ``BASES``."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .dpsgd import DPSGD
from .method import BaseMethod, Task
from .perturbed import Perturbed
from .plain import Plain
from .pretrained import Pretrained
from .public import Public, check_base, check_trainable
from .split import Split

BASES: dict[str, type[BaseMethod]] = {
    "public": Public,
    "split": Split,
    "dpsgd": DPSGD,
    "perturbed": Perturbed,
    "pretrained": Pretrained,
    "plain": Plain,
}
