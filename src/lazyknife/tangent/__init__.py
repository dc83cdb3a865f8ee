"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .basis import Basis, Dual, Exact, FeatureMap, Landmarks, Linear, Primal, Rows, Sketch
from .tangent import (
    PROBE,
    Features,
    Selection,
    Tangent,
    check_selection,
    linearise,
    make_tangent,
    moved_outputs,
    selected,
)
from .wide import WideTangent

FEATURES: dict[str, type[FeatureMap]] = {"exact": Exact, "sketch": Sketch}
EXACT = Exact()
