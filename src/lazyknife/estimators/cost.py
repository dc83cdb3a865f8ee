"""What a fit of many rows will take, from the machine's measured rates."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..compute import Machine
from ..errors import bytes_in_words, time_in_words

LOG = logging.getLogger("lazyknife")
LONG = 20.0  # seconds: what takes longer is announced even where nobody asked
SIZE, REPEATS = 512, 3  # of the products and maps that rates are measured with
# Operations of one evaluation of the likelihood, for each feature and pair of rows (maps), and for
# each triple of rows (products); how many there are with few and with many rows, for one network.
MAPS, PRODUCTS = 6.0, 3.0
FEW, EVALUATIONS, FINALISTS = 15, 20, 2


class Rates(NamedTuple):
    """Operations of a machine in a second: in matrix products, and entry by entry."""

    products: float
    maps: float


class Cost(NamedTuple):
    """What a fit takes."""

    seconds: float
    memory: float  # bytes, beside the rows as they were given

    def __str__(self) -> str:
        """A clause."""
        return f"about {time_in_words(self.seconds)} and {bytes_in_words(self.memory)} of memory"

    def announce(self, what: str) -> None:
        """Say it, where it is long."""
        level = logging.WARNING if self.seconds > LONG else logging.INFO
        LOG.log(level, "lazyknife: fitting %s takes %s", what, self)


def measured(machine: Machine) -> Rates:
    """Rates of a machine, measured in a few hundredths of a second."""
    numbers = torch.linspace(0, 1, SIZE * SIZE, dtype=torch.float64, device=machine.device)
    square = numbers.view(SIZE, SIZE)
    products = _seconds(lambda: square @ square, machine)
    maps = _seconds(lambda: torch.exp(-(square - 0.5).abs()), machine)
    return Rates(2 * SIZE**3 / products, 3 * SIZE**2 / maps)


def _seconds(work: Callable[[], object], machine: Machine) -> float:
    """The least time of a few runs."""
    found = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if not machine.on_cpu:
            torch.cuda.synchronize(machine.device)
        found.append(time.perf_counter() - start)
    return max(min(found[1:]), 1e-9)


class Shape(NamedTuple):
    """What the cost of a fit depends on.

    Attributes
    ----------
    rows, features, networks
        How many there are.
    landmarks
        Number of landmarks.
    few, many
        Rows of the two stages of the search.
    amount
        Rows that σ is learnt from; 0: it is constant.

    """

    rows: int
    features: int
    networks: int
    landmarks: int
    few: int
    many: int
    amount: int

    def cost(self, rates: Rates, machine: Machine) -> Cost:
        """Time of the search and of both passes, and their memory."""
        d, kernels = self.landmarks, self.features / 2  # about half of the features are left out
        entries = self.networks * FEW * self.few**2 + FINALISTS * EVALUATIONS * self.many**2
        triples = self.networks * FEW * self.few**3 + FINALISTS * EVALUATIONS * self.many**3
        searches = 2 if self.amount else 1
        search = MAPS * self.features * entries / rates.maps + PRODUCTS * triples / rates.products
        whiten = 10 * d**3 / rates.products
        products = 7 * self.rows * d**2 / rates.products
        maps = 3 * self.rows * kernels * (d + self.amount) / rates.maps
        kept = self.rows * d * machine.item
        features = kept if kept <= machine.kept else 0
        memory = features + 6 * d**2 * machine.item + 12 * self.rows * machine.item
        return Cost(searches * search + whiten + products + maps, memory)
