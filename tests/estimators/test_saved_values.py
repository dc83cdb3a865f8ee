"""Values, layouts of tensors and networks: written to the list of a saved model, and read again."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lazyknife.data.own_scaling import FeatureScale as Frame
from lazyknife.data.scaling import symlog
from lazyknife.data.targets import Transform
from lazyknife.estimators.saving import _read, _Writer, saveable_classes


def in_state():
    writer = _Writer()
    writer.in_settings = False
    return writer


def through(value, writer=None, given=(), **terms):
    """Write a value, and read it in another graph, by way of text."""
    writer = writer or in_state()
    data = writer.value(value, "root")
    data, objects = json.loads(json.dumps([data, writer.objects]))
    return _read(objects, writer.tensors, dict(given), **terms)(data)


def alike(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and (one == other or one != one)


VALUES = [
    *(None, True, 3, -(2**80), 0.1, -0.0, math.inf, -math.inf, math.nan, "ä", "\ud800", 1e-320),
    *((), (1, (2.5, None)), [1, [2]], {"a": 1, 2: "b", (1.0, 2.0): None}, {"self": [1]}, {}),
    *(frozenset({2**64 - 1, 0}), frozenset({"x", "y"}), frozenset(), {"a"}),
    *(np.float32(0.1), np.int64(3), np.bool_(True), np.float64("nan"), np.str_("x")),
    *(torch.float64, torch.bfloat16, torch.device("cpu"), symlog, Transform("log")),
    *(torch.arange(3), torch.ones(2, 3).T, torch.tensor(True)),
    *(np.arange(3), np.eye(2).T, np.array(["a", "bc"]), np.array(["a", None, "b"])[::2]),
    *(np.zeros((0, 3), dtype=np.float32), np.array(1.5), np.array([1, 2], dtype=np.uint64)),
]


def kind_of(value: object) -> str:
    return type(value).__name__  # the same in every process


@pytest.mark.parametrize("value", VALUES, ids=kind_of)
def test_values_come_back(value):
    assert alike(value, through(value))


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_random_generators_go_on_where_they_were(kind):
    random = kind(3)
    random.normal(size=3)
    again = through(random)
    assert np.array_equal(random.normal(size=5), again.normal(size=5))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.builds(Transform, inner, inner)
        | st.builds(Frame, inner, inner, inner)
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(NESTED)
def test_any_nested_values_come_back(value):
    assert repr(through(value)) == repr(value)


def test_shared_objects_stay_shared_and_are_written_once():
    tensor, inner, listed = torch.ones(50), Frame(1, 2, 3), [1]
    value = (
        Frame(tensor, inner, 0),
        Frame(inner, tensor, 0),
        tensor.view(50),
        listed,
        listed,
    )
    writer = in_state()
    first, second, view, one, other = through(value, writer)
    assert len(writer.tensors) == 1
    assert first[0] is second[1] is view
    assert first[1] is second[0]
    assert one is other


@pytest.mark.parametrize(
    "value",
    [
        lambda: 1,
        object(),
        np.array([object()]),
        1j,
        np.datetime64("2020-01-01"),
        Frame,
        np.tanh,
    ],
    ids=kind_of,
)
def test_what_is_not_data_is_refused_by_its_place(value):
    writer = in_state()
    with pytest.raises(ValueError, match=r"^model\.made by\.1(\.0)? cannot be saved"):
        writer.value({"made by": (0, value)}, "model")


@pytest.mark.parametrize("name", ["os.system", "pathlib.Path", "builtins.eval", "Frame", "", None])
def test_a_file_can_name_no_other_class(name):
    with pytest.raises(ValueError, match="not a class that a saved model may contain"):
        _read([[name, []]], {}, {})


@pytest.mark.parametrize(
    "entry",
    [
        ["builtins.list", [[0]]],  # itself
        ["torch.dtype", ["_inductor"]],
        ["builtins.function", ["eval"]],
        ["tensor", ["none", (), (), "cpu"]],
        ["given", ["network"]],
        ["lazyknife.data.own_scaling.FeatureScale", {"center": 1, "scale": 2, "code": 3}],
        ["torch.nn.modules.linear.Linear", {"forward": "x"}],
        ["sklearn.preprocessing._data.StandardScaler", {"transform": "x"}],
        ["torch.nn.modules.linear.Linear", [1, 10**12]],
        [],
        {},
    ],
    ids=str,
)
def test_odd_entries_build_nothing(entry):
    with pytest.raises((KeyError, ValueError, IndexError, TypeError)):
        _read([entry], {}, {})


def test_text_is_as_wide_as_it_is_long():
    objects = [["builtins.list", ["a", "bc"]], ["numpy.ndarray", [[0], "U500000000"]]]
    assert _read(objects, {}, {})([1]).dtype == np.dtype("<U2")


def test_devices_are_replaced():
    value = (torch.device("cuda", 1), torch.ones(2))
    assert through(value, device=torch.device("cpu"))[0] == torch.device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="map_location='cpu'"):
            through(value)


def test_saveable_classes_are_records_of_this_package_and_a_few_others():
    kinds = [kind for kind in saveable_classes() if not kind.__module__.startswith("lazyknife.")]
    packages = {kind.__module__.partition(".")[0] for kind in kinds}
    assert packages == {"builtins", "numpy", "sklearn", "torch"}
    assert len(kinds) < 45
    assert not {type, object, bytearray, bytes} & saveable_classes().keys()


# Tensors: products of the same numbers in another layout may round differently.

BASE = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE[0].T,
    "permuted": BASE.permute(2, 0, 1),
    "repeated": BASE[0, 0].expand(5, 4),
    "repeated columns": torch.ones(3, 1).expand(3, 7),
    "a number": BASE[0, 0, 0],
    "a repeated number": BASE[0, 0, 0].expand(3),
    "empty": BASE[:0],
    "empty twice": torch.empty(0, 0),
    "with gaps": BASE[:, ::2, ::3],
    "columns": BASE[0, :, 1:3],
    "half": BASE.to(torch.bfloat16).mT,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_values_and_strides_are_restored(name):
    tensor, writer = LAYOUTS[name], in_state()
    again = through(tensor, writer)
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)
    assert again.stride() == tensor.stride()
    (stored,) = writer.tensors.values()
    assert again.untyped_storage().data_ptr() != stored.untyped_storage().data_ptr() or not len(
        stored
    )


def test_repeated_entries_are_stored_once_and_gaps_hold_nothing():
    repeated, gaps = in_state(), in_state()
    through(torch.zeros(1, 1).expand(1000, 1000), repeated)
    assert [tensor.numel() for tensor in repeated.tensors.values()] == [1]
    through(torch.ones(3, 3)[:, :2], gaps)
    assert [tensor.tolist() for tensor in gaps.tensors.values()] == [[1, 1, 0, 1, 1, 0, 1, 1]]


@pytest.mark.parametrize(
    ("shape", "stride"), [([10**15], [1]), ([2, 3], [3, 2]), ([6], [-1]), ([2, 3], [1])]
)
def test_a_layout_that_does_not_fit_takes_no_memory(shape, stride):
    objects = [
        *(["builtins.tuple", shape], ["builtins.tuple", stride], ["torch.device", ["cpu"]]),
        ["tensor", ["t", [0], [1], [2]]],
    ]
    with pytest.raises(RuntimeError):
        _read(objects, {"t": torch.ones(6)}, {})


# Networks: data, or weights for one that is given.

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


def test_known_layers_are_data():
    network = known_network().double().eval()
    network[0].weight.requires_grad_(False)
    again = through(network, _Writer())
    assert torch.equal(again(X.double()), network(X.double()))
    assert str(again) == str(network)
    assert not any(part.training for part in again.modules())
    assert [p.requires_grad for p in again.parameters()] == [False, True, True]
    again.register_forward_hook(lambda *_: None)  # it is a whole module
    again(X.double())


def test_tied_weights_stay_tied():
    network = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    network[2].weight = network[0].weight
    again = through(network)
    assert again[2].weight is again[0].weight
    assert len(list(again.parameters())) == 3


def test_a_network_with_a_hook_or_an_own_method_is_no_data():
    hooked, patched = known_network(), known_network()
    hooked[0].register_forward_hook(lambda *_: None)
    patched[1].forward = torch.sin
    for network in (hooked, patched):
        writer = _Writer()
        writer.value({"network": network}, "settings")
        assert writer.given == {"settings.network": network}


def test_the_same_leaf_is_given_wherever_it_is():
    writer, function = _Writer(), kind_of
    data = writer.value([Frame(function, 1, 2), function], "network")
    assert list(writer.given) == ["network.0.center", "network.1"]
    passed = {"network.0.center": alike, "network.1": alike}
    (first, _, _), second = _read(writer.objects, {}, passed)(data)
    assert first is second is alike


def trained_copy(network):
    module = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1.0
        module.norm.running_mean += 1.0
        module.shift += 1.0
    module.first.weight.requires_grad_(False)
    return module.double().eval()


def with_templates(*templates):
    writer = _Writer(templates)
    writer.in_settings = False
    return writer


def test_other_networks_are_weights_for_one_that_is_given():
    network, fresh = Own(), Own()
    module = trained_copy(network)
    vars(module)["draws"] = True
    before = copy.deepcopy(fresh.state_dict())
    again = through(module, with_templates(Own(5), network), templates=[Own(5), fresh])
    assert torch.equal(again(X.double()), module(X.double()))
    assert again.draws
    moving = [[p.requires_grad for p in each.parameters()] for each in (again, module)]
    assert moving[0] == moving[1]
    assert [part.training for part in again.modules()] == [False] * 4
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())


def test_networks_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="the one given has other layers"):
        through(trained_copy(Own()), with_templates(Own()), templates=[Own(5)])
    with pytest.raises(ValueError, match="cannot be saved: it is of class Own, not data"):
        with_templates(Own(5)).value(Own(), "module")
