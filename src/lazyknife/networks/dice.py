"""Random numbers for networks that draw from torch's global state, safe in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from ..compute import CPU
from .calls import device_of
from .copies import private

# torch's random state is shared by all threads: whoever changes it holds this lock.
_TURN = threading.RLock()
_DRAWS = "draws_when_evaluated"


class Dice:
    """A stream of random numbers for code that draws from torch's global state, in turns.

    Within a turn the global state (and that of ``device``, if it is a GPU) is this stream's own,
    and other streams wait. After it the caller's state is restored, and the next turn continues
    where this one ended. If no numbers are ``needed``, a turn changes nothing and never waits.
    """

    def __init__(self, seed: int, device: torch.device = CPU, needed: bool = True) -> None:
        self.seed, self.needed = seed, needed
        self._gpus = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    @classmethod
    def of(cls, module: nn.Module, rows: Tensor, seed: int) -> Dice:
        """Return the dice for calls of a network in its present mode, probed on ``rows``."""
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
        """Return torch's present states, of the CPU and of the GPU."""
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


def seeded(seed: int, device: torch.device = CPU) -> AbstractContextManager[None]:
    """Run a block from torch's random state at ``seed``, then restore the caller's state.

    Of the GPUs only the one named is reseeded. Such blocks in other threads wait for this one.
    """
    return Dice(seed, device).turn()


def draws(module: nn.Module, rows: Tensor) -> bool:
    """Whether the network, called in its present mode, draws random numbers from torch."""
    dice = Dice(0, rows.device)
    with dice.turn(), torch.no_grad():
        before = dice.states()
        private(module)(rows.clone())
        return not all(map(torch.equal, before, dice.states()))


def spawn_seeds(seed: int, count: int) -> list[int]:
    """Independent seeds from one."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(count)]


@contextmanager
def lent(module: nn.Module) -> Iterator[nn.Module]:
    """Lend a private copy of a network that several threads may be calling.

    Hooks, other weights and whatever its ``forward`` stores affect the copy alone.
    """
    with seeded(0, device_of(module)) if _DRAWS in vars(module) else nullcontext():
        yield private(module)


def note_draws(module: nn.Module, rows: Tensor) -> None:
    """Mark a network that draws random numbers even in evaluation mode, for ``lent``."""
    if draws(module, rows):
        vars(module)[_DRAWS] = True
