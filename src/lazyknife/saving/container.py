"""One file: a safetensors file whose metadata is the JSON document, with hashes of both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import replacing

SCHEMA = 1  # raised when older versions could not read what is written
FORMAT = "lazyknife model"


class Container(NamedTuple):
    """What a file holds."""

    document: dict[str, Any]  # as JSON
    tensors: dict[str, Tensor]  # contiguous ones on the CPU, by name


def write_container(path: Path, container: Container) -> None:
    """Write a file completely or not at all."""
    tensors = container.tensors
    document = container.document | {
        "lazyknife": version("lazyknife"),
        "hashes": {name: digest(tensor) for name, tensor in tensors.items()},
    }
    text = json.dumps(document, allow_nan=False)  # in ASCII, which has a form for any text
    metadata = {
        "format": FORMAT,
        "schema": str(SCHEMA),
        "document": text,
        "sha256": sha256(text.encode()).hexdigest(),
    }
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # a full disk, among others
            raise OSError(str(error)) from None


def read_container(path: Path) -> Container:
    """Read a file, or raise a ValueError that says what is wrong with it."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{path} is not a file: give one that model.save wrote")
    try:
        with _openable(path) as place, safe_open(place, framework="pt") as file:
            document = _document(path, file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            _check_tensors(path, document.get("hashes"), tensors)
    except (SafetensorError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return Container(document, tensors)


@contextmanager
def _openable(path: Path) -> Iterator[str]:
    """Yield a name that safetensors takes: if the file's own is not UTF-8, that of an open file."""
    name = str(path)
    try:
        opened = path.open("rb")
    except ValueError as error:  # a null character, half a character
        raise ValueError(f"{name!r} is not the name of a file ({error})") from None
    with opened:
        whole = name.encode(errors="ignore").decode() == name
        yield name if whole else f"/dev/fd/{opened.fileno()}"


def _document(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON, once format, schema and hash have been checked."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a saved model: give a file that model.save wrote")
    schema, text = metadata.get("schema", ""), metadata.get("document", "")
    if not schema.isdecimal() or int(schema) > SCHEMA:
        raise ValueError(
            f"{path} has schema {schema!r}, and this version of lazyknife ({version('lazyknife')}) "
            f"reads schemas up to {SCHEMA}: install a newer lazyknife, or fit and save again"
        )
    if metadata.get("sha256") != sha256(text.encode()).hexdigest():
        raise _damaged(path, "the hash of its JSON differs")
    try:
        document = json.loads(text)
    except ValueError as error:  # no JSON, or a number of thousands of digits
        raise _damaged(path, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(path, "its JSON is not an object")
    return document


def _check_tensors(path: Path, hashes: Any, tensors: Mapping[str, Tensor]) -> None:
    if not isinstance(hashes, dict) or hashes.keys() != tensors.keys():
        raise _damaged(path, "it has other tensors than its JSON names")
    for name, tensor in tensors.items():
        if digest(tensor) != hashes[name]:
            raise _damaged(path, f"the hash of tensor {name!r} differs")


def digest(tensor: Tensor) -> str:
    """Hash of a tensor's type, shape and entries."""
    found = sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path} is damaged or was changed ({reason}): nothing was loaded. Copy the file again, or "
        "save the model again"
    )
