"""Fits and predictions of Dask collections: choices on a part of the rows, models by partition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..base.privacy import composed
from ..choosing.rows import FEWEST_PARTED, Leaving, drawn_part
from ..dask import Partitions, Reading, check_rows, fit_parts
from ..data.scaling import is_transformer
from ..intervals import AUTO, is_parted, kappa
from ..intervals.models import rounding_share
from .fit_input import Fitted, Given, Seeds, prepare
from .fit_shared import PartedStep

if TYPE_CHECKING:
    from .lazy import LazyJackknifeRegressor

BUDGET = 2**30  # bytes of a task, unless memory_budget says otherwise
SCALINGS = ("auto", None, "symlog")  # those that are fixed, or learnt on the part


def fit_collection(
    model: LazyJackknifeRegressor, X: Any, y: Any, X_pool: Any, X_unlabeled: Any
) -> tuple[Any, Given, Fitted]:
    """Fit to a Dask collection; also return the part of the rows that chose, and as it was read."""
    _check_settings(model, X_pool, X_unlabeled)
    check_rows(X)
    seeds, rows = Seeds.of(model.random_state), Partitions.of(X, y)
    if len(rows) < FEWEST_PARTED:
        raise ValueError(
            f"X has {len(rows)} row(s): Dask collections need at least {FEWEST_PARTED}; give more, "
            "or call .compute() on X and y"
        )
    apart = drawn_part(len(rows), seeds.lazy)
    part = rows.take(apart)
    given = prepare(model, *part, None, None)._replace(seeds=seeds)
    step = dask_step(model, given, len(rows))
    passes, choice, grown = step.chosen(given.X, given.y, len(rows))
    target = given.target.on(choice.target_scale)
    reading = Reading(given.reader, given.scaling, target, type(model).__name__)
    leaving = Leaving(len(rows) - len(apart), len(apart))
    rank = kappa(model.alpha, len(rows) - len(apart))
    loo, size = fit_parts(passes, rows, reading, apart, given.X, grown, rank)
    largest = given._replace(y=given.y.new_tensor([size]))  # of all rows, not of the part
    attributes = {
        "widths_": step.widths,
        "rounding_": rounding_share(loo, model.alpha, size),
        "seeds_": given.seeds,
        "choice_": choice,
        "ridge_": choice.ridge[:1].copy(),
        "n_samples_fit_": len(rows),
    }
    attributes["construction_"] = "plus"  # which keeps few models here
    certifier = model._certifier(largest, composed([]), loo, leaving, "plus")
    return part[0], given, Fitted(loo, certifier, attributes, target)


def dask_step(model: LazyJackknifeRegressor, given: Given, n: int) -> PartedStep:
    """The step that chooses on a part of n rows, and is run by the workers."""
    networks = model._candidates(given.X) or ()
    if not networks or not is_parted(math.inf, networks, "plus", model.widths):
        raise ValueError(
            f"network={model.network!r}, widths={model.widths!r}: with Dask collections, give "
            "None or infinitely wide networks of known kinds, widths=None or 'constant', and "
            "leave readout, loss, features, parameters and n_starts as they are"
        )
    candidates = [model._candidate(network, None, given) for network in networks]
    widths = model._widths_for(n, networks)
    step = model._step_for(candidates, widths, given, math.inf)
    assert isinstance(step, PartedStep)
    # On processors unless a device was given: workers may have no GPU.
    device = torch.device("cpu") if model.device == "auto" else step.machine.device
    budget = BUDGET if model.memory_budget is None else step.machine.budget
    return replace(step, machine=replace(step.machine, device=device, budget=budget))


def _check_settings(model: LazyJackknifeRegressor, X_pool: Any, X_unlabeled: Any) -> None:
    """Refuse settings that need all rows in one place."""
    fixed = not is_transformer(model.scaling) and model.scaling in SCALINGS
    named = model.target_transform is None or isinstance(model.target_transform, str)
    wrong = [
        ("construction", model.construction, model.construction in (AUTO, "plus"), "'plus'"),
        ("base", model.base, not model._base_method().trains, "None"),
        ("scaling", model.scaling, fixed, " or ".join(map(repr, SCALINGS))),
        ("target_transform", model.target_transform, named, "a name"),
        ("X_pool", type(X_pool).__name__, X_pool is None, "None"),
        ("X_unlabeled", type(X_unlabeled).__name__, X_unlabeled is None, "None"),
    ]
    for name, value, fits, way_out in wrong:
        if not fits:
            raise ValueError(
                f"{name}={value!r} does not support Dask collections: use {name}={way_out}, or "
                "call .compute() on X and y if they fit in memory"
            )
