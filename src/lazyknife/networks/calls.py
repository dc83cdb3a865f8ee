"""Calls of a network: inputs of its type, its mode, other weights, many weights, rows' gradients.

Calls touch nothing of the caller's: those with other weights run in a private copy, so threads may
share a network, and random numbers are drawn in turns.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase

from ..compute import CPU, blocks, steps
from .mlp import ACTIVATIONS

# Networks run at a time, and bytes of one layer's units for them and a block of rows: enough for
# the products to run at the full rate, few enough for the caches.
NETWORKS_AT_ONCE = 25
ENSEMBLE_BYTES = 5 * 2**19
GPU_ENSEMBLE_BYTES = 2**28
HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
# torch's random state is shared by all threads: whoever changes it holds this lock.
_TURN = threading.RLock()


def dtype_of(module: nn.Module) -> torch.dtype:
    """The floating type of the parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the module's parameters."""
    return next((p.device for p in module.parameters()), CPU)


def like(X: Tensor, module: nn.Module) -> Tensor:
    """Bring inputs to the module's device and type; integer inputs (embeddings) stay integers."""
    return X.to(device_of(module), dtype_of(module) if X.is_floating_point() else X.dtype)


def set_training(module: nn.Module) -> None:
    """Switch to training mode, but keep norms on their fixed running statistics."""
    module.train()
    for part in module.modules():
        if isinstance(part, _NormBase):
            part.eval()


def outputs(module: nn.Module, X: Tensor) -> Tensor:
    """Network outputs as a vector, shape (n,)."""
    result: Tensor = module(X)
    return result.reshape(len(X))


def widest_layer(module: nn.Module) -> int:
    """Return the units of the widest layer, for estimating the memory that a row takes."""
    return max(max(p.shape, default=1) for p in module.parameters())


def layer_sizes(module: nn.Module, row: Tensor) -> list[int]:
    """Return the size of every layer's result for one row."""
    own, sizes = private_copy(module), [1]

    def note(layer: nn.Module, args: Any, result: Any) -> None:
        sizes.append(result.numel() if isinstance(result, Tensor) else 1)

    for part in own.modules():
        if not isinstance(part, torch.jit.ScriptModule):
            part.register_forward_hook(note)
    with torch.no_grad():
        own(row.clone())
    return sizes


def call_with(module: nn.Module, weights: Mapping[str, Tensor], X: Tensor) -> Any:
    """Call the network with other weights, by the names of ``named_parameters``.

    The module holds them during the call, so it must be a private copy. A tied weight is set
    wherever it is held. torch's own handling of ties is not used: it leaves the new weights behind
    in a module that is registered under two names.
    """
    everywhere: dict[str, Tensor] = {}
    first: dict[int, str] = {}
    for path, part in module.named_modules():  # each module once, whatever its names
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        for role, value in own:
            name = f"{path}.{role}".lstrip(".")
            known = first.setdefault(id(value), name)
            if known in weights:
                everywhere[name] = weights[known]
    return functional_call(module, everywhere, (X,), tie_weights=False)


def stacked_outputs(
    module: nn.Module, weights: Mapping[str, Tensor], X: Tensor, *, own_rows: bool = False
) -> Tensor:
    """Outputs of b networks that differ in their weights only, shape (b, m).

    ``weights`` are stacked, shape (b, *shape); those not named are the module's own. X has the rows
    of all networks, shape (m, ...), or with ``own_rows`` those of each, shape (b, m, ...). Nothing
    that one network keeps is seen by another, or by a later call.
    """

    def one(network: nn.Module, own: dict[str, Tensor], rows: Tensor) -> Any:
        return call_with(network, own, rows).reshape(len(rows))

    axes = (0, 0 if own_rows else None)
    batched = vmap(partial(one, private_copy(module)), in_dims=axes, randomness="different")
    try:
        result: Tensor = batched(dict(weights), X)
    except RuntimeError:  # the network branches on values, so it cannot be batched
        count = len(next(iter(weights.values())))
        # A network may modify its weights (an embedding with max_norm does): not those given.
        each = ({name: weight[j].clone() for name, weight in weights.items()} for j in range(count))
        found = [one(private_copy(module), w, X[j] if own_rows else X) for j, w in enumerate(each)]
        result = torch.stack(found)
    return result


