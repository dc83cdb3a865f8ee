"""Values, layouts of tensors and networks: written to the list of a saved model, and read again."""

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


def test_shared_objects_stay_shared_and_random_generators_go_on():
    tensor, inner, listed, writer = torch.ones(50), Frame(1, 2, 3), [1], in_state()
    value = (Frame(tensor, inner, 0), Frame(inner, tensor, 0), tensor.view(50), listed, listed)
    first, second, view, one, other = through(value, writer)
    assert len(writer.tensors) == 1
    assert first[0] is second[1] is view
    assert first[1] is second[0]
    assert one is other
    for random in (np.random.default_rng(3), np.random.RandomState(3)):
        random.normal(size=3)
        again = through(random)
        assert np.array_equal(random.normal(size=5), again.normal(size=5))


NO_DATA = [lambda: 1, object(), np.array([object()]), 1j, np.datetime64("2020-01-01"), Frame]


@pytest.mark.parametrize("value", NO_DATA, ids=kind_of)
def test_what_is_not_data_is_refused_by_its_place(value):
    with pytest.raises(ValueError, match=r"^model\.made by\.1(\.0)? cannot be saved"):
        in_state().value({"made by": (0, value)}, "model")


def test_text_is_as_wide_as_it_is_long():
    objects = [["builtins.list", ["a", "bc"]], ["numpy.ndarray", [[0], "U500000000"]]]
    assert _read(objects, {}, {})([1]).dtype == np.dtype("<U2")


def test_saveable_classes_are_records_of_this_package_and_a_few_others():
    every = saveable_classes()
    kinds = [kind for kind in every if not kind.__module__.startswith("lazyknife.")]
    packages = {kind.__module__.partition(".")[0] for kind in kinds}
    assert packages == {"builtins", "numpy", "sklearn", "torch"}
    assert len(kinds) < 45
    assert not {type, object, bytearray, bytes} & every.keys()
    assert len({f"{kind.__module__}.{kind.__name__}" for kind in every}) == len(every)


# Tensors: products of the same numbers in another layout may round differently.

BASE = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": BASE,
    "permuted": BASE.permute(2, 0, 1),
    "repeated": BASE[0, 0].expand(5, 4),
    "repeated columns": torch.ones(3, 1).expand(3, 7),
    "a repeated number": BASE[0, 0, 0].expand(3),
    "empty": BASE[:0],
    "empty twice": torch.empty(0, 0),
    "with gaps": BASE[:, ::2, ::3],
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
    same = again.untyped_storage().data_ptr() == stored.untyped_storage().data_ptr()
    assert not (same and len(stored))
    assert len(stored) <= max(1, tensor.untyped_storage().nbytes() // tensor.element_size())
    if name == "with gaps":  # which hold nothing
        assert (stored == 0).sum() == len(stored) - tensor.numel() + 1


def test_known_layers_are_data():
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)).double().eval()
    network[0].weight.requires_grad_(False)
    again, X = through(network, _Writer()), torch.ones(4, 3).double()
    assert torch.equal(again(X), network(X))
    assert str(again) == str(network)
    assert not any(part.training for part in again.modules())
    assert [p.requires_grad for p in again.parameters()] == [False, True, True]
