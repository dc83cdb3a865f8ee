"""Perturbed: plain training plus noise of the asserted law, and its total variation."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from descents import rows, start_network, weights
from lazyknife.base import Perturbed, Plain
from lazyknife.base.perturbed import (
    l1_noise,
    l1_total_variation,
    l2_noise,
    l2_total_variation,
    pure_curve,
)


def test_l2_noise_has_a_gamma_radius():
    """Kolmogorov-Smirnov and mean, false alarms at 1e-6 each; wrong laws are rejected."""
    size, scale, draws = 40, 0.5 / 2.0, 4000
    generator = torch.Generator().manual_seed(1)
    found = np.array([float(l2_noise(size, scale, generator).norm()) for _ in range(draws)])
    assert abs(found.mean() - size * scale) < 4.9 * scale * math.sqrt(size / draws)
    assert stats.kstest(found, stats.gamma(size, scale=scale).cdf).pvalue > 1e-6
    assert stats.kstest(found, stats.gamma(size, scale=1.05 * scale).cdf).pvalue < 1e-6
    assert stats.kstest(found, stats.gamma(size + 1, scale=scale).cdf).pvalue < 1e-6


def test_l2_noise_has_a_uniform_direction():
    """The squared first cosine is Beta(1/2, (M−1)/2) and signs are even; false alarms at 1e-6."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.stack([l2_noise(5, 1.0, generator) for _ in range(4000)]).numpy()
    cosine = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    for k in (0, 4):
        assert stats.kstest(cosine[:, k] ** 2, stats.beta(0.5, 2).cdf).pvalue > 1e-6
        assert stats.binomtest(int((cosine[:, k] > 0).sum()), 4000).pvalue > 1e-6


def test_l1_noise_is_laplace():
    """Kolmogorov-Smirnov, a false alarm at 1e-6; a scale one tenth off is rejected."""
    noise = l1_noise(20_000, 0.3, torch.Generator().manual_seed(3)).numpy()
    assert stats.kstest(noise, stats.laplace(scale=0.3).cdf).pvalue > 1e-6
    assert stats.kstest(noise, stats.laplace(scale=0.33).cdf).pvalue < 1e-6
    assert stats.kstest(noise, stats.norm(scale=0.3 * math.sqrt(2)).cdf).pvalue < 1e-6


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_it_is_plain_training_plus_noise_of_scale_s_over_epsilon(norm):
    """The radius has mean M·s/ε (l2), the entries mean size s/ε (l1); false alarms at 1e-6."""
    start, (X, y) = start_network(), rows()
    base = Perturbed(sensitivity=0.4, epsilon=2.0, norm=norm, training=Plain(epochs=1))
    size, draws, scale = len(weights(start)), 60, 0.2
    noise = torch.stack(
        [
            weights(base.fit(start, X, y, seed=seed).module)
            - weights(base.training.fit(start, X, y, seed=seed).module)
            for seed in range(draws)
        ]
    ).numpy()
    found = np.linalg.norm(noise, axis=1) if norm == "l2" else np.abs(noise)
    law = stats.gamma(size * draws, scale=scale)  # either is a sum of size·draws exponentials
    assert law.ppf(5e-7) <= found.sum() <= law.isf(5e-7)
    assert not law.ppf(5e-7) <= 1.2 * found.sum() <= law.isf(5e-7)


def test_it_knows_the_number_of_its_weights_its_curve_and_its_assumption():
    base = Perturbed(sensitivity=0.25, epsilon=1.0)
    start = start_network()
    start[0].weight.requires_grad_(False)
    fitted = base.fit(start, *rows(), seed=0)
    trained = sum(p.numel() for p in start.parameters() if p.requires_grad)
    assert fitted.details["n_parameters"] == trained
    assert fitted.dependence == base.dependence(30, trained)
    assert base.dependence(100, 50) == pure_curve(1.0, l2_total_variation(1.0, 50))
    assert base.dependence(100) == pure_curve(1.0, math.tanh(0.5))
    assert base.dependence(100, 50).replace_one == (2.0, 0.0)
    l1 = Perturbed(sensitivity=2.0, epsilon=1.0, norm="l1")
    assert l1.dependence(100, 50) == pure_curve(1.0, l1_total_variation(1.0))
    (assumption,) = base.assumptions
    for word in ("0.25", "l2", "not checked"):
        assert word in assumption
    assert base.spent(10) == 1.0
    assert base.with_noise(4.0).epsilon == 0.25


def first_coordinate_density(z: float, dimension: int) -> float:
    """Density of ξ₁ where that of ξ is ∝ exp(−‖ξ‖₂): z^{M/2} K_{M/2}(z) up to a constant."""
    half = dimension / 2
    log_density = half * math.log(z / 2) + math.log(special.kve(half, z)) - z
    return math.exp(log_density - special.gammaln(half + 0.5)) / math.sqrt(math.pi)


@pytest.mark.parametrize(
    ("dimension", "digits"), [(2, 7), (3, 7), (4, 7), (5, 7), (10, 5), (50, 5)]
)
def test_l2_total_variation_is_the_integral_of_the_first_coordinates_density(dimension, digits):
    """P(|ξ₁| ≤ s/2), below the bound of every private output and rising with ε."""
    last = 0.0
    for epsilon in np.geomspace(1e-3, 30, 25) if digits == 7 else (0.01, 1.0, 10.0):
        found = l2_total_variation(float(epsilon), dimension)
        half = integrate.quad(
            first_coordinate_density, 0, epsilon / 2, args=(dimension,), epsabs=1e-14
        )
        assert found == pytest.approx(2 * half[0], rel=10.0**-digits)
        assert last < found <= math.tanh(epsilon / 2)
        last = found


def test_l2_total_variation_in_one_dimension_in_many_and_in_an_unknown_number():
    for epsilon in (0.01, 1.0, 5.0):
        assert l2_total_variation(epsilon, 1) == pytest.approx(1 - math.exp(-epsilon / 2))
    assert l2_total_variation(1.0, 5313) == pytest.approx(0.0055, abs=5e-5)
    assert l2_total_variation(1.0, None) == math.tanh(0.5)
    by_dimension = [l2_total_variation(1.0, m) for m in (None, 1, 2, 10, 100, 5313, 10**6)]
    assert by_dimension == sorted(by_dimension, reverse=True)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_l1_bound_is_exact_for_one_coordinate(epsilon):
    def excess(x):
        p, q = (epsilon / 2 * math.exp(-epsilon * abs(x - c)) for c in (0, 1))
        return max(p - q, 0.0)

    exact = integrate.quad(excess, -60 / epsilon, 0.5, points=[0.0], limit=200)[0]
    assert l1_total_variation(epsilon) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.7, 0.2, 0.1), (0.1,) * 10])
def test_l1_bound_is_never_exceeded_when_several_coordinates_share_the_shift(shares):
    """A false alarm has probability below 1e-6; a bound a tenth lower is refuted."""
    noise = np.random.default_rng(3).laplace(size=(100_000, len(shares)))
    log_ratio = (np.abs(noise) - np.abs(noise - np.array(shares))).sum(axis=1)
    value = np.maximum(-np.expm1(log_ratio), 0)
    error = value.std() / math.sqrt(len(value))
    assert value.mean() <= l1_total_variation(1.0) + 4.8 * error
    if shares == (1.0,):
        assert value.mean() > 0.9 * l1_total_variation(1.0) + 4.8 * error
