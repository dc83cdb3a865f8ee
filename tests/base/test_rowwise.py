"""A network in which rows meet while it is trained cannot be trained with DP-SGD."""

import copy
import math

import pytest
import torch
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from torch import Tensor, nn
from torch.nn import functional as F

from lazyknife.base import DPSGD, Perturbed
from lazyknife.base.rowwise import NoDropout, check_rowwise, fix_norms
from lazyknife.networks import Averaged, build, mlp
from zoo import Net

FEATURES = 6


def numbers(n: int = 30) -> Tensor:
    return torch.randn(n, FEATURES, generator=torch.Generator().manual_seed(1))


def codes(n: int = 30) -> Tensor:
    return torch.randint(0, 9, (n, FEATURES), generator=torch.Generator().manual_seed(2))


def between(function):
    """Two layers with a function of the network and the hidden batch in between."""
    layers = {"first": nn.Linear(FEATURES, 5), "last": nn.Linear(5, 1)}
    return Net(lambda net, x: net.last(function(net, net.first(x).tanh())), **layers)


def words(reader=None, read=lambda net, h: net.reader(h)[0][:, -1], **settings):
    """An embedding, and a layer that reads the sequence."""
    layers = {"table": nn.Embedding(9, 4, **settings), "reader": reader or nn.Flatten()}
    head = nn.Linear(4 if reader else 4 * FEATURES, 1)
    if reader is None:
        read = lambda net, h: net.reader(h)  # noqa: E731
    return Net(lambda net, x: net.head(read(net, net.table(x))), head=head, **layers)


def attend(net, h):
    return net.reader(h, h, h, need_weights=False)[0].mean(dim=1)


def dropped(network, h):
    return F.dropout(h, 0.5, training=network.training)


def noisy(network, h):
    return h + 0.1 * torch.randn_like(h) if network.training else h


def image(*layers):
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), *layers, nn.Flatten(), nn.Linear(8, 1)
    )


GOOD = {
    "mlp": (lambda: mlp((5, 5), "tanh")(FEATURES), numbers),
    "skip": (lambda: mlp((5,), skip=True)(FEATURES), numbers),
    "several starts": (lambda: Averaged([mlp((5,))(FEATURES) for _ in range(3)]), numbers),
    "dropout layer": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 1)), numbers),
    "dropout function": (lambda: between(dropped), numbers),
    "dropout of channels": (lambda: image(nn.ReLU(), nn.Dropout2d(0.5)), numbers),
    "noise of its own": (lambda: between(noisy), numbers),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 1)), numbers),
    "group norm": (lambda: image(nn.GroupNorm(2, 4)), numbers),
    "instance norm": (lambda: image(nn.InstanceNorm2d(4, affine=True)), numbers),
    "batch norm on fixed statistics": (lambda: image(nn.BatchNorm2d(4)), numbers),
    "embedding": (words, codes),
    "recurrent": (lambda: words(DPRNN(4, 4, batch_first=True)), codes),
    "gated recurrent": (lambda: words(DPGRU(4, 4, batch_first=True)), codes),
    "long short-term memory": (
        lambda: words(DPLSTM(4, 4, 2, dropout=0.3, batch_first=True)),
        codes,
    ),
    "attention": (lambda: words(DPMultiheadAttention(4, 2, batch_first=True), attend), codes),
}


def centred(network, h):
    return h - h.mean(dim=0) if network.training else h


def centred_and_dropped(network, h):
    return F.dropout(centred(network, h), 0.5, training=network.training)


def normed(network, h):
    return F.batch_norm(h, None, None, training=True) if network.training else h


def scaled_by_size(network, h):
    """Exchanging a row changes no other one; removing it does."""
    return h * len(h) if network.training else h


def shifted(network, h):
    return h.roll(1, dims=0) if network.training else h


def scaled_gradient(network, h):
    """The values are those of the rows, the derivatives are not."""
    size = h.square().mean()
    return h + h.detach() * (size - size.detach()) if network.training else h


def centred_last(network):
    return nn.Sequential(network, Net(centred))


class Remembers(nn.Module):
    """A running mean that is no buffer."""

    def __init__(self):
        super().__init__()
        self.layer, self.mean = nn.Linear(FEATURES, 1), 0.0

    def forward(self, x):
        result = self.layer(x - self.mean)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * float(x.mean())
        return result


def folded():
    """Each row's three parts are rows to the layers: each part would be clipped by itself."""
    body = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    return Net(lambda net, x: net.body(x.reshape(-1, 2)).reshape(-1, 3).sum(dim=1), body=body)


MEET = "affect each other"
BAD = {
    "centres": (lambda: between(centred), numbers, MEET),
    "centres and drops": (lambda: between(centred_and_dropped), numbers, MEET),
    "centres its outputs": (lambda: centred_last(mlp((5,))(FEATURES)), numbers, MEET),
    "norms by the batch": (lambda: between(normed), numbers, MEET),
    "shifts the rows": (lambda: between(shifted), numbers, MEET),
    "scales gradients": (lambda: between(scaled_gradient), numbers, MEET),
    "centres an embedding": (lambda: centred_last(words()), codes, MEET),
    "scales by the size": (lambda: between(scaled_by_size), numbers, "within a batch than alone"),
    "remembers": (Remembers, numbers, "remembers the rows of earlier batches"),
    "folds": (folded, numbers, "passes 4 rows to a layer as 12"),
    "bounds its embedding": (
        *(lambda: words(max_norm=0.5), codes),
        r"changes its parameters \['table.weight'\].*max_norm",
    ),
}


