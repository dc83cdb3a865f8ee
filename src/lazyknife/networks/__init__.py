"""Networks: ``mlp``, ``wide``, checks and copies of the user's own, calls with other weights."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .building import Network, build, make, tangent_alone
from .calls import (
    call_with,
    dtype_of,
    ensemble_outputs,
    gradients,
    is_chain,
    layer_sizes,
    like,
    outputs,
    row_gradients,
    set_training,
    stacked_outputs,
    widest_layer,
)
from .isolation import RandomStream, draws, evaluation_copy, private_copy, seeded, spawn_seeds
from .kernels import KINDS, Kind
from .mlp import ACTIVATIONS, DEFAULT, Averaged, Framed, mlp
from .wide import CANDIDATES, is_known, listed_networks, wide
