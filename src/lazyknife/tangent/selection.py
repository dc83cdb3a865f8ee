"""Which parameters the lazy step moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from torch import nn

# "all", "last", name patterns such as "head.*", or a predicate on name and parameter.
Selection = str | Sequence[str] | Callable[[str, nn.Parameter], bool]


def freeze_others(module: nn.Module, selection: Selection) -> None:
    """Freeze the parameters that are not selected; frozen ones stay frozen."""
    moved = selected(module, selection)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in moved)


def selected(module: nn.Module, selection: Selection) -> dict[str, nn.Parameter]:
    """Return the selected ones of the network's free parameters."""
    named = dict(module.named_parameters())
    chosen = _chosen(named, selection)
    moved = {name: named[name] for name in chosen if named[name].requires_grad}
    if not moved:
        raise ValueError(
            f"parameters={selection!r} selects none of the network's free parameters: choose from "
            f"{[name for name, p in named.items() if p.requires_grad]}"
        )
    return moved


def _chosen(named: dict[str, nn.Parameter], selection: Selection) -> list[str]:
    if selection == "all":
        return list(named)
    if selection == "last":  # the module that holds the last parameter
        holder = list(named)[-1].rpartition(".")[0]
        return [name for name in named if name.rpartition(".")[0] == holder]
    if callable(selection):
        return [name for name, parameter in named.items() if selection(name, parameter)]
    if isinstance(selection, str):
        raise ValueError(
            f"parameters={selection!r}: give 'all', 'last', a list of name patterns such as "
            f"[{selection!r}], or a function of name and parameter"
        )
    unmatched = [p for p in selection if not any(fnmatchcase(name, p) for name in named)]
    if unmatched:
        raise ValueError(
            f"parameters: no parameter of the network matches {unmatched}; they are {list(named)}"
        )
    return [name for name in named if any(fnmatchcase(name, pattern) for pattern in selection)]