def prepared(make) -> nn.Module:
    """The network as DPSGD is going to train it."""
    torch.manual_seed(0)
    module = make().eval()
    fix_norms(module)
    return module.train()


@pytest.mark.parametrize("name", GOOD)
def test_networks_that_treat_each_row_alone_pass(name):
    make, rows = GOOD[name]
    module = prepared(make)
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    check_rowwise(module, rows(), 3)
    assert torch.equal(state, torch.get_rng_state())
    assert module.training
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert not any(hasattr(p, "grad_sample") or p.grad is not None for p in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())


@pytest.mark.parametrize("name", BAD)
def test_networks_in_which_rows_meet_are_refused(name):
    """Also by DPSGD, although they behave in evaluation mode, in which ``build`` probes them."""
    make, rows, reason = BAD[name]
    for precision in (torch.float32, torch.float64):
        X = rows().to(precision) if rows is numbers else rows()
        with pytest.raises(ValueError, match=rf"(?s){reason}.*base=Public\(\)"):
            check_rowwise(prepared(make).to(precision), X, 3)
    X, y = rows(), numbers().sum(dim=1)
    start = build(make().eval(), X, seed=0)
    with pytest.raises(ValueError, match=reason):
        DPSGD(epochs=1, noise_multiplier=2.0).fit(start, X, y, seed=1)


def test_dpsgd_trains_what_passes():
    make, rows = GOOD["long short-term memory"]
    X = rows()
    y = torch.randn(len(X), generator=torch.Generator().manual_seed(4))
    start = prepared(make).eval()
    base = DPSGD(epochs=1, noise_multiplier=2.0)
    one, two = (base.fit(start, X, y, seed=1).module.parameters() for _ in range(2))
    assert all(map(torch.equal, one, two))


def test_without_noise_or_with_an_asserted_sensitivity_it_is_not_required():
    X = numbers()
    for base in (Perturbed(1.0, 1.0), DPSGD(epsilon=math.inf, epochs=1)):
        base.fit(between(centred), X, X.sum(dim=1), seed=0)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_rows_are_enough(n):
    check_rowwise(prepared(GOOD["mlp"][0]), numbers(n), 3)
    if n > 1:
        with pytest.raises(ValueError, match=MEET):
            check_rowwise(prepared(lambda: between(centred)), numbers(n), 3)


def test_frozen_and_idle_parameters_are_no_obstacle():
    module = prepared(lambda: between(dropped))
    module.first.weight.requires_grad_(False)
    module.idle = nn.Linear(2, 2)  # DPSGD has its own message for parameters without a gradient
    check_rowwise(module, numbers(), 3)


@pytest.mark.parametrize(
    "drop",
    [nn.Dropout(0.5), nn.AlphaDropout(0.5), lambda x: F.dropout(x, p=0.5), torch.alpha_dropout],
)
def test_no_dropout_is_applied_within_its_context(drop):
    x = torch.ones(50, 3)
    arguments = (0.5, True) if drop is torch.alpha_dropout else ()
    with NoDropout():
        assert torch.equal(drop(x, *arguments), x)
    assert not torch.equal(drop(x, *arguments), x)


# --- why ----------------------------------------------------------------------------------------


def clipped_sum(module: nn.Module, X: Tensor, y: Tensor, clip: float) -> Tensor:
    """Sum of the rows' clipped gradients as DP-SGD takes them: through opacus, in training mode."""
    from opacus import GradSampleModule

    network = copy.deepcopy(module)
    private = GradSampleModule(network, loss_reduction="sum", strict=False)
    (private(X).reshape(-1) - y).square().sum().backward()
    flat = torch.cat([p.grad_sample.flatten(1) for p in network.parameters()], dim=1)
    norms = flat.norm(dim=1, keepdim=True)
    return (flat * (clip / norms).clamp(max=1.0)).sum(dim=0)


def movement(make, clip: float = 0.1) -> float:
    """How far one row less moves the clipped sum, in units of the clipping norm: the largest."""
    module, X = prepared(make), 2 * numbers(12)
    y = X.sum(dim=1)
    whole = clipped_sum(module, X, y, clip)
    rest = [[i for i in range(12) if i != k] for k in range(12)]
    moved = [whole - clipped_sum(module, X[rows], y[rows], clip) for rows in rest]
    return max(float(m.norm()) for m in moved) / clip


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_one_row_moves_the_sum_by_the_clipping_norm_only_if_rows_do_not_meet():
    """What the accountant counts on, and what it would miss."""
    assert movement(GOOD["mlp"][0]) <= 1 + 1e-4
    assert movement(GOOD["layer norm"][0]) <= 1 + 1e-4
    assert movement(lambda: between(centred)) > 1.2
    assert movement(folded) > 1.2
    assert math.isfinite(movement(lambda: between(shifted)))
