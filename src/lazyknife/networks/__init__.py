"""Networks: `mlp`, and turning what the user gave into a private copy of a module."""

from __future__ import annotations

import copy
import itertools
import math
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from ..compute import CPU, blocks, steps

# Networks run at a time, and bytes of one layer's units for them and a block of rows: enough for
# the products to run at the full rate, few enough for the caches.
NETWORKS_AT_ONCE = 25
ENSEMBLE_BYTES = 5 * 2**19
GPU_ENSEMBLE_BYTES = 2**28
Network = nn.Module | Callable[[int], nn.Module]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
}


@dataclass(frozen=True)
class mlp:
    """A fully connected network with one output, made to measure: ``mlp(widths)(n_features)``.

    Parameters
    ----------
    widths
        Units of each hidden layer; ``()`` gives a linear model.
    activation
        A key of ``ACTIVATIONS``.
    skip
        Whether a linear function of the inputs is added to the output. Few rows tell a network of
        random features little about what is linear; this part does, and the lazy step weighs it.

    """

    widths: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    skip: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(int(width) for width in self.widths))
        if any(width < 1 for width in self.widths):
            raise ValueError(f"widths={self.widths}: every hidden layer needs at least one unit")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation={self.activation!r}: choose from {sorted(ACTIVATIONS)}")

    def __call__(self, n_features: int) -> nn.Module:
        """Return a fresh network for ``n_features`` inputs, drawn from torch's random state."""
        layers: list[nn.Module] = []
        sizes = (n_features, *self.widths)
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), ACTIVATIONS[self.activation]()]
        body = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        return WithSkip(body, n_features, sizes[-1]) if self.skip else body


class WithSkip(nn.Module):
    """A network plus a linear function of its inputs, which starts at 0.

    Its weight multiplies the inputs times √(width/(4·inputs)). Inputs of size one then give it as
    large a share of the tangent kernel as one or two hidden layers of ReLU have, to a factor of
    five.
    """

    def __init__(self, body: nn.Module, n_features: int, width: int) -> None:
        super().__init__()
        self.skip = nn.Linear(n_features, 1, bias=False)
        self.body = body  # after the skip: its last layer is the network's
        self.scale = math.sqrt(width / (4 * n_features))
        nn.init.zeros_(self.skip.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum, shape (n, 1)."""
        total: Tensor = self.skip(self.scale * x) + self.body(x)
        return total


# torch's random state is one for all threads: whoever changes it holds this meanwhile.
_TURN = threading.RLock()


class Dice:
    """Random numbers for code that takes them from torch's global state, a turn at a time.

    Within a turn the global state is this stream's own, and no other stream has its turn; after it
    the caller's state is back, and the next turn goes on where this one ended.

    Parameters
    ----------
    seed
        Where the stream begins.
    device
        The GPU whose state is changed as well, if it is one.
    needed
        Whether any numbers are drawn; without them a turn changes nothing and waits for nobody.

    """

    def __init__(self, seed: int, device: torch.device = CPU, needed: bool = True) -> None:
        self.seed, self.needed = seed, needed
        self._gpus = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    @classmethod
    def of(cls, module: nn.Module, rows: Tensor, seed: int) -> Dice:
        """Return dice for calls of a network in its present mode; ``rows`` are to try it on."""
        return cls(seed, rows.device, draws(module, rows))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run a block with torch's global state at this stream."""
        if not self.needed:
            yield
            return
        with _TURN, torch.random.fork_rng(devices=self._gpus):
            self._begin()
            try:
                yield
            finally:
                self._states = self.states()

    def states(self) -> list[Tensor]:
        """Return torch's present states, of the processor and of the GPU."""
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._gpus)]

    def _begin(self) -> None:
        if self._states:
            torch.set_rng_state(self._states[0])
            for gpu, state in zip(self._gpus, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, gpu)
            return
        torch.default_generator.manual_seed(self.seed)  # torch.manual_seed would reseed all GPUs
        for gpu in self._gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(self.seed)


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Run a block from torch's random state at ``seed``, and put the caller's state back.

    Of the GPUs only the one named is reseeded. Such blocks in other threads wait for this one.
    """
    with Dice(seed, device).turn():
        yield


def draws(module: nn.Module, rows: Tensor) -> bool:
    """Whether the network, called in its present mode, takes random numbers from torch."""
    dice = Dice(0, rows.device)
    with dice.turn(), torch.no_grad():
        before = dice.states()
        private(module)(rows.clone())
        return not all(map(torch.equal, before, dice.states()))


def spawn_seeds(seed: int, count: int) -> list[int]:
    """Independent seeds from one."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(count)]


class Averaged(nn.Module):
    """The mean of several networks."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the outputs, shape (n,)."""
        return torch.stack([outputs(member, x) for member in self.members]).mean(dim=0)


