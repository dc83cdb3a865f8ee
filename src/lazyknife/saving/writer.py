"""From a graph of records to JSON and tensors.

Objects that may be shared are listed once each, parts before wholes, and referred to by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from .describe import describe, name_of
from .forms import FORMS, Codec, Json, Known, is_plain, tag_of
from .modules import is_data, state_of, structure_of, weights_of


class Unsaved(ValueError):
    """Something that cannot be written as data."""


class Writer:
    """Writes values that refer to one another.

    Parameters
    ----------
    known
        The classes that may occur.
    templates
        Networks that the reader will have: others of the same structure are written as weights.

    """

    def __init__(self, known: Known, templates: Sequence[nn.Module] = ()) -> None:
        kinds = {name: of.kind if isinstance(of, Codec) else of for name, of in known.items()}
        self.known, self.templates = known, templates
        self.names = {kind: name for name, kind in kinds.items()}
        self.objects: list[Json] = []
        self.tensors: dict[str, Tensor] = {}
        self.places: dict[tuple[object, ...], str] = {}
        self.needs: dict[str, str] = {}  # settings that the reader must have, and why
        self._path: list[str] = []
        self._numbers: dict[int, Json] = {}  # of objects that were met, by their id
        self._alive: list[Any] = []  # so that no two have the same id
        self._setting: list[str] | None = None

    def setting(self, name: str, value: Any) -> Json:
        """Write a setting; what is not data in it will have to be given to the reader."""
        self._setting = [name]
        with self._at(name):
            found = self.value(value)
        self._setting = None
        return found

    def given(self, value: Any, name: str) -> None:
        """Say that an object is not written: the reader takes the setting of this name instead."""
        self._keep(value, {"given": {"path": [name], "fitted": describe(value, fitted=True)}})
        self.needs.setdefault(name, f"a fitted {type(value).__name__}")

    def at(self, name: str, value: Any) -> Json:
        """Write a part."""
        with self._at(name):
            return self.value(value)

    def value(self, value: Any) -> Json:
        """Write a value."""
        if is_plain(value):
            return value
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        tag = tag_of(value)
        if tag is None:
            return self._object(value)
        written = {tag: FORMS[tag].write(self, value)}
        return self._listed(value, written) if FORMS[tag].shared else written

    def free_name(self) -> str:
        """Return a name for a tensor: where it was met first."""
        name = ".".join(self._path)
        return name if name not in self.tensors else f"{name}#{len(self.tensors)}"

    def cannot(self, value: Any, what: str) -> Unsaved:
        """Return the error for a value that is not data."""
        place = ".".join(self._path)
        return Unsaved(f"{place} cannot be saved: it is {what} ({value!r:.100})")

    def _object(self, value: Any) -> Json:
        if isinstance(value, nn.Parameter):
            own = {"value": self.value(value.detach()), "moves": value.requires_grad}
            return self._listed(value, {"parameter": own})
        if isinstance(value, nn.Module):
            return self._module(value)
        name = self.names.get(type(value))
        state = None if name is None else self._state(self.known[name], value)
        if name is None or state is None:
            return self._given(value)
        written = {part: self.at(part, inner) for part, inner in state.items()}
        return self._listed(value, {"record": name, "fields": written})

    def _state(self, kind: type | Codec, value: Any) -> dict[str, Any] | None:
        if isinstance(kind, Codec):
            return kind.state(value)
        if is_dataclass(kind):
            return {field.name: getattr(value, field.name) for field in fields(kind)}
        return dict(value._asdict())

    def _module(self, module: nn.Module) -> Json:
        """All of a network, or its weights if the reader will have one like it."""
        if not is_data(module, self.names.keys()):
            if self._setting is not None:
                return self._given(module)
            structure = structure_of(module)
            for number, template in enumerate(self.templates):
                if structure_of(template) == structure:
                    state = self.at("weights", weights_of(module, template))
                    own = {"template": number, "structure": structure, "state": state}
                    return self._listed(module, {"weights": own})
        if type(module) not in self.names:
            raise self.cannot(module, "a network unlike that of the settings")
        state = {name: self.at(name, part) for name, part in state_of(module).items()}
        return self._listed(module, {"module": self.names[type(module)], "state": state})

    def _given(self, value: Any) -> Json:
        if self._setting is None:
            raise self.cannot(value, f"of class {type(value).__name__}, which is not data")
        self.needs.setdefault(self._path[0], name_of(value))
        return self._keep(value, {"given": {"path": list(self._path)}})

    def _listed(self, value: Any, written: Json) -> Json:
        self.objects.append(written)
        return self._keep(value, {"ref": len(self.objects) - 1})

    def _keep(self, value: Any, reference: Json) -> Json:
        self._alive.append(value)
        self._numbers[id(value)] = reference
        return reference

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        self._path.append(name)
        yield
        self._path.pop()
