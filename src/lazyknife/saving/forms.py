"""How each type of value is written as JSON and read again: one entry of a dict for each tag."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .layout import Packed, pack, place_of, unpack

if TYPE_CHECKING:
    from .reader import Reader
    from .writer import Writer

DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
NUMBERS = "biuf"
KINDS = NUMBERS + "U"  # of numbers and text in arrays
Json = Any  # None, bool, int, float, str, and lists and dicts of these


class Codec(NamedTuple):
    """A class that is not a record, written by its state; ``state`` returns None for "cannot"."""

    kind: type
    state: Callable[[Any], dict[str, Any] | None]
    make: Callable[..., Any]  # from that state, by name


Known = dict[str, type | Codec]  # the classes that may occur in a file, by the name they have there


class Form(NamedTuple):
    """Types with a common form in JSON."""

    types: tuple[type, ...]
    write: Callable[[Writer, Any], Json]
    read: Callable[[Reader, Json], Any]
    shared: bool = False  # whether two references to one object must stay one


def _write_sequence(writer: Writer, values: Any) -> Json:
    return [writer.at(str(k), value) for k, value in enumerate(values)]


def _read_sequence(reader: Reader, data: Json) -> list[Any]:
    return [reader.value(part) for part in data]


def _write_dict(writer: Writer, values: dict[Any, Any]) -> Json:
    return [[writer.value(key), writer.at(str(key), value)] for key, value in values.items()]


def _read_dict(reader: Reader, data: Json) -> dict[Any, Any]:
    return {reader.value(key): reader.value(value) for key, value in data}


def _write_set(writer: Writer, values: frozenset[Any]) -> Json:
    """Sets of fingerprints may be long: as a tensor."""
    if values and all(type(value) is int and 0 <= value < 2**64 for value in values):
        numbers = np.array(sorted(values), dtype=np.uint64).view(np.int64)
        return {"unsigned": writer.value(torch.from_numpy(numbers))}
    return {"values": [writer.value(value) for value in sorted(values, key=repr)]}


def _read_set(reader: Reader, data: Json) -> frozenset[Any]:
    if "unsigned" in data:
        numbers = reader.value(data["unsigned"]).cpu().numpy().view(np.uint64)
        return frozenset(numbers.tolist())
    return frozenset(_read_sequence(reader, data["values"]))


def _write_tensor(writer: Writer, tensor: Tensor) -> Json:
    name = writer.places.get(place_of(tensor))
    packed = pack(tensor)
    if name is None:
        name = writer.places[place_of(tensor)] = writer.free_name()
        writer.tensors[name] = packed.values
    return {
        "name": name,
        "shape": packed.shape,
        "stride": packed.stride,
        "device": str(tensor.device),
    }


def _read_tensor(reader: Reader, data: Json) -> Tensor:
    packed = Packed(reader.tensors[data["name"]], data["shape"], data["stride"])
    return unpack(packed, reader.device(data["device"]))


def _write_array(writer: Writer, array: np.ndarray[Any, Any]) -> Json:
    """Arrays of text as lists, all others as tensors."""
    if array.dtype.kind in "OU":
        listed = array.ravel().tolist()
        if not all(isinstance(value, str) for value in listed):
            raise writer.cannot(array, "an array of objects that are not text")
        kind = "O" if array.dtype.kind == "O" else array.dtype.str
        return {"text": listed, "shape": list(array.shape), "dtype": kind}
    values = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return {"values": writer.value(values), "dtype": array.dtype.str}


def _read_array(reader: Reader, data: Json) -> np.ndarray[Any, Any]:
    if "text" in data:
        kind = object if data["dtype"] == "O" else str  # as wide as the text, whatever a file says
        return np.array(list(map(str, data["text"])), dtype=kind).reshape(data["shape"])
    found: np.ndarray[Any, Any] = reader.value(data["values"]).cpu().numpy()
    return found.astype(_numpy_type(data["dtype"], NUMBERS), copy=False)


def _write_number(writer: Writer, number: np.generic) -> Json:
    if number.dtype.kind not in KINDS:
        raise writer.cannot(number, f"a number of type {number.dtype}")
    return [number.dtype.str, writer.value(number.item())]


def _read_number(reader: Reader, data: Json) -> Any:
    name, value = data
    return _numpy_type(name).type(reader.value(value))


def _numpy_type(name: str, kinds: str = KINDS) -> np.dtype[Any]:
    found = np.dtype(str(name))
    if found.kind not in kinds:
        raise ValueError(f"{name!r} is not a type that is expected here")
    return found


FORMS: dict[str, Form] = {
    "float": Form((float,), lambda _, value: repr(value), lambda _, data: float(data)),
    "tuple": Form((tuple, torch.Size), _write_sequence, lambda r, d: tuple(_read_sequence(r, d))),
    "list": Form((list,), _write_sequence, _read_sequence, shared=True),
    "dict": Form((dict,), _write_dict, _read_dict, shared=True),
    "set": Form((frozenset,), _write_set, _read_set),
    "tensor": Form((Tensor,), _write_tensor, _read_tensor, shared=True),
    "array": Form((np.ndarray,), _write_array, _read_array, shared=True),
    "number": Form((np.generic,), _write_number, _read_number),
    "dtype": Form((torch.dtype,), lambda _, v: str(v), lambda _, data: DTYPES[data]),
    "device": Form((torch.device,), lambda _, value: str(value), lambda r, d: r.device(d)),
}
_TAGS = {kind: tag for tag, form in FORMS.items() for kind in form.types}


def is_plain(value: Any) -> bool:
    """Whether JSON has the value itself; it has no infinities."""
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def tag_of(value: Any) -> str | None:
    """Return the tag of a value's form, if there is one."""
    kind = np.generic if isinstance(value, np.generic) else type(value)
    return _TAGS.get(kind)
