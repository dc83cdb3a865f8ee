"""DP-SGD: Poisson sampling, per-example clipping, Gaussian noise, a fixed normaliser."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from ..compute import track
from ..data.checks import check_between, check_fraction, check_positive_int, check_reasonable
from ..networks import RandomStream, like, outputs, seeded, spawn_seeds
from ..records import Base, PrivacyCurve
from ..sentences import PRIVATE_REMARKS
from .method import EPSILON_ADVICE, BaseMethod, Task, check_steps, load_extra
from .privacy import SMALLEST_DELTA, calibrate, dpsgd_curve, dpsgd_epsilon
from .rowwise import check_rowwise, check_same_buffers, fix_norms, opacus_errors

NOISE_SHARE = 0.1  # of the starting weights' root mean square: the most that noise may displace
# What can be accounted for; no setting outside makes sense.
EPSILONS = (1e-6, 500.0)
DELTAS = (SMALLEST_DELTA, 1.0)
NOISE_MULTIPLIERS = (1e-6, 1e9)
INFINITE = f"{EPSILON_ADVICE}: epsilon=math.inf trains without noise"
NOISE_ADVICE = (
    "Smaller values add almost no noise: use epsilon=math.inf. With larger ones nothing is "
    "learnt: use base=Public()"
)


@dataclass(frozen=True)
class Mechanism:
    """What DP-SGD runs; the accountant gets the same numbers."""

    sampling_rate: float
    steps: int
    expected_batch: float
    noise_multiplier: float
    max_grad_norm: float

    @property
    def accounted(self) -> tuple[float, float, int]:
        return self.noise_multiplier, accounted_rate(self.sampling_rate), self.steps


def accounted_rate(rate: float) -> float:
    """Bound the probability that a uniform number of float32, a multiple of 2⁻²⁴, is below a rate.

    Comparing rounds the rate to float32, by at most 2⁻²⁵, and its multiples up by less than 2⁻²⁴.
    """
    return min(rate + 2**-23, 1.0)


@dataclass(frozen=True, repr=False)
class DPSGD(BaseMethod):
    """Differentially private SGD on the squared error, or on the task's loss.

    Every step draws each row with probability q = batch_size/n, clips each row's gradient to
    ``max_grad_norm``, adds noise of standard deviation σ·max_grad_norm to the sum and divides by
    the fixed q·n. An empty draw is a step of noise alone. Nothing but the sum of the drawn
    gradients depends on the data, so one more row changes one term of one sum.

    Parameters
    ----------
    epsilon, delta
        Privacy under adding or removing one row, ε from 1e-6 to 500 and δ from 1e-10 on. σ is the
        least noise multiplier that gives it; ``epsilon=math.inf`` adds no noise, and nothing is
        guaranteed.
    epochs, batch_size
        T = epochs·⌈1/q⌉ steps of batch_size rows on average.
    max_grad_norm
        Clipping norm C.
    lr
        Step size. None chooses it from public quantities alone (see ``public_step``).
    noise_multiplier
        σ itself, instead of ``epsilon``, which is then ignored. Below .02 nothing is accounted
        for: ε counts as infinite, and the certificate is vacuous.

    Notes
    -----
    The network must treat each row on its own while it is trained; ``fit`` checks that and refuses
    one that does not. The guarantee is an average over seeds: it does not hold for a seed that was
    chosen by looking at results.

    """

    epsilon: float = 0.01
    delta: float = 1e-3
    epochs: int = 10
    batch_size: int = 10
    max_grad_norm: float = 1.0
    lr: float | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, float) and self.epsilon == math.inf):
            check_between("epsilon", self.epsilon, EPSILONS, INFINITE)
        check_fraction("delta", self.delta)
        check_between("delta", self.delta, DELTAS, "Rounding errors exceed smaller values")
        check_positive_int("epochs", self.epochs)
        check_positive_int("batch_size", self.batch_size)
        check_reasonable("max_grad_norm", self.max_grad_norm)
        if self.lr is not None:
            check_reasonable("lr", self.lr)
        if (sigma := self.noise_multiplier) is not None:
            check_between("noise_multiplier", sigma, NOISE_MULTIPLIERS, NOISE_ADVICE)

    def __repr__(self) -> str:
        settings = asdict(self)
        del settings["noise_multiplier" if self.noise_multiplier is None else "epsilon"]
        return f"DPSGD({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def mechanism(self, n: int) -> Mechanism:
        """Return what runs on n rows, with σ calibrated."""
        if self.batch_size > n:
            raise ValueError(
                f"batch_size={self.batch_size} is more than the {n} rows to learn from: "
                f"give DPSGD a batch_size of at most {n}"
            )
        rate = self.batch_size / n
        steps = self.epochs * math.ceil(n / self.batch_size)
        sigma = 0.0 if self.noise_multiplier is None else self.noise_multiplier
        if self.noise_multiplier is None and self.epsilon < math.inf:
            sigma = calibrate(self.epsilon, self.delta, accounted_rate(rate), steps)
        return Mechanism(rate, steps, rate * n, sigma, self.max_grad_norm)

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve | None:
        run = self.mechanism(n)
        return dpsgd_curve(*run.accounted, self.delta) if run.noise_multiplier else None

    def spent(self, n: int) -> float:
        run = self.mechanism(n)
        return dpsgd_epsilon(*run.accounted, self.delta) if run.noise_multiplier else math.inf

    def with_noise(self, level: float) -> DPSGD:
        return replace(self, noise_multiplier=level)

    @property
    def remarks(self) -> tuple[str, ...]:
        without_noise = self.noise_multiplier is None and self.epsilon == math.inf
        return () if without_noise else PRIVATE_REMARKS

    def learn(self, task: Task) -> Base:
        check_steps(self.epochs, self.batch_size, len(task.X))
        run = self.mechanism(task.n)
        lr = self.lr or public_step(task.start, run)
        module = run_dpsgd(task, run, lr)
        details = {"method": "dpsgd", **asdict(run), "lr": lr, "seed": task.seed}
        privacy = {"epsilon": self.spent(task.n), "delta": self.delta}
        return Base(module, self.dependence(task.n), details | privacy)


def public_step(start: nn.Module, run: Mechanism) -> float:
    """Step size from the start and the mechanism alone, never from the data.

    Two limits, the smaller counts. The noise of all steps displaces a weight by lr·σ·C·√T/L in
    standard deviation: at most ``NOISE_SHARE`` of the root mean square of the starting weights.
    And clipped gradients can carry the weights no farther than lr·C·T: at most their own norm.
    """
    weights = torch.cat([p.detach().reshape(-1) for p in start.parameters() if p.requires_grad])
    scale = float(weights.double().square().mean().sqrt()) or 1.0
    clip, steps = run.max_grad_norm, run.steps
    reach_limit = scale * math.sqrt(len(weights)) / (clip * steps)
    if run.noise_multiplier == 0.0:
        return reach_limit
    noise_limit = NOISE_SHARE * scale * run.expected_batch
    return min(noise_limit / (run.noise_multiplier * clip * math.sqrt(steps)), reach_limit)


def poisson_batches(rows: int, run: Mechanism, seed: int) -> Iterator[list[int]]:
    """Rows of each step: every row is drawn with the sampling rate; a batch may be empty."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(run.steps):
        uniform = torch.rand(rows, generator=generator, dtype=torch.float32)
        yield torch.nonzero(uniform < run.sampling_rate)[:, 0].tolist()