def row_gradients(
    module: nn.Module,
    weights: Collection[str],
    X: Tensor,
    y: Tensor | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Gradients of each row's output, or of its loss, shape (n, *shape) for each weight named.

    ``loss`` goes from outputs and targets to numbers, row by row. A row is alone in its batch, and
    calls get copies of all that they could change, frozen parameters among it: whatever the network
    does, a row's gradient depends on no other, and nothing of the row stays behind.
    """

    def value(own: Any, fixed: Any, network: nn.Module, *row: Tensor) -> Tensor:
        output: Tensor = call_with(network, {**fixed, **own}, row[0][None]).reshape(())
        return output if loss is None else loss(output, row[1])

    def copies() -> tuple[dict[str, Tensor], dict[str, Tensor], nn.Module]:
        """All that a call could change: a table with max_norm rescales what it reads."""
        fixed = {name: p.detach().clone() for name, p in module.named_parameters()}
        return {name: fixed.pop(name) for name in weights}, fixed, private_copy(module)

    rows = (X,) if y is None else (X, y)
    if X.dim() == 2 and is_chain(module):
        return _chain_gradients(module, weights, rows, loss)
    axes = (None, None, None, *[0] * len(rows))
    try:
        with torch.no_grad():
            batched = vmap(grad(value), in_dims=axes, randomness="different")
            result: dict[str, Tensor] = batched(*copies(), *rows)
    except RuntimeError:  # the network looks at values, or changes tensors: one row at a time
        each = []
        for row in zip(*rows, strict=True):
            own, fixed, network = copies()
            with torch.enable_grad():
                total = value({k: w.requires_grad_() for k, w in own.items()}, fixed, network, *row)
            each.append(gradients(total, list(own.values())))
        result = dict(zip(weights, map(torch.stack, zip(*each, strict=True)), strict=True))
    return result


def _chain_gradients(
    module: nn.Sequential,
    weights: Collection[str],
    rows: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor] | None,
) -> dict[str, Tensor]:
    """Gradients of a chain's rows, for ten of them 2.6 times as fast: g hᵀ and g for each layer.

    h is the layer's input and g the gradient at its output. In a chain no row meets another, so
    those of all rows are found together.
    """
    inputs, sums = dict[str, Tensor](), dict[str, Tensor]()
    hidden = rows[0].detach().requires_grad_()
    with torch.enable_grad():
        for name, layer in module._modules.items():
            if isinstance(layer, nn.Linear):
                inputs[name] = hidden
                hidden = sums[name] = layer(hidden)
            elif layer is not None:
                hidden = layer(hidden.clone())  # it may work in place
        found = hidden.reshape(len(hidden))
        total = (found if loss is None else loss(found, rows[1])).sum()
    signals = dict(zip(sums, gradients(total, list(sums.values())), strict=True))
    result = {}
    for weight in weights:
        name, _, role = weight.rpartition(".")
        signal, own = signals[name], inputs[name].detach()
        result[weight] = signal if role == "bias" else signal[:, :, None] * own[:, None, :]
    return result


def gradients(total: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Derivatives of a number, zero for the inputs that it does not depend on."""
    if not inputs:
        return ()
    return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)


def ensemble_outputs(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    X: Tensor,
    at_once: int = NETWORKS_AT_ONCE,
    limit: int | None = None,
) -> Tensor:
    """Outputs of b networks at m rows, shape (b, m), without derivatives.

    ``weights`` are stacked, shape (b, *shape); those not named are the module's own. They run in
    the module's type. Blocks of ``at_once`` networks and of rows keep the units of a layer within
    ``limit`` bytes.
    """
    count = len(next(iter(weights.values())))
    if limit is None:
        limit = ENSEMBLE_BYTES if X.device.type == "cpu" else GPU_ENSEMBLE_BYTES
    run: Callable[..., Tensor] = stacked_outputs
    width = 1  # irrelevant for a single row
    if X.dim() == 2 and is_chain(module):
        linear = [layer for layer in module if isinstance(layer, nn.Linear)]
        run, width = _chain_outputs, max(layer.out_features for layer in linear)
    elif len(X) > 1:
        width = max(layer_sizes(module, X[:1]))
    result = X.new_empty(count, len(X), dtype=dtype_of(module))
    with torch.no_grad():
        for models in steps(count, at_once):
            own = {name: like(weight[models], module) for name, weight in weights.items()}
            bytes_each = result.itemsize * (models.stop - models.start) * width
            for rows in blocks(len(X), bytes_each, limit):
                result[models, rows] = run(module, own, X[rows])
    return result


def is_chain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether the network is a plain sequence of linear layers and activations, each used once."""
    if type(module) is not nn.Sequential:
        return False
    changed = any(
        any(getattr(part, f"_{kind}_hooks") for kind in HOOKS) or "forward" in vars(part)
        for part in module.modules()
    )
    linear = [layer for layer in module if type(layer) is nn.Linear]
    own = [id(p) for layer in linear for p in layer.parameters()]
    plain = all(type(layer) in (nn.Linear, *ACTIVATIONS.values()) for layer in module)
    return plain and not changed and len(set(own)) == len(own)


def _chain_outputs(module: nn.Module, weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Outputs of many chains, shape (b, m); 1.4 times as fast as ``stacked_outputs``.

    Rows are columns here, so that one product serves every network's first own layer: what flows
    is (units, rows) as long as the networks agree, and (networks, units, rows) from there on.
    """
    hidden = X.T.clone()  # a layer may work in place
    for name, layer in module._modules.items():  # named_children names a layer only once
        if isinstance(layer, nn.Linear):
            hidden = weights.get(f"{name}.weight", layer.weight) @ hidden
            bias = weights.get(f"{name}.bias", layer.bias)
            if bias is not None and bias.dim() < hidden.dim():
                hidden += bias[..., None]
            elif bias is not None:  # the first thing in which the networks differ
                hidden = hidden + bias[..., None]
        elif layer is not None:
            hidden = hidden.relu_() if isinstance(layer, nn.ReLU) else layer(hidden)
    return hidden.expand(len(next(iter(weights.values()))), 1, -1)[:, 0]


