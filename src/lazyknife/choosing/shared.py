"""One choice for all models, on rows set aside: network, weights of features and λ.

Nothing here leaves a row out: the rows must be set aside for this choice. Weights and λ come from
gradient descent of the criterion of likelihood.py; where a kernel has no slopes, from a grid. The
likelihood of many weights may explain noise by features that do not matter; errors on other rows
show it, and choose among the networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import call
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compute import PROCESSOR, Machine, track
from ..data.own_scaling import unscaled
from ..networks import KINDS, wide
from ..tangent import WideTangent
from .candidates import wide_tangent
from .likelihood import PairKernel, value_and_gradient, values_of_ridges
from .space import weight_unit

Numbers = NDArray[np.float64]
RIDGES = (1e-6, 1e3)  # λ, in units of the mean of k(x, x)
RIDGE = 0.3  # where λ starts
LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 1e3  # bounds, relative to the first start
LITTLE = 1e-3  # a weight for which terms are powers of it
REVIVED = 0.5  # least weight at a later start, relative to the first
SIZE = 10.0  # of the criterion for the minimiser: its first step is then long enough
TOLERANCE = 2e-4  # relative change of the criterion, and slope, at which a descent ends
MEMORY = 20  # steps from which L-BFGS estimates curvatures
# Features whose mean term is at most UNUSED are left out of the sums; those below one of
# CANNOT_MATTER become weights of 0 if that costs at most LOST of −2 log likelihood.
UNUSED, CANNOT_MATTER, LOST = 1e-6, (1e-2, 1e-3, 1e-4, 1e-5), 0.2
SCALES = tuple(2.0**k for k in range(-3, 3))  # of all weights, where a kernel has no slopes
GRID = 109  # λ between RIDGES there, twelve a decade
STAGES = (300, 1000)  # rows on which all networks are fitted, and the best of them
# Rows of the search for each feature, below which weights of features would overfit, and rows that
# had no part in it, below which they do not decide.
ROWS_EACH, FEWEST_TRIED = 5, 250
MOST_USED = 4000  # rows of the search and of its validation together
FIRST, LATER = 15, 20  # evaluations of a network on the first rows, and on more rows
FINALISTS = 2  # networks that are tried on more rows
SQUARES = 6  # matrices of a likelihood and its gradient
TIMES = tuple(4.0**k for k in range(7))  # λ that are validated, in units of the likelihood's


class Holdout(NamedTuple):
    """Rows set aside for choices, and what is given of these."""

    X: Tensor  # in a frame, shape (m, features); NaN where missing
    y: Tensor  # on any scale, shape (m,)
    nominal: Sequence[bool]  # which features are nominal
    intercept: bool = True  # whether there is an unpenalised intercept
    relevance: bool = True  # whether every feature has a weight of its own, or all a common one
    ridge: float | None = None  # λ; None: chosen too

    def first(self, count: int) -> Holdout:
        """The first rows."""
        return self._replace(X=self.X[:count], y=self.y[:count])

    def tangent(self, network: wide, weights: Sequence[float]) -> WideTangent:
        """Return a network for rows that are in a frame already."""
        frame = unscaled(1, self.X.shape[1], tuple(self.nominal))[0]
        return wide_tangent(network, frame, weights, Machine(self.X.device))


class KernelFit(NamedTuple):
    """What was chosen for a network."""

    weights: tuple[float, ...]  # w_f of each feature, as ``WideTangent`` takes them
    ridge: float
    value: float  # the criterion of likelihood.py; lower is better
    evaluations: int  # number of kernels that were factorised


def fit_kernel_weights(
    network: wide, rows: Holdout, start: KernelFit | None = None, evaluations: int = 40
) -> KernelFit:
    """Choose the weights of a network's features and λ for some rows.

    With a given scale, or where its kernel has no slopes (ReLU), its features have equal weights.
    The search starts from another fit, such as that on fewer rows, and factorises about as many
    kernels as ``evaluations`` says.
    """
    y = rows.y - rows.y.mean() if rows.intercept else rows.y
    spread = float(y.square().mean().sqrt())
    size = spread or 1.0
    rows, kind = rows._replace(y=rows.y / size), KINDS[str(network.kind)]
    if not kind.has_slopes or network.scale is not None:
        found = _best_of_grid(network, rows)
    else:
        criterion = _Criterion(rows, PairKernel(kind, network.prepared(rows.X), rows.nominal))
        criterion.minimise(start, evaluations if spread > 0 else 0)
        found = criterion.best_fit()
    return found._replace(value=found.value + 2 * math.log(size))


@dataclass
class _Criterion:
    """The criterion as a function of a vector, and the best one so far.

    The vector is log w of each feature, or a common one, and log λ where it is not given.
    """

    rows: Holdout
    pairs: PairKernel
    best: tuple[float, Numbers] = (math.inf, np.empty(0))
    evaluations: int = 0
    sizes: Numbers = field(init=False)  # mean of each feature's terms at weight 1
    unit: float = field(init=False)  # weight at the first start: Laplace's kernel sums distances
    free: int = field(init=False)  # weights in the vector

    def __post_init__(self) -> None:
        kind, X = self.pairs.kind, self.pairs.X
        others, count = X.roll(len(X) // 2, 0), X.shape[1]
        terms = [
            float(kind.term(LITTLE, X[:, f], others[:, f], codes).abs().mean())
            for f, codes in enumerate(self.pairs.nominal)
        ]
        self.sizes = np.array(terms) / LITTLE**kind.power
        distances = kind.is_power and kind.power == 1
        self.unit = 1 / max(count, 1) if distances else weight_unit(count)
        self.free = count if self.rows.relevance else min(count, 1)

    def settings(self, vector: Numbers) -> tuple[Numbers, float]:
        """Return the weights, (features,), and λ of a vector."""
        weights = np.broadcast_to(np.exp(vector[: self.free]), self.sizes.shape)
        return weights, math.exp(vector[-1]) if self.rows.ridge is None else self.rows.ridge

    def terms(self, weights: Numbers) -> Numbers:
        """About the mean of each feature's terms over pairs of rows, shape (features,)."""
        found: Numbers = self.sizes * weights**self.pairs.kind.power
        return found

    def at(
        self, weights: Numbers, ridge: float, used: NDArray[np.bool_]
    ) -> tuple[float, Numbers, float]:
        """Return the criterion with some of the features, and its slopes by log w and log λ."""
        self.evaluations += 1
        given, which = self.pairs.X.new_tensor(weights), np.flatnonzero(used).tolist()
        terms = (ridge, self.rows.y, self.rows.intercept, which)
        value, slopes, by_ridge = value_and_gradient(self.pairs, given, *terms)
        return value, slopes.cpu().numpy(), by_ridge

    def __call__(self, vector: Numbers) -> tuple[float, Numbers]:
        """Return the criterion and its gradient, as a minimiser takes them.

        Where the criterion is infinite, it is a value from which a line search turns back.
        """
        weights, ridge = self.settings(vector)
        value, slopes, by_ridge = self.at(weights, ridge, self.terms(weights) > UNUSED)
        if value < self.best[0] or not len(self.best[1]):
            self.best = value, vector.copy()
        slopes = slopes if self.rows.relevance else slopes.sum(keepdims=True)[: self.free]
        gradient = slopes if self.rows.ridge is not None else np.append(slopes, by_ridge)
        if math.isfinite(value):
            return value, gradient
        return (self.best[0] if math.isfinite(self.best[0]) else 0.0) + 10, 0 * gradient

    def minimise(self, start: KernelFit | None, evaluations: int) -> None:
        """Let L-BFGS look for the best vector.

        From equal weights; or from those of another fit, with none too small to grow.
        """
        from scipy.optimize import minimize

        weights, ridge = np.full(len(self.sizes), self.unit), RIDGE
        if start is not None:
            weights, ridge = np.maximum(start.weights, REVIVED * self.unit), start.ridge
        most = min(self.pairs.kind.saturated, self.unit * MOST_WEIGHT)
        first, bounds = weights[: self.free], [(self.unit * LEAST_WEIGHT, most)] * self.free
        if self.rows.ridge is None:
            first, bounds = np.append(first, ridge), [*bounds, RIDGES]
        if evaluations <= 1 or not len(first):
            self(np.log(first))
            return
        options = {"maxfun": evaluations, "ftol": TOLERANCE, "gtol": SIZE * TOLERANCE}
        minimize(
            lambda vector: tuple(SIZE * each for each in self(vector)),
            np.log(first),
            jac=True,
            method="L-BFGS-B",
            bounds=np.log(bounds),
            options={**options, "maxcor": MEMORY},
        )

    def best_fit(self) -> KernelFit:
        """Return the best settings, with weights of 0 for features that cannot matter."""
        value, vector = self.best
        weights, ridge = self.settings(vector)
        if self.rows.relevance:
            terms = self.terms(weights)
            used = terms > UNUSED
            for least in CANNOT_MATTER:
                kept = terms > least
                if kept.sum() == used.sum():
                    break
                found = self.at(weights, ridge, kept)[0]
                if found <= value + LOST / len(self.rows.y):
                    used, value = kept, found
                    break
            weights = np.where(used, weights, 0.0)
        return KernelFit(tuple(weights.tolist()), ridge, value, self.evaluations)


