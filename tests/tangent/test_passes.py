"""Networks that run in their own float32, in passes of a fixed number of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyknife as lk
from lazyknife.compute import machine_for
from lazyknife.tangent import linearise
from lazyknife.tangent.tangent import PASS_ROWS, Tangent

MACHINE, EXACT = (machine_for("cpu", kind, 2**28) for kind in ("network", "float64"))
PICTURES = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = PICTURES[:, 0, 2:5, 2:5].mean(dim=(1, 2)) * 10
SETTINGS: dict[str, Any] = {"random_state": 0, "device": "cpu", "alpha": 0.2}


def convolutional(last: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 1)]
    return nn.Sequential(*layers, *([] if last is None else [last]))


def skip_unless_steady(tangent: Tangent) -> None:
    if not tangent.is_steady(PICTURES):
        pytest.skip("this processor rounds by the place in a batch: networks run in float64")


class Placed(nn.Module):
    """Lets an output depend a little on where its row stands in the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + 1e-6 * torch.arange(len(x), dtype=x.dtype)[:, None])


@pytest.mark.parametrize("settings", [{}, {"ridge": 1.0, "construction": "full"}, {"folds": 5}])
def test_a_float32_network_gives_nearly_the_same_certified_intervals(settings: Any) -> None:
    if "folds" in settings:
        settings = settings | {"construction": "cv+"}
    skip_unless_steady(linearise(convolutional(), PICTURES, machine=MACHINE))
    exact, own = (
        lk.LazyJackknifeRegressor(convolutional(), precision=kind, **SETTINGS, **settings)
        for kind in ("float64", "network")
    )
    wide, narrow = (model.fit(PICTURES, Y).predict_interval(PICTURES) for model in (exact, own))
    np.testing.assert_allclose(narrow.to_numpy(), wide.to_numpy(), atol=1e-3)
    assert not np.array_equal(narrow.to_numpy(), wide.to_numpy())  # it did run in float32
    assert own.certificate_.coverage == exact.certificate_.coverage
    assert own.rounding_ < 1e-6


@pytest.mark.parametrize("n", [1, PASS_ROWS - 1, PASS_ROWS, PASS_ROWS + 1, 50])
def test_passes_have_the_features_of_the_network(n: int) -> None:
    exact, own = (linearise(convolutional(), PICTURES, machine=m) for m in (EXACT, MACHINE))
    assert next(own.module.parameters()).dtype == torch.float32
    rows = PICTURES[:n].double()
    features, wanted = own.features(rows), exact.features(rows)
    assert features.outputs.dtype == torch.float64
    torch.testing.assert_close(features.outputs, wanted.outputs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own.gram(features), exact.gram(wanted), rtol=1e-5, atol=1e-5)
    assert torch.equal(own.exactly().features(rows).outputs, wanted.outputs)


def test_a_row_has_the_same_features_alone_and_in_a_batch() -> None:
    tangent = linearise(convolutional(), PICTURES, machine=MACHINE)
    skip_unless_steady(tangent)
    together = tangent.features(PICTURES.double()).outputs
    alone = [tangent.features(row.double()).outputs for row in PICTURES.split(1)]
    assert torch.equal(torch.cat(alone), together)


@pytest.mark.slow
def test_features_that_do_not_fit_are_made_again() -> None:
    whole = linearise(convolutional(), PICTURES, machine=MACHINE)
    small = linearise(convolutional(), PICTURES, machine=replace(MACHINE, budget=2**13))
    kept, left = (tangent.features(PICTURES.double()) for tangent in (whole, small))
    assert left.parts is None
    assert torch.equal(kept.outputs, left.outputs)
    torch.testing.assert_close(whole.gram(kept), small.gram(left))


def test_a_network_whose_rounding_depends_on_the_place_runs_in_float64() -> None:
    tangent = linearise(convolutional(Placed()), PICTURES, machine=MACHINE)
    assert not tangent.is_steady(PICTURES)
    exact, own = (
        lk.LazyJackknifeRegressor(convolutional(Placed()), precision=kind, ridge=1.0, **SETTINGS)
        for kind in ("float64", "network")
    )
    found = [model.fit(PICTURES, Y).predict_interval(PICTURES) for model in (exact, own)]
    np.testing.assert_array_equal(found[0].to_numpy(), found[1].to_numpy())
    assert own.rounding_ == exact.rounding_ > 1e-7  # measured, and counted


@pytest.mark.parametrize(
    ("network", "settings"),
    [(convolutional().double(), {}), (convolutional(), {"readout": "network", "ridge": 100.0})],
)
def test_other_networks_and_readouts_run_in_float64(network: nn.Module, settings: Any) -> None:
    exact, own = (
        lk.LazyJackknifeRegressor(network, precision=kind, **SETTINGS, **settings)
        for kind in ("float64", "network")
    )
    found = [model.fit(PICTURES, Y).predict(PICTURES) for model in (exact, own)]
    np.testing.assert_array_equal(*found)
