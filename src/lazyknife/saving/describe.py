"""A description of a setting that can be compared with that of another object.

What a user passes to ``load`` must be what the model was fitted with. Functions and classes cannot
be compared, so their names are.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from .container import digest
from .forms import Json, is_plain
from .layout import pack
from .modules import structure_of


def describe(value: Any, fitted: bool = False) -> Json:
    """Return a description in JSON; of an estimator with ``fitted`` all that it learnt."""
    if is_plain(value):
        return value
    if isinstance(value, nn.Module):
        return structure_of(value)
    if isinstance(value, Tensor):
        return digest(pack(value).values)
    if isinstance(value, list | tuple):
        return [describe(part, fitted) for part in value]
    if isinstance(value, dict):
        return {str(key): describe(part, fitted) for key, part in value.items()}
    if isinstance(value, np.ndarray) or np.isscalar(value):
        return repr(np.asarray(value).tolist())
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"class": type(value).__name__, **describe(own, fitted)}
    if hasattr(value, "get_params"):
        own = vars(value) if fitted else value.get_params(deep=False)
        return {"class": type(value).__name__, **describe(dict(own), fitted)}
    return name_of(value)


def name_of(value: Any) -> str:
    """Name of a function, or of the class of an object."""
    found = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return str(found) if found else f"of class {type(value).__name__}"


def difference(saved: Json, given: Json, where: str = "") -> str:
    """Say where two descriptions differ first; nothing if they are equal."""
    if saved == given:
        return ""
    if isinstance(saved, dict) and isinstance(given, dict) and saved.keys() == given.keys():
        pairs = ((f"{where}.{key}", saved[key], given[key]) for key in saved)
    elif isinstance(saved, list) and isinstance(given, list) and len(saved) == len(given):
        pairs = ((f"{where}[{k}]", *both) for k, both in enumerate(zip(saved, given, strict=True)))
    else:
        return f"{where.lstrip('.') or 'it'} was {_short(saved)} and is {_short(given)}"
    return next(found for place, old, new in pairs if (found := difference(old, new, place)))


def _short(data: Json) -> str:
    text = repr(data)
    return text if len(text) <= 200 else f"{text[:200]}…"
