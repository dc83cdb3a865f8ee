"""Private copies share the parameters and nothing else; random streams are independent."""

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lazyknife.networks import (
    RandomStream,
    call_with,
    draws,
    evaluation_copy,
    layer_sizes,
    make,
    mlp,
    outputs,
    private_copy,
    seeded,
)
from zoo import KINDS, Draws, Remembers, evaluated, stacked, two

X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
MANY = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 3)))


def everything_in(module: nn.Module) -> dict[str, Any]:
    """All that a module and its parts hold, with the tensors' values."""
    held: dict[str, Any] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for name, value in vars(part).items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            for key, each in inner:
                each = [id(x) for x in each] if isinstance(each, list | tuple) else each
                kept = (id(each), each.detach().clone()) if isinstance(each, Tensor) else each
                held[f"{path}.{name}.{key}"] = kept
    return held


def alike(first: dict[str, Any], second: dict[str, Any]) -> bool:
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], Tensor):
            return a[0] == b[0] and torch.equal(a[1], b[1])
        return a is b or a == b

    return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("name", KINDS)
def test_a_private_copy_is_the_network_and_shares_its_parameters_alone(name: str) -> None:
    module = evaluated(name)
    before = everything_in(module)
    copied = private_copy(module)
    parameters = dict(copied.named_parameters())
    assert list(parameters) == list(dict(module.named_parameters()))
    for key, value in module.named_parameters():
        assert parameters[key] is value
    for key, value in module.named_buffers():
        assert copied.get_buffer(key) is not value
    assert [type(part) for part in copied.modules()] == [type(part) for part in module.modules()]
    assert not set(copied.modules()) & set(module.modules())
    uncopied = name in ("hides", "old weight norm")
    expected = outputs(private_copy(module) if uncopied else copy.deepcopy(module), MANY)
    with torch.enable_grad():
        first = outputs(copied, MANY)
    assert torch.equal(first, expected)
    assert torch.equal(outputs(private_copy(module), MANY), expected)
    assert max(layer_sizes(private_copy(module), MANY[:1])) >= 1
    assert alike(everything_in(module), before)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("name", [n for n in KINDS if n != "remembers"])
def test_other_weights_are_those_of_the_private_copy_alone(name: str) -> None:
    module = evaluated(name)
    before = everything_in(module)
    own = {key: value[0] for key, value in stacked(module).items()}
    with torch.no_grad():
        result = call_with(private_copy(module), own, MANY).reshape(-1)
        for key, value in module.named_parameters():
            value.copy_(own[key])
        expected = outputs(module, MANY)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    ids = {key: value[0] for key, value in before.items() if isinstance(value, tuple)}
    after = everything_in(module)
    if name not in ("old weight norm", "lstm", "gru"):  # whose own calls keep tensors
        assert {key: after[key][0] for key in ids} == ids


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_scripted_network_is_shared_as_it_is() -> None:
    module = torch.jit.script(mlp((4,))(3).double().eval())
    mixed = nn.Sequential(module, nn.Flatten(0))
    copied = private_copy(mixed)
    assert copied is not mixed
    assert torch.equal(outputs(copied, MANY), outputs(module, MANY))
    assert max(layer_sizes(copied, MANY[:1])) == 1
    assert torch.equal(outputs(private_copy(module), MANY), outputs(module, MANY))


def test_a_network_that_keeps_what_it_has_made_can_be_copied() -> None:
    module = Remembers()
    module(X.float())  # with derivatives, as after the user's own training
    assert not module.last.is_leaf
    for copied in (make(module, X, 0), evaluation_copy(module), private_copy(module)):
        assert torch.equal(copied.layer.weight, module.layer.weight)
        assert torch.equal(copied.last, module.last)
        assert copied.last is not module.last
        assert not copied.last.requires_grad


def test_evaluation_copy_is_a_float64_copy_in_evaluation_mode() -> None:
    module = two(nn.Dropout(0.5))
    copied = evaluation_copy(module)
    assert not any(part.training for part in copied.modules())
    assert all(p.dtype == torch.float64 for p in copied.parameters())
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert all(part.training for part in module.modules())
    assert outputs(copied, X).shape == (5,)


def test_entries_of_an_embedding_have_their_norm_before_they_are_read() -> None:
    table = nn.Embedding(50, 4, max_norm=0.5)
    module = nn.Sequential(table, nn.Flatten(), nn.Linear(8, 1))
    codes = torch.randint(0, 50, (30, 2), generator=torch.Generator().manual_seed(0))
    copied = evaluation_copy(module)
    before = copied[0].weight.detach().clone()
    assert before.norm(dim=1).max() <= 0.5
    expected = outputs(copy.deepcopy(module).double(), codes)
    torch.testing.assert_close(outputs(copied, codes), expected)
    assert torch.equal(copied[0].weight, before)


def test_streams_continue_where_they_were_left_and_restore_the_callers_state() -> None:
    with seeded(5):
        expected = [torch.rand(3) for _ in range(4)]
    before = torch.get_rng_state()
    stream, others = RandomStream(5), RandomStream(6)
    for values in expected:
        with stream.fork():
            assert torch.equal(torch.rand(3), values)
        torch.rand(2)
        with others.fork():
            torch.rand(5)
    torch.set_rng_state(before)
    with RandomStream(5, needed=False).fork():
        drawn = torch.rand(3)
    torch.set_rng_state(before)
    assert torch.equal(torch.rand(3), drawn)


def test_turns_may_be_nested_and_end_with_an_error() -> None:
    with seeded(5):
        expected = torch.rand(2)
    with seeded(5):
        first = torch.rand(1)
        with seeded(7):
            torch.rand(9)
        second = torch.rand(1)
    assert torch.equal(torch.cat([first, second]), expected)
    stream, before = RandomStream(5), torch.get_rng_state()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), stream.fork():
            raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)
    finished = threading.Thread(target=lambda: draws(mlp((4,))(3), X.float()))
    finished.start()
    finished.join(timeout=10)
    assert not finished.is_alive()


def test_it_is_known_which_networks_draw_numbers() -> None:
    dropping, drawing, remembers = two(nn.Dropout(0.5)), Draws().eval(), Remembers()
    chain = mlp((4,))(3)
    before = torch.get_rng_state()
    assert draws(dropping, X.float())
    assert draws(drawing, X.float())
    assert not any(draws(m, X.float()) for m in (dropping.eval(), chain, remembers))
    assert (remembers.calls, remembers.seen) == (0, [])
    assert torch.equal(torch.get_rng_state(), before)
