"""The classes that a saved model may contain; a file can name no others."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from ..base import BASES
from ..certificate import Certificate, Certifier, Noted, TrainedCertifier
from ..choosing.record import ChosenSettings
from ..choosing.rows import Leaving
from ..choosing.shape import Averages, Factors, Levels
from ..choosing.shared import NoiseModel
from ..compute import BUDGET_SHARE, Machine, free_memory
from ..data.encoder import TableEncoder
from ..data.own_scaling import FeatureScale
from ..data.rows import RowReader
from ..data.scaling import Scaling, symlog
from ..data.schema import Column, Expansion, Schema
from ..data.targets import TARGETS, Named, Pair, Target
from ..intervals.bounded import BoundedReadout
from ..intervals.chosen import ChosenModels, Group, Some
from ..intervals.compact import CompactModels, KeptLevel
from ..intervals.framed import FramedFull
from ..intervals.full import Family, FullModels
from ..intervals.streamed import StreamedModels
from ..losses import LOSSES
from ..networks import ACTIVATIONS, Averaged, Framed, mlp, wide
from ..networks.perceptrons import WithSkip
from ..records import Base, PrivacyCurve
from ..saving import Codec, Known
from ..solve.again import LeverageAgain
from ..solve.drift import Drift
from ..solve.dual import DualRidge, FactoredRidge
from ..solve.inverse import Factored, Swept
from ..solve.primal_ridge import PrimalRidge
from ..solve.readout import READOUTS
from ..solve.ridge import RidgeModels
from ..solve.rounding import Rounding, Sensitivity
from ..solve.scales import LeverageScales
from ..solve.streamed import StreamedRidge
from ..tangent import FEATURES, Dual, Features, Landmarks, Primal, Tangent, WideTangent
from ..tangent.parts import Explicit, Lookup, Outer
from ..tangent.sketch import Signs
from .candidates import Candidate, FiniteNetwork, GivenKernel
from .choosing_full import FullSource, FullStep
from .fit_input import Seeds
from .refits import Ensemble, Refits


def _scaler(kind: type) -> Codec:
    """A scikit-learn transformer that consists of numbers."""

    def make(**state: Any) -> Any:
        found = kind()
        vars(found).update(state)
        return found

    return Codec(kind, lambda scaler: dict(vars(scaler)), make)


def _fixed_state(transformer: FunctionTransformer) -> dict[str, Any] | None:
    if transformer.func is not symlog:
        return None  # a function of the user's
    return {name: value for name, value in vars(transformer).items() if name != "func"}


def _fixed(**state: Any) -> FunctionTransformer:
    found = FunctionTransformer(symlog)
    vars(found).update(state)
    return found


def _machine(**state: Any) -> Machine:
    """A machine with no larger a budget than its device now has memory for."""
    found = Machine(**state)
    free = free_memory(found.device)
    if found.budget <= free:
        return found
    return Machine(**state | {"budget": int(BUDGET_SHARE * free)})


def _random_state(state: Any) -> np.random.RandomState:
    found = np.random.RandomState()
    found.set_state(state)
    return found


def _generator_state(generator: np.random.Generator) -> dict[str, Any] | None:
    bits = generator.bit_generator
    return {"state": dict(bits.state)} if type(bits) is np.random.PCG64 else None


def _generator(state: Any) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


_RECORDS = (
    *(Averages, Base, Candidate, Certificate, Certifier, ChosenModels, Dual, DualRidge),
    *(Ensemble, Explicit, Factored, FactoredRidge, Factors, Family, Features, FiniteNetwork),
    *(FullModels, FullSource, FullStep, GivenKernel, Group, LeverageAgain),
    *(LeverageScales, Levels, Lookup, Outer, Primal, PrimalRidge, PrivacyCurve),
    *(Refits, RidgeModels, Rounding, Scaling, Seeds, Sensitivity, Signs, Some, Swept, Tangent),
    *(TrainedCertifier, WideTangent, mlp, wide, Noted, Leaving),
    *(BoundedReadout, ChosenSettings, Drift, KeptLevel, Landmarks, NoiseModel, StreamedModels),
    StreamedRidge,
    *(Column, Expansion, FeatureScale, Pair, RowReader, Schema, Target),
    *BASES.values(),
    *LOSSES.values(),
    *FEATURES.values(),
    *READOUTS.values(),
)
# Networks of these layers alone are data; any other is passed to ``load``.
_LAYERS = (
    *(Averaged, Framed, WithSkip),
    *(nn.Sequential, nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Dropout, nn.Flatten, nn.Identity),
    *ACTIVATIONS.values(),
)
_SCALERS = (
    *(MaxAbsScaler, MinMaxScaler, QuantileTransformer, RobustScaler, StandardScaler),
    TableEncoder,
)
_OTHERS = (
    Codec(Machine, lambda machine: dict(vars(machine)), _machine),
    Codec(CompactModels, lambda models: models.__getstate__(), CompactModels),
    # Its models, many n×n matrices, are made again: that takes as long as reading them.
    Codec(FramedFull, lambda full: {"source": full.source}, FramedFull.of),
    Codec(FunctionTransformer, _fixed_state, _fixed),
    Codec(Named, lambda scale: {"name": scale.name}, lambda name: TARGETS[name]),
    Codec(np.random.RandomState, lambda of: {"state": of.get_state()}, _random_state),
    Codec(np.random.Generator, _generator_state, _generator),
    *map(_scaler, _SCALERS),
)
KNOWN: Known = {
    **{kind.__name__: kind for kind in (*_RECORDS, *_LAYERS)},
    **{codec.kind.__name__: codec for codec in _OTHERS},
}
