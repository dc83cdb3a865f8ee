"""Networks: ``mlp``, ``wide``, checks and copies of the user's own, calls with other weights."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .building import Network, build, make
from .calls import call_with, dtype_of, like, outputs, set_training, stacked_outputs, widest_layer
from .copies import evaluation_copy, private
from .dice import Dice, draws, lent, note_draws, seeded, spawn_seeds
from .ensembles import ensemble_outputs, is_chain
from .kinds import KINDS, Anova, Kind, Laplace
from .perceptrons import ACTIVATIONS, DEFAULT, Averaged, Framed, mlp
from .wide import CANDIDATES, is_known, listed_networks, wide