def build(network: Network | None, X: Tensor, seed: int, starts: int = 1) -> nn.Module:
    """Return the user's network as a module of our own, checked on rows like ``X``.

    With several ``starts`` it is the mean of as many networks, each with random weights of its own.
    """
    if starts == 1:
        module = make(network, X, seed)
    elif isinstance(network, nn.Module):
        raise ValueError(
            f"starts={starts} needs random starts, and a module has its own weights: give a "
            "callable such as mlp((64, 64)), or starts=1"
        )
    else:
        module = Averaged([make(network, X, each) for each in spawn_seeds(seed, starts)])
    with seeded(seed, device_of(module)):
        _check(module, X)
    return module


def make(network: Network | None, X: Tensor, seed: int) -> nn.Module:
    """Copy a module with its weights, or call a callable with the number of features.

    Lazy layers get their shapes from a row of X, and their weights from the seed.
    """
    if isinstance(network, nn.Module):
        module = _deep_copy(network)
    elif network is None or callable(network):
        factory = mlp(skip=True) if network is None else network
        with seeded(seed):
            module = factory(X.shape[1])
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"network returned {type(module).__name__}: the callable must take the number of "
                "features and return a torch.nn.Module"
            )
    else:
        raise TypeError(
            f"network={network!r}: give None, a torch.nn.Module, or a callable "
            "n_features -> torch.nn.Module such as lazyknife.mlp((64, 64))"
        )
    if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
        with seeded(seed), torch.no_grad():
            row = X[:1].to(device_of(module))
            module(row.float() if X.is_floating_point() else row)
    return module


# Types of values that nothing can change, so that copies may share them.
_CONSTANT = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, type),
        *(types.FunctionType, types.BuiltinFunctionType, weakref.ReferenceType),
        *(torch.dtype, torch.device, torch.Size),
    }
)
_HOLDERS = frozenset({dict, OrderedDict, set, list})
_DRAWS = "draws_when_evaluated"


@contextmanager
def lent(module: nn.Module) -> Iterator[nn.Module]:
    """Lend a private copy of a network that several threads may be calling.

    What works on a module while it runs (hooks, other weights, whatever its ``forward`` keeps)
    works on the copy alone.
    """
    with seeded(0, device_of(module)) if _DRAWS in vars(module) else nullcontext():
        yield private(module)


def note_draws(module: nn.Module, rows: Tensor) -> None:
    """Let ``lent`` know of a network that takes random numbers even when it is evaluated."""
    if draws(module, rows):
        vars(module)[_DRAWS] = True


def private(module: nn.Module) -> nn.Module:
    """Return a copy of a network that has everything of its own, but shares the parameters.

    It is many times faster than ``copy.deepcopy``, which would copy the parameters too.
    """
    return _private(module, {})


