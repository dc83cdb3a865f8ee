"""DP-SGD: Poisson sampling, per-example clipping, Gaussian noise, a fixed normaliser."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from ..compute import blocks, track
from ..data.checks import check_between, check_fraction, check_positive_int, check_reasonable
from ..networks import RandomStream, like, row_gradients, seeded, set_training, spawn_seeds
from ..records import Base, PrivacyCurve
from ..sentences import PRIVATE_REMARKS
from .method import EPSILON_ADVICE, BaseMethod, Task, check_steps
from .privacy import SMALLEST_DELTA, calibrate, dpsgd_curve, dpsgd_epsilon

PROBED = 4  # rows after which a network must be as it was before
GRADIENT_BYTES = 2**28  # of rows whose gradients are computed together
ROUNDING = 1e-6  # of a gradient's norm
# What can be accounted for; no setting outside makes sense.
EPSILONS, DELTAS, NOISE_MULTIPLIERS = (1e-6, 500.0), (SMALLEST_DELTA, 1.0), (1e-6, 1e9)
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
        Step size, or the paper's η_t: several, each of which holds for an equal share of the steps.
        None chooses it from public quantities alone (see ``public_step``).
    noise_multiplier
        σ itself, instead of ``epsilon``, which is then ignored. Below .02 nothing is accounted
        for: ε counts as infinite, and the certificate is vacuous.

    Notes
    -----
    Each row is alone in its batch, in a copy of the network that keeps nothing: whatever a network
    does with other rows, a row changes one term. One that remembers rows where no copy reaches is
    refused. The guarantee is an average over seeds: it does not hold for a seed that was chosen by
    looking at results.

    """

    epsilon: float = 0.01
    delta: float = 1e-3
    epochs: int = 10
    batch_size: int = 10
    max_grad_norm: float = 1.0
    lr: float | Sequence[float] | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, float) and self.epsilon == math.inf):
            check_between("epsilon", self.epsilon, EPSILONS, INFINITE)
        check_fraction("delta", self.delta)
        check_between("delta", self.delta, DELTAS, "Rounding errors exceed smaller values")
        check_positive_int("epochs", self.epochs)
        check_positive_int("batch_size", self.batch_size)
        check_reasonable("max_grad_norm", self.max_grad_norm)
        if isinstance(self.lr, Sequence):
            object.__setattr__(self, "lr", tuple(check_reasonable("lr", each) for each in self.lr))
        elif self.lr is not None:
            check_reasonable("lr", self.lr)
        if (sigma := self.noise_multiplier) is not None:
            check_between("noise_multiplier", sigma, NOISE_MULTIPLIERS, NOISE_ADVICE)

    def __repr__(self) -> str:
        settings = asdict(self)
        del settings["noise_multiplier" if self.noise_multiplier is None else "epsilon"]
        return f"DPSGD({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def mechanism(self, n: int) -> Mechanism:
        """What runs on n rows, with σ calibrated."""
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

    D / (G·√T), the best of stochastic descent on a convex loss if the optimum is D away and a
    step's root mean square is G: here D is the norm of the d starting weights, and
    G² = C²·(1 + ν), ν = d·σ²/L², counts a clipped gradient and the noise. Over all T steps
    gradients of one direction add up to T·C, the noise to C·√(νT): the step is divided by 1 + ν/T,
    so that weights stay where they are if noise is all that would move them.
    """
    weights = torch.cat([p.detach().reshape(-1) for p in start.parameters() if p.requires_grad])
    distance = float(weights.double().norm()) or math.sqrt(len(weights))
    noise = len(weights) * (run.noise_multiplier / run.expected_batch) ** 2
    descent = distance / (run.max_grad_norm * math.sqrt((1 + noise) * run.steps))
    return descent / (1 + noise / run.steps)


def poisson_batches(rows: int, run: Mechanism, seed: int) -> Iterator[list[int]]:
    """Rows of each step: every row is drawn with the sampling rate; a batch may be empty."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(run.steps):
        uniform = torch.rand(rows, generator=generator, dtype=torch.float32)
        yield torch.nonzero(uniform < run.sampling_rate)[:, 0].tolist()


def run_dpsgd(
    task: Task,
    run: Mechanism,
    lr: float | Sequence[float],
    batches: Iterable[list[int]] | None = None,
) -> nn.Module:
    """Run exactly ``run.steps`` noisy steps."""
    drawing, noising, dropping = spawn_seeds(task.seed, 3)  # amplification needs them independent
    module = copy.deepcopy(task.start)
    set_training(module)
    inputs, target = like(task.X, module), like(task.y, module)
    free = {name: p for name, p in module.named_parameters() if p.requires_grad}
    try:
        stream = RandomStream.of(module, inputs[:1], dropping)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"network cannot be trained on a row alone ({error}), and private training takes each "
            "row's gradient by itself: use GroupNorm or LayerNorm instead of statistics of the "
            "batch, or base=Public() or Split()"
        ) from error
    if run.noise_multiplier > 0.0:  # without noise nothing is guaranteed
        check_forgets(module, free, inputs, dropping)
    noise = torch.Generator(inputs.device).manual_seed(noising)
    rates = lr if isinstance(lr, Sequence) else (lr,)
    sizes = [p.numel() for p in free.values()]
    deviation = run.noise_multiplier * run.max_grad_norm
    if batches is None:
        batches = poisson_batches(len(inputs), run, drawing)
    shown = track(batches, "private training", run.steps, task.progress)
    for step, batch in enumerate(shown):
        draws = [torch.empty_like(p).normal_(generator=noise).flatten() for p in free.values()]
        total = deviation * torch.cat(draws)
        for rows in blocks(len(batch), total.nbytes, GRADIENT_BYTES):
            X, y = inputs[batch[rows]], target[batch[rows]]
            with stream.fork():
                gradients = row_gradients(module, free, X, y, task.loss.training)
            total += clipped_sum(gradients.values(), run.max_grad_norm)
        with torch.no_grad():
            rate = rates[step * len(rates) // run.steps] / run.expected_batch
            for p, moves in zip(free.values(), total.split(sizes), strict=True):
                p.sub_(moves.view_as(p), alpha=rate)
    return module.eval()


def check_forgets(module: nn.Module, free: Collection[str], X: Tensor, seed: int) -> None:
    """Refuse a network that keeps rows where copies do not reach, such as in a global variable."""

    def seen(rows: Tensor) -> Tensor:
        with seeded(seed, rows.device):
            found = row_gradients(module, free, rows)
        return torch.cat([each.flatten() for each in found.values()])

    before, _, after = seen(X[-1:]), seen(X[:PROBED]), seen(X[-1:])
    room = 2**8 * torch.finfo(before.dtype).eps * float(before.abs().nan_to_num(0.0, 0.0).max())
    if not torch.allclose(before, after, rtol=0.0, atol=room, equal_nan=True):
        raise ValueError(
            "network remembers rows of earlier batches, and no noise is added to what it "
            "remembers, so the base would not be private: keep nothing in forward, or use "
            "base=Public() or Split()"
        )


def clipped_sum(gradients: Iterable[Tensor], most: float) -> Tensor:
    """Sum of the rows' gradients, each scaled to a norm of at most ``most``, as one vector.

    ``gradients`` are (rows, *shape) for each weight. One whose norm overflows counts as 0.
    """
    flat = torch.cat([each.flatten(1) for each in gradients], dim=1)
    norms = flat.norm(dim=1)
    finite = norms.isfinite()
    factors: Tensor = (most / (norms[finite] + ROUNDING)).clamp(max=1.0)
    return factors @ flat[finite]
