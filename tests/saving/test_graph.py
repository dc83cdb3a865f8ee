"""Graphs of values, written as JSON and tensors and read again."""

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lazyknife.saving import Codec, Reader, Refused, Unsaved, Writer, describe, difference


@dataclass(frozen=True)
class Node:
    left: Any
    right: Any = None


class Pair(NamedTuple):
    one: Any
    two: Any


class Odd:
    def __init__(self, size: int) -> None:
        self.size = size


KNOWN = {
    "Node": Node,
    "Pair": Pair,
    "Odd": Codec(Odd, lambda odd: {"size": odd.size} if odd.size else None, Odd),
    "Linear": nn.Linear,
    "Tanh": nn.Tanh,
    "Sequential": nn.Sequential,
}


def through(value, writer=None, **terms):
    """Write a value, and read it in another graph, by way of text."""
    writer = writer or Writer(KNOWN)
    data = writer.at("root", value)
    data, objects = json.loads(json.dumps([data, writer.objects], allow_nan=False))
    return Reader(KNOWN, objects, writer.tensors, terms.pop("given", {}), **terms).value(data)


def alike(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and (one == other or one != one)


VALUES = [
    *(None, True, 3, -(2**80), 0.1, -0.0, math.inf, -math.inf, math.nan, "ä", 1e-320),
    *((), (1, (2.5, None)), [1, [2]], {"a": 1, 2: "b", (1.0, 2.0): None}),
    *(frozenset({2**64 - 1, 0}), frozenset({"x", "y"}), frozenset()),
    *(np.float32(0.1), np.int64(3), np.bool_(True), np.float64("nan"), np.str_("x")),
    *(torch.float64, torch.bfloat16, torch.device("cpu")),
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
        | st.builds(Node, inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(NESTED)
def test_any_nested_values_come_back(value):
    assert repr(through(value)) == repr(value)


def test_shared_objects_stay_shared_and_are_written_once():
    tensor, inner = torch.ones(50), Node(1)
    listed = [1]
    value = (Node(tensor, inner), Pair(inner, tensor), tensor.view(50), listed, listed)
    writer = Writer(KNOWN)
    first, second, view, one, other = through(value, writer)
    assert len(writer.tensors) == 1
    assert first.left is second.two
    assert first.right is second.one
    assert torch.equal(view, tensor)
    assert one is other


def test_tensors_are_named_by_their_place():
    writer = Writer(KNOWN)
    writer.at("loo_", Node((torch.ones(1), torch.zeros(2))))
    assert list(writer.tensors) == ["loo_.left.0", "loo_.left.1"]


@pytest.mark.parametrize(
    "value",
    [
        lambda: 1,
        object(),
        Odd(0),
        {1, 2},
        np.array([object()]),
        1j,
        np.datetime64("2020-01-01"),
        Node,
    ],
    ids=kind_of,
)
def test_what_is_not_data_is_refused_by_its_place(value):
    with pytest.raises(Unsaved, match=r"^model\.left cannot be saved"):
        Writer(KNOWN).at("model", Node(value))


def test_a_file_can_name_no_other_class():
    for name in ("os.system", "Path", "builtins.eval", "Reader", ""):
        with pytest.raises(ValueError, match="not a class that a saved model may contain"):
            Reader(KNOWN, [{"record": name, "fields": {}}], {}, {})
    with pytest.raises(ValueError, match="not a network"):
        Reader(KNOWN, [{"module": "Node", "state": {}}], {}, {})
    with pytest.raises(ValueError, match=r"no \['code'\]"):
        Reader(KNOWN, [{"record": "Node", "fields": {"left": 1, "code": 2}}], {}, {})


@pytest.mark.parametrize(
    "data",
    [
        {"ref": 0},
        {"pickle": "x"},
        {"dtype": "_inductor"},
        {"number": ["O", 1]},
        {"number": ["M8", 1]},
        {"tensor": {"name": "none", "stride": [], "shape": [], "device": "cpu"}},
        {"given": {"path": ["network"]}},
        {"a": 1, "b": 2},
        {},
    ],
    ids=kind_of,
)
def test_odd_json_builds_nothing(data):
    with pytest.raises((KeyError, ValueError, IndexError, TypeError)):
        Reader(KNOWN, [data], {}, {})


def test_text_is_as_wide_as_it_is_long():
    data = {"array": {"text": ["a", "bc"], "shape": [2], "dtype": "<U500000000"}}
    assert Reader(KNOWN, [], {}, {}).value(data).dtype == np.dtype("<U2")
    numbers = {"tensor": {"name": "t", "shape": [2], "stride": [1], "device": "cpu"}}
    reader = Reader(KNOWN, [], {"t": torch.ones(2)}, {})
    with pytest.raises(ValueError, match="not a type that is expected"):
        reader.value({"array": {"values": numbers, "dtype": "<U500000000"}})


def test_functions_of_settings_are_given_again():
    writer = Writer(KNOWN)
    kernel = Node(describe, 1)
    written = writer.setting("network", [Odd(3), kernel])
    state = writer.at("state", Pair(kernel, describe))
    assert writer.needs == {"network": "describe"}
    given = {"network": [Odd(3), Node(difference, 1)]}
    reader = Reader(KNOWN, writer.objects, writer.tensors, given)
    assert reader.value(state) == Pair(Node(difference, 1), difference)
    assert reader.value(written)[1].left is difference
    with pytest.raises(ValueError, match="no part"):
        Reader(KNOWN, writer.objects, writer.tensors, {"network": [1, "text"]})


def test_devices_are_replaced():
    writer = Writer(KNOWN)
    value = (torch.device("cuda", 1), torch.ones(2))
    data = writer.at("root", value)
    reader = Reader(KNOWN, writer.objects, writer.tensors, {}, (), torch.device("cpu"))
    assert reader.value(data)[0] == torch.device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(Refused, match="map_location='cpu'"):
            Reader(KNOWN, writer.objects, writer.tensors, {}).value(data)


def test_descriptions_tell_settings_apart():
    def function() -> None: ...

    same = [1, "a", Node(1), describe, np.eye(2), torch.ones(2), nn.Linear(2, 1), {"a": function}]
    for place, value in enumerate(same):
        assert difference(describe(value), describe(value)) == ""
        for other in same[:place]:
            assert difference(describe(value), describe(other))
    found = difference(describe(Node(1, (2, 3))), describe(Node(1, (2, 4))))
    assert found == "right[1] was 3 and is 4"
    assert len(difference("a" * 1000, "b" * 1000)) < 500