def _private(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Copy a module and those in it; ``memo`` has what has been copied, by id, as in ``copy``."""
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
            for name, value in vars(part).items():
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
    """Copy what a module holds; what cannot be copied is shared."""
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
    elif kind is Tensor:  # a buffer, or what forward has kept, perhaps with its derivatives
        twin = memo[id(value)] = (value.detach() if value.requires_grad else value).clone()
    elif isinstance(value, nn.Module):
        twin = _private(value, memo)
    else:
        try:
            twin = copy.deepcopy(value, memo)
        except Exception:
            twin = value
    return twin


def _deep_copy(module: nn.Module) -> nn.Module:
    """Copy a network with its weights; what ``forward`` has kept loses its derivatives."""
    kept = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, kept)


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the floating type of the module's parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def device_of(module: nn.Module) -> torch.device:
    """Return where the module's parameters are."""
    return next((p.device for p in module.parameters()), CPU)


def like(X: Tensor, module: nn.Module) -> Tensor:
    """Bring inputs to the module's device and type; integer inputs (embeddings) stay integers."""
    if X.is_floating_point():
        return X.to(device_of(module), dtype_of(module))
    return X.to(device_of(module))


def outputs(module: nn.Module, X: Tensor) -> Tensor:
    """Network outputs as a vector, shape (n,)."""
    result: Tensor = module(X)
    return result.reshape(len(X))


def call_with(module: nn.Module, weights: Mapping[str, Tensor], X: Tensor) -> Any:
    """Call the network with other weights, by the names of ``named_parameters``.

    The module holds them meanwhile, so it must be the caller's own (see ``lent``). A tied weight is
    set wherever it is held. torch's own handling of ties is not used: it leaves the new weights
    behind in a module that is registered under two names.
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
    module: nn.Module,
    weights: Mapping[str, Tensor],
    X: Tensor,
    *,
    own_rows: bool = False,
) -> Tensor:
    """Outputs of b networks that differ in their weights only.

    Parameters
    ----------
    module
        The network that all of them are; weights not named below are its own. It is worked on, so
        it must be the caller's own (see ``lent``).
    weights
        Parameters and buffers, stacked: shape (b, *shape).
    X
        Rows, the same for every network.
    own_rows
        Instead, X holds rows for each network: shape (b, m, ...).

    Returns
    -------
    Outputs, shape (b, m).

    """

    def one(own: dict[str, Tensor], rows: Tensor) -> Any:
        return call_with(module, own, rows).reshape(len(rows))

    try:
        result: Tensor = vmap(one, in_dims=(0, 0 if own_rows else None), randomness="different")(
            dict(weights), X
        )
    except RuntimeError:  # the network looks at values, so it cannot be batched
        count = len(next(iter(weights.values())))
        # A network may work on its weights (an embedding with max_norm does): not on those given.
        each = ({name: w[j].clone() for name, w in weights.items()} for j in range(count))
        result = torch.stack([one(own, X[j] if own_rows else X) for j, own in enumerate(each)])
    return result


def ensemble_outputs(module: nn.Module, weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Outputs of b networks at many rows, shape (b, m), without derivatives.

    Block by block, so that layer after layer stays in a processor's caches.
    """
    count = len(next(iter(weights.values())))
    limit = ENSEMBLE_BYTES if X.device.type == "cpu" else GPU_ENSEMBLE_BYTES
    result = X.new_empty(count, len(X), dtype=dtype_of(module))
    chain = X.dim() == 2 and is_chain(module)
    with torch.no_grad(), nullcontext(module) if chain else lent(module) as network:
        width = 1  # of no account for a single row
        if len(X) > 1:
            width = _Chain.width(network) if chain else widest_output(network, X[:1])
        for models in steps(count, NETWORKS_AT_ONCE):
            own = {name: weight[models] for name, weight in weights.items()}
            run: Callable[[Tensor], Tensor] = partial(stacked_outputs, network, own)
            if chain:
                run = _Chain(network, own)
            bytes_each = result.itemsize * (models.stop - models.start) * width
            for rows in blocks(len(X), bytes_each, limit):
                result[models, rows] = run(X[rows])
    return result


def is_chain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether the network is a plain sequence of linear layers and activations, each used once."""
    if type(module) is not nn.Sequential or module.training or _is_changed(module):
        return False
    linear = [layer for layer in module if type(layer) is nn.Linear]
    return len({id(p) for layer in linear for p in layer.parameters()}) == sum(
        1 + (layer.bias is not None) for layer in linear
    ) and all(type(layer) in (nn.Linear, *ACTIVATIONS.values()) for layer in module)


def _is_changed(module: nn.Module) -> bool:
    """Whether hooks or a ``forward`` of its own change what some layer does."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
        for part in module.modules()
    )


