"""Networks: ``mlp``, ``wide``, checks and copies of the user's own, calls with other weights."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .building import Network, build, make, tangent_alone
from .calls import (
    RandomStream,
    call_with,
    draws,
    dtype_of,
    ensemble_outputs,
    evaluation_copy,
    gradients,
    is_chain,
    layer_sizes,
    like,
    outputs,
    private_copy,
    row_gradients,
    seeded,
    set_training,
    spawn_seeds,
    stacked_outputs,
    widest_layer,
)
from .mlp import ACTIVATIONS, DEFAULT, Averaged, Framed, mlp
from .wide import CANDIDATES, KINDS, Kind, is_known, listed_networks, wide