def _best_of_grid(network: wide, rows: Holdout) -> KernelFit:
    """Return the best common weight, unless the scale is given, and λ."""
    y, features = rows.y, rows.X.shape[1]
    low, high = (math.log10(end) for end in RIDGES)
    grid = torch.logspace(low, high, GRID, dtype=y.dtype, device=y.device)
    found = []
    for scale in SCALES if network.scale is None else (network.scale,):
        weights = (weight_unit(features) * scale,) * features
        tangent = rows.tangent(network, weights)
        kernel = tangent.gram(tangent.features(rows.X))
        unit = max(float(kernel.diagonal().mean()), 1e-12)
        ridges = unit * grid if rows.ridge is None else y.new_tensor([rows.ridge])
        values = values_of_ridges(kernel, ridges, y, rows.intercept)
        k = int(values.argmin())
        found.append(KernelFit(weights, float(ridges[k]), float(values[k]), 1))
    return min(found, key=lambda fit: fit.value)._replace(evaluations=len(found))


class NetworkFits(NamedTuple):
    """What was chosen for each network; values for different rows cannot be compared."""

    best: int  # number of the best network
    fits: list[KernelFit]
    gaps: list[float]  # of log-likelihood to the best on the first rows, where all were compared


def choose_network(
    networks: Sequence[wide], rows: Holdout, machine: Machine = PROCESSOR, progress: bool = False
) -> NetworkFits:
    """Choose a network, its weights and λ: by likelihood, and by errors on the other rows."""
    rows = rows.first(MOST_USED)
    (few, many), count = STAGES, len(rows.y)
    many = min(many, 2 * count // 3 if 2 * count // 3 > few else count)
    relevance = rows.relevance and ROWS_EACH * rows.X.shape[1] <= many
    rows = rows._replace(relevance=relevance)
    found = fit_networks(networks, rows, (min(few, count), many), machine, progress)
    if count - many < FEWEST_TRIED:
        return found
    return select_by_validation(networks, found, rows, many, machine)


def fit_networks(
    networks: Sequence[wide],
    rows: Holdout,
    stages: Sequence[int] = STAGES,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> NetworkFits:
    """Choose a network, the weights of its features and λ for some rows.

    Every network is fitted to the first ``stages[0]`` rows, and the best of them go on with the
    first ``stages[1]``, and so on; the machine's threads share the networks.
    """
    found, gaps, order, done = dict[int, KernelFit](), list[float](), list(range(len(networks))), 0
    for count in stages:
        if min(count, len(rows.y)) == done:
            break
        more = LATER if done else FIRST
        done = min(count, len(rows.y))
        part = rows.first(done)
        works = [partial(fit_kernel_weights, networks[k], part, found.get(k), more) for k in order]
        fits = machine.map(call, works, SQUARES * done**2)
        shown = track(fits, "choosing a network", len(order), progress)
        found |= dict(zip(order, shown, strict=True))
        order = sorted(order, key=lambda k: found[k].value)
        least = found[order[0]].value
        gaps = gaps or [(found[k].value - least) * done / 2 for k in range(len(networks))]
        order = order[:FINALISTS]
    return NetworkFits(order[0], [found[k] for k in range(len(networks))], gaps)


def validated(network: wide, fit: KernelFit, rows: Holdout, count: int) -> tuple[float, float]:
    """Fit the first ``count`` rows and predict the others: the least mean square, and its λ.

    A given λ is kept. With an intercept predictions are of y less its mean.
    """
    tangent, y = rows.tangent(network, fit.weights), rows.y
    old, new = tangent.features(rows.X[:count]), tangent.features(rows.X[count:])
    kernel, across = tangent.gram(old), tangent.kernel(new, old)
    center = y[:count].mean() if rows.intercept else 0.0
    targets, errors = (y[:count] - center)[:, None], dict[float, float]()
    for ridge in [fit.ridge * times for times in (TIMES if rows.ridge is None else TIMES[:1])]:
        system = kernel.clone()
        system.diagonal().add_(ridge)
        lower, failed = torch.linalg.cholesky_ex(system)
        predicted = across @ torch.cholesky_solve(targets, lower)[:, 0] + center
        error = float((y[count:] - predicted).square().mean())
        errors[ridge] = error if not int(failed) and math.isfinite(error) else math.inf
    best = min(errors, key=errors.__getitem__)
    return errors[best], best


def select_by_validation(
    networks: Sequence[wide],
    found: NetworkFits,
    rows: Holdout,
    count: int,
    machine: Machine = PROCESSOR,
) -> NetworkFits:
    """The best network on the rows after the first, and all fits with the λ that is best there."""
    pairs = zip(networks, found.fits, strict=True)
    works = [partial(validated, network, fit, rows, count) for network, fit in pairs]
    errors, ridges = zip(*machine.map(call, works, SQUARES * len(rows.y) ** 2), strict=True)
    fits = [fit._replace(ridge=each) for fit, each in zip(found.fits, ridges, strict=True)]
    return NetworkFits(errors.index(min(errors)), fits, found.gaps)