class _Chain:
    """Many networks of linear layers and activations, run on blocks of rows in the same memory.

    Rows are columns here, so that one product serves every network's first own layer: what flows
    is (units, rows) as long as the networks agree, and (networks, units, rows) from there on. The
    module is not worked on, so threads may share it.
    """

    def __init__(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        self.count = len(next(iter(weights.values())))
        self.layers: list[nn.Module | tuple[Tensor, Tensor | None]] = []
        self.buffers: dict[int, Tensor] = {}
        for name, layer in module._modules.items():  # named_children names a layer only once
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else layer.bias.detach()
                weight = weights.get(f"{name}.weight", layer.weight.detach())
                self.layers.append((weight, weights.get(f"{name}.bias", bias)))
            elif layer is not None:
                self.layers.append(layer)

    @staticmethod
    def width(module: nn.Module) -> int:
        """Return the units of the widest layer."""
        return max(layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear))

    def __call__(self, X: Tensor) -> Tensor:
        hidden, ours = X.T, False
        for place, layer in enumerate(self.layers):
            if isinstance(layer, nn.Module):
                hidden = hidden if ours else hidden.clone()  # the layer may work in place
                hidden = hidden.relu_() if isinstance(layer, nn.ReLU) else layer(hidden)
                ours = True
            else:
                hidden, ours = self._linear(place, hidden, *layer), True
        return hidden.expand(self.count, 1, -1)[:, 0]

    def _linear(self, place: int, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shared = hidden.dim() == 2
        if not shared:
            weight = weight.expand(self.count, *weight.shape[-2:])
        result = self._buffer(place, (*weight.shape[:-1], hidden.shape[-1]), hidden)
        if bias is not None and bias.dim() < result.dim():
            result.copy_(bias[..., None])
            bias = None
        else:
            result.zero_()
        if shared:
            result.view(-1, result.shape[-1]).addmm_(weight.flatten(0, -2), hidden)
        else:
            result.baddbmm_(weight, hidden)
        # A bias that is the first thing in which the networks differ takes more room.
        return result if bias is None else result + bias[..., None]

    def _buffer(self, place: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        size = math.prod(shape)
        if place not in self.buffers or self.buffers[place].numel() < size:
            self.buffers[place] = like.new_empty(size)
        return self.buffers[place][:size].view(shape)


def widest_output(module: nn.Module, row: Tensor) -> int:
    """Return the numbers in the largest result of any layer for one row.

    The module has hooks meanwhile, so it must be the caller's own (see ``lent``).
    """
    sizes = [1]

    def note(_: nn.Module, args: Any, result: Any) -> None:
        sizes.append(result.numel() if isinstance(result, Tensor) else 1)

    hooks = [
        part.register_forward_hook(note)
        for part in module.modules()
        if not isinstance(part, torch.jit.ScriptModule)
    ]
    try:
        with torch.no_grad():
            module(row.clone())
    finally:
        for hook in hooks:
            hook.remove()
    return max(sizes)


def widest_layer(module: nn.Module) -> int:
    """Return the units of the widest layer, for judging the memory that a row takes."""
    return max(max(p.shape, default=1) for p in module.parameters())


def evaluation_copy(module: nn.Module) -> nn.Module:
    """Return a float64 copy on the processor, in evaluation mode."""
    copied = _deep_copy(module).to("cpu", torch.float64).eval()
    for part in copied.modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
            # What its calls would do to the entries that they read, once and for all.
            everything = torch.arange(part.num_embeddings)
            torch.embedding_renorm_(part.weight.detach(), everything, part.max_norm, part.norm_type)
    return copied


def set_training(module: nn.Module) -> None:
    """Switch to training mode, but keep batch norms on their fixed running statistics."""
    module.train()
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.eval()


class FixedNorm(nn.Module):
    """A batch norm on its running statistics: constants, not buffers, which opacus refuses."""

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.statistics = (norm.running_mean, norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the constants, then scale and shift."""
        mean, variance = (self._shaped(s, x) for s in self.statistics)
        normed = (x - mean) * (variance + self.eps).rsqrt()
        if self.weight is None:
            return normed
        return normed * self._shaped(self.weight, x) + self._shaped(self.bias, x)

    @staticmethod
    def _shaped(values: Tensor, x: Tensor) -> Tensor:
        return values.view(-1, *[1] * (x.dim() - 2))


def fix_norms(module: nn.Module) -> None:
    """Put a ``FixedNorm`` in place of every batch norm, under each of its names."""
    for part in list(module.modules()):
        for name, child in part._modules.items():  # named_children would skip a second name
            if isinstance(child, _BatchNorm):
                setattr(part, name, FixedNorm(child))


def check_same_buffers(start: nn.Module, trained: nn.Module) -> None:
    """Refuse a network that keeps statistics of its rows: they would pass by the noise."""
    after = dict(trained.named_buffers())
    changed = [
        name
        for name, value in start.named_buffers()
        if name in after and not torch.equal(value, after[name])
    ]
    if changed:
        raise ValueError(
            f"network changes its buffers {changed} while it is trained, and no noise is added to "
            "them, so the base would not be private: switch the statistics off (for instance "
            "track_running_stats=False), or use base=Public() or Split()"
        )


def _check(module: nn.Module, X: Tensor) -> None:
    if any(isinstance(part, _BatchNorm) and part.training for part in module.modules()):
        raise ValueError(
            "network has a BatchNorm layer in training mode: a row's output would depend on the "
            "other rows, so no leave-one-out model exists. Use GroupNorm or LayerNorm, or call "
            "network.eval() so that its running statistics are constants"
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError(
            "network has no parameter with requires_grad=True: nothing can be fitted. "
            "Unfreeze at least one layer"
        )
    modes = {part: part.training for part in module.modules()}
    module.eval()
    probe = like(X[:3], module)
    with torch.no_grad():
        together = _probed(module, probe)
        alone = torch.cat([module(row).reshape(1) for row in probe.split(1)])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(
            "network's output for a row changes when other rows are in the same batch: a "
            "leave-one-out model needs a network that treats each row on its own"
        )
    for part, training in modes.items():
        part.training = training


def _probed(module: nn.Module, probe: Tensor) -> Tensor:
    """Outputs for a few rows, shape (rows,); refuses a network that does not give them."""
    rows = len(probe)
    try:
        result = module(probe)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"network fails on rows of shape {tuple(probe.shape[1:])}: {error}. Give a network "
            "that takes such rows, or a callable n_features -> torch.nn.Module"
        ) from error
    if not isinstance(result, Tensor) or result.shape not in ((rows,), (rows, 1)):
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result)
        raise ValueError(
            f"network gives an output of shape {shape} for {rows} rows: it must have one output "
            f"per row, shape ({rows}, 1) or ({rows},)"
        )
    return result.reshape(-1)
