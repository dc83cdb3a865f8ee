"""Many networks at once equal each on its own, in blocks of every size."""

import copy
import itertools
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import lazyknife as lk
from lazyknife.networks import (
    ACTIVATIONS,
    ensemble_outputs,
    is_chain,
    row_gradients,
)
from rows import linear
from zoo import NO_CHAINS, evaluated, shared_activation, stacked

MANY = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 3)))
# Networks at once, and bytes: everything, two networks, one row, one of either.
BLOCKS = [(25, 2**20), (2, 2**20), (25, 1), (1, 1)]


def one_by_one(module: nn.Module, weights: dict[str, Tensor], rows: Tensor) -> Tensor:
    """The slow twin: each network on its own."""
    module = copy.deepcopy(module)  # torch's handling of ties would leave weights behind
    count = len(next(iter(weights.values())))
    each = [{name: weight[j] for name, weight in weights.items()} for j in range(count)]
    with torch.no_grad():
        results = [functional_call(module, own, (rows,), tie_weights=True) for own in each]
    return torch.stack([result.reshape(len(rows)) for result in results])


def chain(activation: str, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for sizes in itertools.pairwise((3, 5, 4)):
        layers += [nn.Linear(*sizes, bias=bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(4, 1, bias=bias)).double().eval()


def check_ensemble(
    module: nn.Module, names: Iterable[str] | None = None, rows: Tensor = MANY
) -> None:
    """In blocks of every size; the last ones may be shorter."""
    weights, before = stacked(module, names), rows.clone()
    state, twin = copy.deepcopy(module.state_dict()), one_by_one(module, weights, rows)
    tolerance = 1e-12 if twin.dtype == torch.float64 else 1e-5
    for at_once, limit in BLOCKS:
        result = ensemble_outputs(module, weights, rows, at_once, limit)
        assert result.shape == (5, len(rows))
        assert not result.requires_grad
        torch.testing.assert_close(result, twin, rtol=tolerance, atol=tolerance)
        assert torch.equal(rows, before)
        torch.testing.assert_close(module.state_dict(), state, rtol=0, atol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_chain_of_networks_equals_each_on_its_own(activation: str, bias: bool) -> None:
    module = chain(activation, bias)
    assert is_chain(module)
    check_ensemble(module)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("loss", [None, lambda found, y: (found - y).square()])
def test_a_rows_gradient_of_a_chain_is_that_of_the_row_alone(activation, bias, loss):
    """Also for some of the weights, others frozen, in training mode, and with a layer in place."""
    module, y = chain(activation, bias).train(), MANY[:, 0]
    if activation == "relu":
        module[1].inplace = True
    module[0].weight.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    found = row_gradients(module, names, MANY[:5], None if loss is None else y[:5], loss)
    for k in range(5):
        value = module(MANY[k : k + 1]).reshape(())
        total = value if loss is None else loss(value, y[k])
        for name in names:
            (alone,) = torch.autograd.grad(total, module.get_parameter(name), retain_graph=True)
            torch.testing.assert_close(found[name][k], alone, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_hook_makes_no_chain() -> None:
    module = chain("relu")
    module[0].register_full_backward_hook(lambda *seen: None)
    assert not is_chain(module)


WEIGHTS = [f"{layer}.{role}" for layer in (0, 2, 4) for role in ("weight", "bias")]


@pytest.mark.parametrize(
    "names", [names for k in (1, 2) for names in itertools.combinations(WEIGHTS, k)], ids=" ".join
)
def test_networks_may_differ_in_any_of_their_weights(names: tuple[str, ...]) -> None:
    check_ensemble(chain("relu"), names)


def test_chains_of_other_shapes_and_types() -> None:
    one = nn.Sequential(nn.Linear(3, 1)).double().eval()
    for names in (["0.weight"], ["0.bias"], ["0.weight", "0.bias"]):
        check_ensemble(one, names)
    ends = nn.Sequential(
        nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 1), nn.ReLU(), nn.Softplus(2)
    )
    for names in (["1.weight", "4.bias"], ["4.bias"]):
        check_ensemble(ends.double().eval(), names)
    shared = shared_activation().double().eval()
    check_ensemble(shared)
    assert all(is_chain(module) for module in (one, ends, shared))
    single = chain("tanh").float()
    check_ensemble(single, rows=MANY.float())
    check_ensemble(single, ["4.bias"], MANY.float())


@pytest.mark.parametrize("name", NO_CHAINS)
def test_everything_else_is_no_chain_and_is_run_all_the_same(name: str) -> None:
    module = evaluated(name)
    assert not is_chain(module)
    check_ensemble(module)
    check_ensemble(module, list(dict(module.named_parameters()))[-1:])


def test_rows_of_other_shapes_are_run_too() -> None:
    rng = np.random.default_rng(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    rows = torch.from_numpy(rng.normal(size=(7, 2, 3)))
    check_ensemble(module.double().eval(), ["0.weight", "3.bias"], rows)
    table = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 1)).double().eval()
    codes = torch.from_numpy(rng.integers(0, 5, size=(7, 2)))
    check_ensemble(table, ["0.weight", "2.bias"], codes)


@pytest.mark.parametrize("readout", ["tangent", "network"])
def test_a_network_that_works_in_place_does_not_change_the_callers_rows(readout: str) -> None:
    rows, y = linear(30)
    before = rows.copy()
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))
    model = lk.LazyJackknifeRegressor(network, lk.Public(), 1.0, readout=readout).fit(rows, y)
    model.predict_interval(rows)
    model.predict(rows)
    np.testing.assert_array_equal(rows, before)
