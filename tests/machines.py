"""Where the tests compute: on the processor, or on the device that LAZYKNIFE_DEVICE names."""

import os

import torch
from torch import Tensor

from lazyknife.compute import Machine
from reference import Array

MACHINE = Machine(device=torch.device(os.environ.get("LAZYKNIFE_DEVICE", "cpu")))


def here(values: Array) -> Tensor:
    """A copy of the numbers on the machine, free to be worked on in place."""
    return MACHINE.put(torch.tensor(values))
