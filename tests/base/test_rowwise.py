"""One row changes one term of DP-SGD's sum, whatever a network does with a batch."""

import copy
import math
import threading
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from descents import clipped_descent, weights
from lazyknife.base import DPSGD
from lazyknife.base.dpsgd import check_forgets, clipped_sum
from lazyknife.networks import Averaged, build, mlp, row_gradients, set_training
from tangents import NETWORKS, network
from zoo import KINDS, Net

FEATURES = 6
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own


def numbers(n: int = 30) -> Tensor:
    return torch.randn(n, FEATURES, generator=torch.Generator().manual_seed(1))


def codes(n: int = 30) -> Tensor:
    return torch.randint(0, 9, (n, FEATURES), generator=torch.Generator().manual_seed(2))


def between(function):
    """Two layers with a function of the network and the hidden batch in between."""
    layers = {"first": nn.Linear(FEATURES, 5), "last": nn.Linear(5, 1)}
    return Net(lambda net, x: net.last(function(net, net.first(x).tanh())), **layers)


def words(**settings):
    layers = {"table": nn.Embedding(9, 4, **settings), "head": nn.Linear(4 * FEATURES, 1)}
    return Net(lambda net, x: net.head(net.table(x).flatten(1)), **layers)


def attention():
    layers = {"table": nn.Embedding(9, 4), "inner": nn.MultiheadAttention(4, 2, batch_first=True)}
    inner = lambda net, h: net.inner(h, h, h, need_weights=False)[0].mean(dim=1)  # noqa: E731
    return Net(lambda net, x: net.head(inner(net, net.table(x))), head=nn.Linear(4, 1), **layers)


def dropped(network, h):
    return F.dropout(h, 0.5, training=network.training)


def noisy(network, h):
    return h + 0.1 * torch.randn_like(h) if network.training else h


def image(*layers):
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), *layers, nn.Flatten(), nn.Linear(8, 1)
    )


def network_alone(name):
    return network(name)[0]


def drawn(name):
    """Rows for one of the networks of ``tangents``."""
    return lambda n=30: network(name, n)[1]


RANDOM = {
    "dropout layer": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 1)), numbers),
    "dropout function": (lambda: between(dropped), numbers),
    "dropout of channels": (lambda: image(nn.ReLU(), nn.Dropout2d(0.5)), numbers),
    "noise of its own": (lambda: between(noisy), numbers),
    "dropout in attention": (KINDS["attention"], drawn("dense")),
}
FIXED = {
    **{name: (partial(network_alone, name), drawn(name)) for name in NETWORKS},
    **{name: (KINDS[name], drawn("dense")) for name in ("lstm", "gru", "mlp with a skip")},
    "attention": (attention, codes),
    "several starts": (lambda: Averaged([mlp((5,))(FEATURES) for _ in range(3)]), numbers),
    "instance norm": (lambda: image(nn.InstanceNorm2d(4, affine=True)), numbers),
}


def centred(network, h):
    return h - h.mean(dim=0) if network.training else h


def normed(network, h):
    return F.batch_norm(h, None, None, training=True) if network.training else h


def scaled_by_size(network, h):
    """Exchanging a row changes no other one; removing it does."""
    return h * len(h) if network.training else h


class Remembers(nn.Module):
    """A running mean: a number, or a tensor, that is no buffer."""

    def __init__(self, mean):
        super().__init__()
        self.layer, self.mean, self.last = nn.Linear(FEATURES, 1), mean, 0.0

    def forward(self, x):
        result = self.layer(x - self.last)
        if self.training:
            self.last = 0.9 * self.last + 0.1 * self.mean(x)
        return result


def folded():
    """Each row's three parts are rows to the layers: each part would be clipped by itself."""
    body = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    return Net(lambda net, x: net.body(x.reshape(-1, 2)).reshape(-1, 3).sum(dim=1), body=body)


def frozen_table():
    module = words(max_norm=0.5)
    module.table.requires_grad_(False)
    return module


class Writes(nn.Module):
    """A running mean in a parameter that is frozen."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)
        self.mean = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x):
        result = self.layer(x - self.mean)
        if self.training:
            self.mean.data.mul_(0.9).add_(0.1 * float(x.mean()))
        return result


# Those that would let one row change several terms if rows shared a batch, or a network.
BAD = {
    "centres": (lambda: between(centred), numbers),
    "scales by the size": (lambda: between(scaled_by_size), numbers),
    "remembers numbers": (lambda: Remembers(lambda x: float(x.mean())), numbers),
    "remembers tensors": (lambda: Remembers(torch.mean), numbers),
    "folds": (folded, numbers),
    "bounds its embedding": (lambda: words(max_norm=0.5), codes),
    "bounds a frozen embedding": (frozen_table, codes),
    "writes to a frozen parameter": (Writes, numbers),
    "running statistics": (
        lambda: image(nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
        numbers,
    ),
}
EVERY = RANDOM | FIXED | BAD


def prepared(make) -> nn.Module:
    """The network as DPSGD trains it."""
    torch.manual_seed(0)
    module = make().double()
    set_training(module)
    return module


def gradients(module: nn.Module, X: Tensor, y: Tensor) -> dict[str, Tensor]:
    free = [name for name, p in module.named_parameters() if p.requires_grad]
    return row_gradients(module, free, X, y, lambda f, y: (f - y).square())


def case(name: str, n: int = 12) -> tuple[nn.Module, Tensor, Tensor]:
    make, rows = EVERY[name]
    X = rows(n)
    X = 2 * X.double() if X.is_floating_point() else X
    return prepared(make), X, numbers(n).double().sum(dim=1)


def gradients_in_one_batch(module: nn.Module, X: Tensor, y: Tensor) -> dict[str, Tensor]:
    """A mutant that the accountant would miss: rows share a batch."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    errors = (module(X).reshape(-1) - y).square()
    each = [torch.autograd.grad(error, parameters, retain_graph=True) for error in errors]
    return dict(zip(names, map(torch.stack, zip(*each, strict=True)), strict=True))


