"""From JSON and tensors to a graph of records, of known classes only.

Nothing in a file names what is imported or called: a class is looked up in the caller's dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .describe import describe, difference
from .forms import FORMS, Codec, Json, Known, is_plain
from .modules import module_from, structure_of, with_weights


class Refused(ValueError):
    """What the caller passed does not fit the file."""


class Reader:
    """Reads values that refer to one another.

    Parameters
    ----------
    known
        The classes that may occur.
    objects, tensors
        What the file holds.
    given, templates
        Settings that the caller passed, and networks as in ``Writer``.
    map_location
        The device of all tensors; None leaves them where they were.

    """

    def __init__(
        self,
        known: Known,
        objects: Sequence[Json],
        tensors: Mapping[str, Tensor],
        given: Mapping[str, Any],
        templates: Sequence[nn.Module] = (),
        map_location: torch.device | None = None,
    ) -> None:
        self.known, self.tensors, self.given = known, tensors, given
        self.templates, self.map_location = templates, map_location
        self._kinds: dict[str, Any] = {
            "record": self._record,
            "module": self._module,
            "weights": self._weights,
            "parameter": self._parameter,
        }
        self._made: list[Any] = []
        for data in objects:  # parts before wholes, so none refers to a later one
            self._made.append(self._object(data))

    def value(self, data: Json) -> Any:
        """Read a value."""
        if is_plain(data):
            return data
        ((tag, content),) = data.items()
        if tag == "ref":
            return self._made[content]
        if tag == "given":
            return self._given(**content)
        return FORMS[tag].read(self, content)

    def device(self, name: str) -> torch.device:
        """Return where a tensor goes."""
        found = torch.device(name) if self.map_location is None else self.map_location
        if found.type == "cuda" and not torch.cuda.is_available():
            raise Refused(f"the model is on {found}, which is not here: pass map_location='cpu'")
        return found

    def _object(self, data: Json) -> Any:
        tag = next(iter(data), "")
        return self._kinds[tag](data) if tag in self._kinds else self.value(data)

    def _record(self, data: Json) -> Any:
        kind = self._known(data["record"])
        state = {name: self.value(value) for name, value in data["fields"].items()}
        if isinstance(kind, Codec):
            return kind.make(**state)
        names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
        if not state.keys() <= set(names):
            raise ValueError(f"{data['record']} has no {sorted(state.keys() - set(names))}")
        return kind(**state)

    def _known(self, name: str) -> type | Codec:
        if name not in self.known:
            raise ValueError(f"{name!r} is not a class that a saved model may contain")
        return self.known[name]

    def _module(self, data: Json) -> nn.Module:
        kind = self._known(data["module"])
        if isinstance(kind, Codec) or not issubclass(kind, nn.Module):
            raise ValueError(f"{data['module']!r} is not a network")
        return module_from(kind, {name: self.value(part) for name, part in data["state"].items()})

    def _weights(self, data: Json) -> nn.Module:
        own = data["weights"]
        template = self.templates[own["template"]]
        found = difference(own["structure"], structure_of(template))
        if found:
            raise Refused(f"network: the network given is not the one of the file: {found}")
        return with_weights(template, self.value(own["state"]))

    def _parameter(self, data: Json) -> nn.Parameter:
        own = data["parameter"]
        return nn.Parameter(self.value(own["value"]), requires_grad=bool(own["moves"]))

    def _given(self, path: Sequence[str], fitted: Json = None) -> Any:
        """Return what the caller passed: a setting, or a part of it."""
        found = self.given[path[0]]
        for step in path[1:]:
            found = found[int(step)] if isinstance(found, list | tuple) else _field(found, step)
        other = "" if fitted is None else difference(fitted, describe(found, fitted=True))
        if other:
            raise Refused(f"{path[0]}={found!r} is not the one of the file: {other}")
        return found


def _field(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value[name]
    if is_dataclass(value) and name in {field.name for field in fields(value)}:
        return getattr(value, name)
    raise ValueError(f"{value!r} has no part {name!r}")
