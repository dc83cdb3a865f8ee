"""Where the tests compute: on the processor, or on the device that LAZYKNIFE_DEVICE names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from lazyknife.compute import Machine
from lazyknife.ridge import inverse
from reference import Array

MACHINE = Machine(device=torch.device(os.environ.get("LAZYKNIFE_DEVICE", "cpu")))


def here(values: Array) -> Tensor:
    """A copy of the numbers on the machine, free to be worked on in place."""
    return MACHINE.put(torch.tensor(values))


@contextmanager
def tiny_tiles(pivots: int, tile: int) -> Iterator[None]:
    """Within the block, symmetric matrices are worked on in many small tiles."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("PIVOTS", pivots), ("TILE", tile)):
            patch.setattr(inverse, name, size)
            patch.setattr(inverse, f"GPU_{name}", size)
        yield