@pytest.mark.parametrize("name", FIXED | BAD)
def test_a_rows_gradient_depends_on_no_other_row(name):
    """Nor on rows of an earlier call, so that a row moves one term; the network stays as it was."""
    module, X, y = case(name)
    before = copy.deepcopy(module.state_dict())
    found = gradients(module, X, y)
    for k in range(len(X)):
        for weight, alone in gradients(module, X[k : k + 1], y[k : k + 1]).items():
            torch.testing.assert_close(found[weight][k], alone[0], rtol=1e-9, atol=1e-9)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert getattr(module, "last", 0.0) == 0.0 or isinstance(module.last, nn.Module)


@pytest.mark.parametrize(("each", "allowed"), [(gradients, True), (gradients_in_one_batch, False)])
def test_one_row_moves_the_sum_by_at_most_the_clipping_norm(each, allowed):
    module, X, y = case("centres")
    kept = [[i for i in range(12) if i != k] for k in range(12)]
    whole, *parts = (
        clipped_sum(each(module, X[rows], y[rows]).values(), 0.1) for rows in [range(12), *kept]
    )
    farthest = max(float((whole - part).norm()) for part in parts) / 0.1
    assert farthest <= 1 + 1e-9 if allowed else farthest > 1.2


@pytest.mark.parametrize("name", FIXED)
def test_noiseless_training_is_a_descent_by_clipped_gradients_of_rows(name):
    make, rows = FIXED[name]
    torch.manual_seed(0)
    start, X, y = make().double().eval(), rows(8), numbers(8).double().sum(dim=1)
    X = X.double() if X.is_floating_point() else X
    base = DPSGD(epochs=2, batch_size=8, lr=0.1, epsilon=math.inf)
    found = base.fit(start, X, y, seed=0).module
    twin = clipped_descent(start, X, y, [range(8)] * 2, 1.0, 0.1, expected=8.0)
    torch.testing.assert_close(weights(found), twin, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", EVERY)
def test_dpsgd_trains_every_network_and_keeps_nothing_but_weights(name):
    make, rows = EVERY[name]
    X, y = rows(), numbers().sum(dim=1)
    torch.manual_seed(0)
    given = make().eval()
    start, base = build(given, X, seed=0), DPSGD(epochs=1, noise_multiplier=2.0)
    one, two = (base.fit(start, X, y, seed=1).module for _ in range(2))
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    fixed = dict(given.named_buffers()) | {
        key: value for key, value in given.named_parameters() if not value.requires_grad
    }
    assert all(torch.equal(one.state_dict()[key], value) for key, value in fixed.items())


def test_a_network_that_needs_other_rows_is_refused_with_the_way_out():
    X = numbers()
    with pytest.raises(ValueError, match=r"a row alone .*more than 1 value.* base=Public\(\)"):
        DPSGD(epochs=1, noise_multiplier=2.0).fit(between(normed), X, X.sum(dim=1), seed=1)


class Holder:
    """Cannot be copied."""

    def __init__(self):
        self.lock, self.mean = threading.Lock(), 0.0


def remembers_outside(kept):
    """Keeps a mean where no copy reaches: in a closure, or in what cannot be copied."""

    def run(net, x):
        holder = net.holder if kept is None else kept
        result = net.head(x - holder.mean)
        holder.mean = 0.9 * holder.mean + 0.1 * float(x.mean())
        return result

    return Net(run, head=nn.Linear(FEATURES, 1), holder=Holder())


@pytest.mark.parametrize("kept", [None, Holder()])
def test_a_network_that_remembers_where_no_copy_reaches_is_refused(kept):
    module, X = remembers_outside(kept), numbers()
    free = [name for name, _ in module.named_parameters()]
    with pytest.raises(ValueError, match=r"remembers rows .* base=Public\(\)"):
        check_forgets(module, free, X, seed=1)


@pytest.mark.parametrize("name", EVERY)
def test_all_that_copies_reach_is_forgotten(name):
    module, X, _ = case(name)
    free = [key for key, p in module.named_parameters() if p.requires_grad]
    check_forgets(module, free, X, seed=1)
    check_forgets(module, free, X[:1], seed=1)


def test_a_gradient_that_overflows_counts_as_zero():
    huge, small = torch.tensor([[1e30, 1e30], [3.0, 4.0]]), torch.tensor([[1.0], [0.0]])
    torch.testing.assert_close(clipped_sum([huge, small], 1.0), torch.tensor([0.6, 0.8, 0.0]))
    torch.testing.assert_close(clipped_sum([huge[1:] * torch.inf], 1.0), torch.zeros(2))
