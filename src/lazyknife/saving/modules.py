"""Networks as data where all their layers are known, else as weights for one that is passed in."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Structure = list[str]  # a line for each layer, parameter and buffer
_OWN = frozenset(vars(nn.Module()))  # attributes that every module has
_TENSORS = ("_parameters", "_buffers", "_modules")
_HOOKS = tuple(name for name in _OWN if name.endswith("_hooks"))
_PLAIN = (type(None), bool, int, float, str)


def constants(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of one layer besides its tensors and its parts."""
    return {name: value for name, value in vars(module).items() if name not in _OWN}


def is_data(module: nn.Module, known: Collection[type]) -> bool:
    """Whether a network consists of known layers without anything of the user's on them."""
    return all(
        type(part) in known
        and all(map(_is_constant, constants(part).values()))
        and not any(vars(part).get(name) for name in _HOOKS)
        for part in module.modules()
    )


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in _PLAIN


def state_of(module: nn.Module) -> dict[str, Any]:
    """Return what one layer of a network that is data consists of."""
    return {
        "constants": constants(module),
        "training": module.training,
        "parameters": dict(module._parameters),
        "buffers": dict(module._buffers),
        "passing": sorted(module._non_persistent_buffers_set),
        "modules": dict(module._modules),
    }


def module_from(kind: type[nn.Module], state: Mapping[str, Any]) -> nn.Module:
    """Return a layer of a known class with this state."""
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name, value in state["constants"].items():
        if name in _OWN or callable(getattr(kind, name, None)) or not _is_constant(value):
            raise ValueError(f"{name}={value!r} is not an attribute of {kind.__name__}")
        vars(module)[name] = value
    for name, value in state["parameters"].items():
        module.register_parameter(name, value)
    for name, value in state["buffers"].items():
        module.register_buffer(name, value, persistent=name not in state["passing"])
    for name, value in state["modules"].items():
        module.add_module(name, value)
    module.training = bool(state["training"])
    return module


def structure_of(module: nn.Module) -> Structure:
    """Describe a network: classes and settings of its layers, names and shapes of its tensors."""
    lines = [
        f"{path or 'network'}: {type(part).__name__}({part.extra_repr()})"
        for path, part in module.named_modules()
    ]
    named = [*module.named_parameters(), *module.named_buffers()]
    return [*lines, *(f"{name}: {_shape(tensor)}" for name, tensor in named)]


def _shape(tensor: Tensor) -> str:
    return "not known yet" if is_lazy(tensor) else str(tuple(tensor.shape))


def weights_of(module: nn.Module, template: nn.Module) -> dict[str, Any]:
    """Return what a copy of a network has that the network does not."""
    own = constants(template)
    return {
        "tensors": {
            name: tensor.detach()
            for name, tensor in (*module.named_parameters(), *module.named_buffers())
        },
        "moving": [name for name, p in module.named_parameters() if p.requires_grad],
        "training": [part.training for part in module.modules()],
        "marks": {k: v for k, v in constants(module).items() if k not in own and type(v) is bool},
    }


def with_weights(template: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """Return a copy of a network with these weights."""
    module, tensors = copy.deepcopy(template), state["tensors"]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(False)
        parameter.data = tensors[name]
        parameter.requires_grad_(name in state["moving"])
    for path, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = _as(tensors.get(f"{path}.{name}".lstrip(".")), buffer)
    for part, training in zip(module.modules(), state["training"], strict=True):
        part.training = training
    vars(module).update({k: v for k, v in state["marks"].items() if type(v) is bool})
    return module


def _as(tensor: Tensor | None, buffer: Tensor) -> Tensor:
    """A buffer that is registered twice is named once."""
    return buffer if tensor is None else tensor
