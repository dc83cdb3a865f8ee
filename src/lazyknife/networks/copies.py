"""Copies of networks: private ones that share the parameters, and whole ones."""

from __future__ import annotations

import copy
import types
import weakref
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

# Types of values that nothing can change, so that copies may share them.
_CONSTANT = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, type),
        *(types.FunctionType, types.BuiltinFunctionType, weakref.ReferenceType),
        *(torch.dtype, torch.device, torch.Size),
    }
)
_HOLDERS = frozenset({dict, OrderedDict, set, list})


def private(module: nn.Module) -> nn.Module:
    """Return a copy of a network that shares the parameters and owns everything else.

    It is many times faster than ``copy.deepcopy``, which would copy the parameters too.
    """
    return _private(module, {})


def _private(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Copy a module and its parts; ``memo`` holds what was copied, by id, as in ``copy``."""
    parts = [part for part in module.modules() if id(part) not in memo]
    for part in parts:  # all of them first: any attribute may refer to any of them
        compiled = isinstance(part, torch.jit.ScriptModule)  # it runs outside Python
        memo[id(part)] = part if compiled else object.__new__(type(part))
        for parameter in part._parameters.values():
            memo[id(parameter)] = parameter
    for part in parts:
        twin = memo[id(part)]
        if twin is not part:
            state = vars(twin)
            for name, value in vars(part).items():  # the common cases without a call, for speed
                kind = type(value)
                if kind in _CONSTANT:
                    state[name] = value
                elif kind in _HOLDERS and not value:  # mostly of hooks
                    state[name] = kind()
                else:
                    state[name] = _copied(value, memo)
    copied: nn.Module = memo[id(module)]
    return copied


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Copy an attribute of a module; what cannot be copied is shared."""
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if id(value) in memo:
        return memo[id(value)]
    twin: Any
    if kind is dict or kind is OrderedDict:
        twin = memo[id(value)] = kind()
        for key, inner in value.items():
            twin[key] = memo[id(inner)] if id(inner) in memo else _copied(inner, memo)
    elif kind is list:
        twin = memo[id(value)] = []
        twin += [_copied(inner, memo) for inner in value]
    elif kind is tuple or kind is set:
        twin = kind([_copied(inner, memo) for inner in value])
    elif kind is Tensor:  # a buffer, or what forward stored, perhaps with its graph
        twin = memo[id(value)] = (value.detach() if value.requires_grad else value).clone()
    elif isinstance(value, nn.Module):
        twin = _private(value, memo)
    else:
        try:
            twin = copy.deepcopy(value, memo)
        except Exception:
            twin = value
    return twin


def deep_copy(module: nn.Module) -> nn.Module:
    """Copy a network with its weights; tensors that ``forward`` stored are detached."""
    kept = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, kept)


def evaluation_copy(module: nn.Module) -> nn.Module:
    """Return a float64 copy on the CPU, in evaluation mode."""
    copied = deep_copy(module).to("cpu", torch.float64).eval()
    for part in copied.modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
            # A call would rescale the entries that it reads; here all of them, once.
            everything = torch.arange(part.num_embeddings)
            torch.embedding_renorm_(part.weight.detach(), everything, part.max_norm, part.norm_type)
    return copied
