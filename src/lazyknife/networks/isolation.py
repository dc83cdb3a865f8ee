"""Calls that touch nothing of the caller's: private copies of networks, random numbers in turns."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..compute import CPU

# torch's random state is shared by all threads: whoever changes it holds this lock.
_TURN = threading.RLock()


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
