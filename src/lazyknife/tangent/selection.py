"""Which parameters the lazy step moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

# A name below, patterns of parameter names such as ["head.*"], or a function of name and parameter.
Selection = str | Sequence[str] | Callable[[str, nn.Parameter], bool]


def last(names: list[str]) -> list[str]:
    """Return the parameters of the module that has the last one."""
    owner = names[-1].rpartition(".")[0]
    return [name for name in names if name.rpartition(".")[0] == owner]


SELECTIONS: dict[str, Callable[[list[str]], list[str]]] = {"all": list, "last": last}


def check_selection(selection: Any) -> None:
    """Refuse what cannot select parameters."""
    listed = isinstance(selection, list | tuple) and len(selection) > 0
    patterns = listed and all(isinstance(pattern, str) for pattern in selection)
    if callable(selection) or patterns or (isinstance(selection, str) and selection in SELECTIONS):
        return
    example = selection if isinstance(selection, str) else "head.*"
    raise (ValueError if isinstance(selection, str) else TypeError)(
        f"parameters={selection!r}: give {', '.join(map(repr, SELECTIONS))}, a list of name "
        f"patterns such as [{example!r}], or a function of name and parameter"
    )


def selected(module: nn.Module, selection: Selection) -> dict[str, nn.Parameter]:
    """Return the parameters that are selected and not frozen, by name."""
    check_selection(selection)
    named = dict(module.named_parameters())
    free = {name: p for name, p in named.items() if p.requires_grad}
    moved = {name: free[name] for name in _chosen(named, selection) if name in free}
    if not moved:
        raise ValueError(
            f"parameters={selection!r} selects none of the network's parameters that are not "
            f"frozen: choose from {list(free)}"
        )
    return moved


def _chosen(named: dict[str, nn.Parameter], selection: Selection) -> list[str]:
    if isinstance(selection, str):
        return SELECTIONS[selection](list(named))
    if callable(selection):
        chosen = []
        for name, parameter in named.items():
            try:
                chosen += [name] if selection(name, parameter) else []
            except Exception as error:
                raise ValueError(
                    f"parameters={selection!r} failed for {name!r}: {error}. Give a function of "
                    "name and parameter that returns True or False"
                ) from error
        return chosen
    unmatched = [p for p in selection if not any(fnmatchcase(name, p) for name in named)]
    if unmatched:
        raise ValueError(
            f"parameters: no parameter of the network matches {unmatched}: choose from "
            f"{list(named)}"
        )
    return [name for name in named if any(fnmatchcase(name, pattern) for pattern in selection)]
