"""Networks as data, and as weights for a network that is passed in."""

import copy

import pytest
import torch
from torch import nn

from lazyknife.saving import Reader, Refused, Unsaved, Writer

KNOWN = {"Linear": nn.Linear, "Tanh": nn.Tanh, "Sequential": nn.Sequential}
X = torch.linspace(-1, 1, 12).reshape(4, 3)


def known_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))


class Own(nn.Module):
    def __init__(self, width: int = 4, factor: float = 2.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 1)
        self.norm = nn.BatchNorm1d(width)
        self.factor = factor
        self.register_buffer("shift", torch.ones(1), persistent=False)

    def forward(self, x):
        return self.last(self.norm(self.first(self.factor * x))) + self.shift


def read(writer, data, templates=()):
    return Reader(KNOWN, writer.objects, writer.tensors, {}, templates).value(data)


def test_known_layers_are_data():
    network = known_network().double().eval()
    network[0].weight.requires_grad_(False)
    writer = Writer(KNOWN)
    again = read(writer, writer.at("network", network))
    assert torch.equal(again(X.double()), network(X.double()))
    assert str(again) == str(network)
    assert not again.training
    assert [p.requires_grad for p in again.parameters()] == [False, True, True]


def test_tied_weights_stay_tied():
    network = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    network[2].weight = network[0].weight
    writer = Writer(KNOWN)
    again = read(writer, writer.at("network", network))
    assert again[2].weight is again[0].weight
    assert len(list(again.parameters())) == 3


def test_a_network_with_a_hook_or_an_own_method_is_no_data():
    hooked, patched = known_network(), known_network()
    hooked.register_forward_hook(lambda *_: None)
    patched[1].forward = torch.sin
    for network in (hooked, patched):
        writer = Writer(KNOWN)
        writer.setting("network", network)
        assert writer.needs == {"network": "of class Sequential"}


def test_constants_cannot_replace_methods():
    writer = Writer(KNOWN)
    writer.at("network", nn.Linear(1, 1))
    (layer,) = [data for data in writer.objects if "module" in data]
    constants = writer.objects[layer["state"]["constants"]["ref"]]
    constants["dict"].append(["forward", "x"])
    with pytest.raises(ValueError, match="forward='x' is not an attribute"):
        Reader(KNOWN, writer.objects, writer.tensors, {})


def trained_copy(network):
    module = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1.0
        module.norm.running_mean += 1.0
        module.shift += 1.0
    module.first.weight.requires_grad_(False)
    return module.double().eval()


def test_other_networks_are_weights_for_one_that_is_passed_in():
    network = Own()
    module = trained_copy(network)
    vars(module)["draws"] = True
    writer = Writer(KNOWN, [Own(5), network])
    data = writer.at("module", module)
    fresh = Own()
    before = copy.deepcopy(fresh.state_dict())
    again = read(writer, data, [Own(5), fresh])
    assert torch.equal(again(X.double()), module(X.double()))
    assert again.draws
    assert [p.requires_grad for p in again.parameters()] == [
        p.requires_grad for p in module.parameters()
    ]
    assert [part.training for part in again.modules()] == [False] * 4
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())


def test_a_network_of_another_shape_is_refused():
    writer = Writer(KNOWN, [Own()])
    data = writer.at("module", trained_copy(Own()))
    with pytest.raises(Refused, match=r"first: Linear\(in_features=3, out_features=4"):
        read(writer, data, [Own(5)])


def test_a_network_unlike_the_settings_cannot_be_saved():
    with pytest.raises(Unsaved, match="unlike that of the settings"):
        Writer(KNOWN, [Own(5)]).at("module", Own())