def run_dpsgd(
    task: Task, run: Mechanism, lr: float, batches: Iterable[list[int]] | None = None
) -> nn.Module:
    """Run exactly ``run.steps`` noisy steps, with opacus' gradients and optimizer."""
    drawing, noising, dropping = spawn_seeds(task.seed, 3)  # amplification needs them independent
    module = copy.deepcopy(task.start)
    fix_norms(module)
    module.train()
    inputs, target = like(task.X, module), like(task.y, module)
    if run.noise_multiplier > 0.0:  # without noise nothing is guaranteed
        check_rowwise(module, inputs, dropping)
    with seeded(dropping, inputs.device):
        _check_all_used(module, inputs[:1])
    stream = RandomStream.of(module, inputs[: math.ceil(run.expected_batch)], dropping)
    if batches is None:
        batches = poisson_batches(len(inputs), run, drawing)
    # The loss below is a sum. Buffers are compared afterwards, so opacus need not refuse them.
    opacus = load_extra("opacus")
    private = opacus.GradSampleModule(module, loss_reduction="sum", strict=False)
    # It clips each row's gradient, adds noise to the sum, divides by q·n, not by the drawn number.
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=lr),
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=run.max_grad_norm,
        expected_batch_size=run.expected_batch,
        loss_reduction="mean",
        generator=torch.Generator(inputs.device).manual_seed(noising),
    )
    with opacus_errors():
        for batch in track(batches, "private training", run.steps, task.progress):
            optimizer.zero_grad()
            with stream.fork():
                errors = task.loss.training(outputs(private, inputs[batch]), target[batch])
                errors.sum().backward()
            optimizer.step()
    check_same_buffers(task.start, module)
    trained = copy.deepcopy(task.start)  # free of the hooks and fields that opacus leaves behind
    trained.load_state_dict(module.state_dict(), strict=False)  # all but running statistics
    return trained.eval()


def _check_all_used(module: nn.Module, row: Tensor) -> None:
    """Refuse a network with free parameters that have no gradient to clip."""
    free = {name: p for name, p in module.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(
        outputs(module, row).sum(), list(free.values()), allow_unused=True
    )
    unused = [name for name, g in zip(free, gradients, strict=True) if g is None]
    if unused:
        raise ValueError(
            f"network's parameters {unused} take no part in its output, so DPSGD cannot train "
            "them: freeze them with requires_grad_(False)"
        )
