"""Settings that scikit-learn can list, copy and search over, in objects that never change.

scikit-learn sets ``base__epsilon`` by changing the object at ``base``. Bases, losses and feature
maps are shared and hashed, so they are frozen: the estimator's own ``set_params`` replaces the
object by a changed copy instead, by ``with_settings``.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self


class Settings:
    """A dataclass of settings that estimators take as one of their own."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with ``deep`` those of nested objects too, as ``a__b``."""
        if not is_dataclass(self):
            return {}
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        nested = {
            f"{name}__{inner}": value
            for name, held in own.items()
            if deep and isinstance(held, Settings)
            for inner, value in held.get_params().items()
        }
        return own | nested

    def __sklearn_clone__(self) -> Self:
        return copy.deepcopy(self)


def grouped(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split changes into plain ones, and those of nested objects by the object's name."""
    plain, nested = {}, defaultdict[str, dict[str, Any]](dict)
    for key, value in changes.items():
        name, nests, inner = key.partition("__")
        if nests:
            nested[name][inner] = value
        else:
            plain[name] = value
    return plain, nested


def with_settings(held: Any, changes: Mapping[str, Any], name: str) -> Any:
    """Return a changed copy of an object of settings, the one that ``name`` refers to."""
    if not isinstance(held, Settings):
        raise ValueError(
            f"{name}__{next(iter(changes))}: {name}={held!r} has no settings of its own; give an "
            f"object first, such as {name}=DPSGD() for a base"
        )
    known = held.get_params(deep=False)
    plain, nested = grouped(changes)
    for unknown in (plain.keys() | nested.keys()) - known.keys():
        raise ValueError(
            f"{name}__{unknown}: {type(held).__name__} has no setting {unknown!r}; it has "
            f"{', '.join(map(repr, known)) or 'none'}"
        )
    plain |= {
        key: with_settings(plain.get(key, known[key]), inner, f"{name}__{key}")
        for key, inner in nested.items()
    }
    return replace(held, **plain)  # type: ignore[type-var]
