"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .basis import Basis, Dual, Exact, FeatureMap, Linear, Primal, Rows
from .landmarks import Landmarks
from .selection import Selection, check_selection, selected
from .sketch import Sketch
from .tangent import PROBE, Features, Tangent, linearise, make_tangent, moved_outputs
from .wide import WideTangent

FEATURES: dict[str, type[FeatureMap]] = {"exact": Exact, "sketch": Sketch}
EXACT = Exact()
