"""Perturbed: ordinary training plus Laplace noise on the weights (the paper's appendix)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ..data.checks import check_between, check_choice, check_reasonable
from ..networks import spawn_seeds
from ..records import Base, PrivacyCurve
from ..sentences import PRIVATE_REMARKS, SENSITIVITY
from .method import EPSILON_ADVICE, BaseMethod, Task, check_training
from .plain import Plain
from .privacy import LARGEST_EPSILON

EPSILONS = (1e-12, 500.0)


@dataclass(frozen=True)
class Perturbed(BaseMethod):
    """Weights θ̂ + ξ with density of ξ proportional to exp(−ε‖ξ‖/s).

    Parameters
    ----------
    sensitivity
        s, the most that adding or removing one row can move the trained weights in the norm. It
        cannot be checked; the certificate lists it among its assumptions.
    epsilon
        Privacy under adding or removing one row, from 1e-12 to 500.
    norm
        ``"l2"`` or ``"l1"`` (independent Laplace noise).
    training
        How θ̂ is trained.

    Notes
    -----
    The guarantee is an average over seeds, not for one that was chosen by looking at results.

    """

    sensitivity: float
    epsilon: float
    norm: Literal["l2", "l1"] = "l2"
    training: Plain = field(default_factory=Plain)
    remarks = PRIVATE_REMARKS

    def __post_init__(self) -> None:
        check_reasonable("sensitivity", self.sensitivity)
        check_between("epsilon", self.epsilon, EPSILONS, EPSILON_ADVICE)
        check_choice("norm", self.norm, NORMS)
        check_training(self.training)

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        """ε, and the total variation of the noise; for l2 it shrinks with the dimension."""
        variation = NORMS[self.norm].total_variation(self.epsilon, n_parameters)
        return pure_curve(self.epsilon, variation)

    def spent(self, n: int) -> float:
        return self.epsilon

    def with_noise(self, level: float) -> Perturbed:
        return replace(self, epsilon=1 / level)

    def learn(self, task: Task) -> Base:
        training, noising = spawn_seeds(task.seed, 2)
        module = self.training.learn(replace(task, seed=training)).module
        start = dict(task.start.named_buffers())
        changed = [k for k, v in module.named_buffers() if k in start and not v.equal(start[k])]
        if changed:
            raise ValueError(
                f"network changes its buffers {changed} while it is trained, and no noise is added "
                "to them, so the base would not be private: switch the statistics off (for "
                "instance track_running_stats=False), or use base=Public() or Split()"
            )
        moved = [p for p in module.parameters() if p.requires_grad]
        weights = parameters_to_vector(moved).detach()
        generator = torch.Generator().manual_seed(noising)
        noise = NORMS[self.norm].draw(len(weights), self.sensitivity / self.epsilon, generator)
        vector_to_parameters(weights + noise.to(weights), moved)
        details = {"method": "perturbed", "n_parameters": len(weights), "seed": task.seed}
        return Base(module, self.dependence(task.n, len(weights)), details)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (SENSITIVITY.format(sensitivity=self.sensitivity, norm=self.norm),)


def l1_noise(size: int, scale: float, generator: torch.Generator) -> Tensor:
    """Independent Laplace noise: a difference of two exponentials."""
    draws = torch.empty(2, size, dtype=torch.float64).exponential_(generator=generator)
    return scale * (draws[0] - draws[1])


def l2_noise(size: int, scale: float, generator: torch.Generator) -> Tensor:
    """Noise with density ∝ exp(−‖ξ‖₂/scale): a Gamma(size) radius in a uniform direction."""
    direction = torch.randn(size, dtype=torch.float64, generator=generator)
    # A Gamma variate with an integer shape is a sum of exponentials.
    radius = torch.empty(size, dtype=torch.float64).exponential_(generator=generator).sum()
    return direction * (scale * float(radius) / float(direction.norm()))


def pure_curve(epsilon: float, total_variation: float) -> PrivacyCurve:
    """Return the curve of an ε-private output whose total variation is known too.

    δ(ε') is convex in e^ε', so the line through its two known points bounds it from above, and
    a certificate, linear in e^ε', is best at one of the two.
    """
    if epsilon > LARGEST_EPSILON:
        return PrivacyCurve((0.0,), (total_variation,), (2 * epsilon, 0.0))
    return PrivacyCurve((0.0, epsilon), (total_variation, 0.0), (2 * epsilon, 0.0))


def l1_total_variation(epsilon: float, n_parameters: int | None = None) -> float:
    """Bound the total variation of independent Laplace noise for an l1 sensitivity.

    1 − τ is the integral of the smaller density, which for independent coordinates is at least
    the product of theirs: exp(−ε s_i / 2s) for coordinate i, shifted by s_i. It holds in every
    dimension.
    """
    return -math.expm1(-epsilon / 2)


def l2_total_variation(epsilon: float, n_parameters: int | None) -> float:
    """Total variation of noise with density ∝ exp(−ε‖ξ‖₂/s) in M dimensions under a shift by s.

    It is P(|ξ₁| ≤ s/2), with ‖ξ‖ ~ Gamma(M, s/ε) in a uniform direction. Without M (None) the
    bound tanh(ε/2), which holds for every ε-private output, is returned.
    """
    from scipy import integrate, special, stats

    if n_parameters is None:
        return math.tanh(epsilon / 2)
    # Given V ~ Gamma((M + 1)/2, 2(s/ε)²), ξ is normal with variance V: a smooth integral in log V.
    shape = (n_parameters + 1) / 2
    law = stats.gamma(shape)
    constant = float(special.gammaln(shape))

    def within(log_v: float) -> float:
        density = math.exp(shape * log_v - math.exp(log_v) - constant)
        return math.erf(epsilon / 4 * math.exp(-log_v / 2)) * density

    ends = math.log(law.ppf(1e-18)), math.log(law.isf(1e-18))
    return float(integrate.quad(within, *ends, epsabs=0.0, epsrel=1e-9, limit=400)[0])


class Norm(NamedTuple):
    """Noise for a sensitivity in a norm, and its total variation by ε and dimension."""

    draw: Callable[[int, float, torch.Generator], Tensor]
    total_variation: Callable[[float, int | None], float]


NORMS = {"l2": Norm(l2_noise, l2_total_variation), "l1": Norm(l1_noise, l1_total_variation)}