# Copies, and random numbers.


class RandomStream:
    """A stream of random numbers for code that draws from torch's global state, in turns.

    Within a fork the global state (and that of ``device``, if it is a GPU) is this stream's own,
    and other streams wait. After it the caller's state is restored, and the next fork continues
    where this one ended. If no numbers are ``needed``, a fork changes nothing and never waits.
    """

    def __init__(self, seed: int, device: torch.device = CPU, needed: bool = True) -> None:
        self.seed, self.needed = seed, needed
        self._gpus = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    @classmethod
    def of(cls, module: nn.Module, rows: Tensor, seed: int) -> RandomStream:
        """Return the stream for calls of a network in its present mode, probed on ``rows``."""
        return cls(seed, rows.device, draws(module, rows))

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Run a block with torch's global state at this stream."""
        if not self.needed:
            yield
            return
        with _TURN, torch.random.fork_rng(devices=self._gpus):
            if self._states:
                torch.set_rng_state(self._states[0])
                for gpu, state in zip(self._gpus, self._states[1:], strict=True):
                    torch.cuda.set_rng_state(state, gpu)
            else:  # torch.manual_seed would reseed every GPU
                torch.default_generator.manual_seed(self.seed)
                for gpu in self._gpus:
                    with torch.cuda.device(gpu):
                        torch.cuda.manual_seed(self.seed)
            try:
                yield
            finally:
                self._states = self.states()

    def states(self) -> list[Tensor]:
        """Return torch's present states, of the CPU and of the GPU."""
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._gpus)]


def seeded(seed: int, device: torch.device = CPU) -> AbstractContextManager[None]:
    """Run a block from torch's random state at ``seed``, then restore the caller's state.

    Of the GPUs only the one named is reseeded. Such blocks in other threads wait for this one.
    """
    return RandomStream(seed, device).fork()


def draws(module: nn.Module, rows: Tensor) -> bool:
    """Whether the network, called in its present mode, draws random numbers from torch."""
    stream = RandomStream(0, rows.device)
    with stream.fork(), torch.no_grad():
        before = stream.states()
        deep_copy(module)(rows.clone())  # a call may change parameters too
        return not all(map(torch.equal, before, stream.states()))


def spawn_seeds(seed: int, count: int) -> list[int]:
    """Independent seeds from one."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(count)]


def private_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a network that shares the parameters and owns everything else.

    Hooks, other weights and whatever its ``forward`` stores affect the copy alone, so that several
    threads may call one network. What cannot be copied is shared.
    """
    memo: dict[int, Any] = {id(p): p for p in module.parameters()} | _detached(module)
    parts = list(module.modules())
    for part in parts:  # all of them first: any attribute may refer to any of them
        compiled = isinstance(part, torch.jit.ScriptModule)  # it runs outside Python
        memo[id(part)] = part if compiled else object.__new__(type(part))
    for part in parts:
        twin = memo[id(part)]
        for name, value in vars(part).items() if twin is not part else ():
            try:
                empty = type(value) in (dict, OrderedDict) and not value  # much faster than a copy
                vars(twin)[name] = type(value)() if empty else copy.deepcopy(value, memo)
            except Exception:
                vars(twin)[name] = value
    copied: nn.Module = memo[id(module)]
    return copied


def _detached(module: nn.Module) -> dict[int, Tensor]:
    """Copies of the tensors that ``forward`` stored with their graphs, by id as in ``copy``."""
    return {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }


def deep_copy(module: nn.Module) -> nn.Module:
    """Copy a network with its weights; tensors that ``forward`` stored are detached."""
    return copy.deepcopy(module, _detached(module))


def evaluation_copy(module: nn.Module) -> nn.Module:
    """Return a float64 copy on the CPU, in evaluation mode."""
    copied = deep_copy(module).to("cpu", torch.float64).eval()
    for part in copied.modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
            # A call would rescale the entries that it reads; here all of them, once.
            everything = torch.arange(part.num_embeddings)
            torch.embedding_renorm_(part.weight.detach(), everything, part.max_norm, part.norm_type)
    return copied
