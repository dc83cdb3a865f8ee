"""Measure the stability that the paper's theorem asks for, by training the base again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from ..compute import steps, track
from ..data.checks import check_fraction, check_not_negative, check_positive_int
from ..data.inputs import check_features, check_target, to_tensor
from ..losses import find_loss
from ..tangent import linearise
from .lazy import LazyJackknifeRegressor
from .shared import Seeds

# Default ν, in units of the median leave-one-out error.
RELATIVE_NU = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, repr=False)
class StabilityAudit:
    """Estimated η at each ν; pass one pair on as ``certify(eta=, nu=)``.

    Attributes
    ----------
    nu
        The relaxations ν.
    eta
        Share of new rows, over all refits, at which the two models of the paper's condition
        differ by more than ν/2.
    eta_upper
        Clopper-Pearson upper bound for η, each on its own with the given confidence.
    confidence
        Confidence of the bounds.
    refits
        Number of bases trained again.

    """

    nu: NDArray[np.float64]
    eta: NDArray[np.float64]
    eta_upper: NDArray[np.float64]
    confidence: float
    refits: int

    def __repr__(self) -> str:
        head = (
            f"Stability over {self.refits} refits of the base "
            f"({self.confidence:.0%} upper bounds by Clopper-Pearson):"
        )
        lines = [
            f"  nu = {nu:<8.4g} eta about {eta:.3f}, at most {upper:.3f}"
            for nu, eta, upper in zip(self.nu, self.eta, self.eta_upper, strict=True)
        ]
        return "\n".join([head, *lines])


def audit_stability(
    model: LazyJackknifeRegressor,
    X: Any,
    y: Any,
    X_new: Any,
    *,
    refits: int = 20,
    nu: float | Sequence[float] | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
    progress: bool = False,
) -> StabilityAudit:
    """Estimate η(ν) = P(|f_{n,−j}(X_new) − f_{−j,−j}(X_new)| > ν/2) of the paper's Theorem 1.

    The first model moves from the base of all rows, the second from a base trained again without
    row j; both are lazy fits without row j. Each refit starts from the same public weights, has
    noise of its own and runs the mechanism set up for all n rows. What is estimated is η given
    these training rows and this base.

    Parameters
    ----------
    model
        The estimator; it is cloned and fitted to X and y.
    X, y
        Training rows.
    X_new
        Rows like the ones to predict; labels are not needed.
    refits
        Number of left-out rows j to train the base without. The bound counts one random new row
        a refit, so that its trials are independent: with 20 refits it cannot go below .14, for
        .03 it takes 99.
    nu
        One ν or several; None takes multiples of the median leave-one-out error.
    confidence
        Confidence of the upper bounds.
    random_state
        Seed for the choice of rows and for the refits' noise.
    progress
        Whether to show a progress bar.

    """
    check_positive_int("refits", refits)
    check_fraction("confidence", confidence)
    # It is about models that leave out one row, whatever intervals are made of.
    jackknife = clone(model).set_params(construction="plus", widths="constant")
    fitted = jackknife.fit(X, y, X_pool=X_new)
    rows = to_tensor(fitted.scaling_(check_features(X, fitted)))
    target = to_tensor(check_target(y, rows.numpy(), fitted))
    new = to_tensor(fitted.scaling_(check_features(X_new, fitted, name="X_new")))
    rng = np.random.default_rng(random_state)
    positions = rng.integers(len(fitted.loo_.residuals), size=refits)
    with torch.no_grad():
        parts = [new[block] for block in fitted._row_blocks(len(new))]
        with_all = torch.cat([fitted.loo_.predict(part)[1][:, positions] for part in parts])
    differences = np.stack(
        [
            _difference(fitted, rows, target, new, position, with_all[:, k], Seeds.of(rng).base)
            for k, position in track(enumerate(positions.tolist()), "refits", refits, progress)
        ]
    )
    levels = _levels(nu, float(fitted.loo_.residuals.abs().median()))
    exceeds = differences[:, :, None] > levels / 2  # (refits, new rows, levels)
    trials = exceeds[np.arange(refits), rng.integers(len(new), size=refits)]
    upper = clopper_pearson_upper(trials.sum(axis=0), refits, confidence)
    return StabilityAudit(levels, exceeds.mean(axis=(0, 1)), upper, confidence, refits)


def _difference(
    fitted: LazyJackknifeRegressor,
    X: Tensor,
    y: Tensor,
    new: Tensor,
    position: int,
    with_all: Tensor,
    seed: int,
) -> NDArray[np.float64]:
    """|f_{n,−j} − f_{−j,−j}| at the new rows, the first of them given, shape (m,)."""
    method = fitted._base_method()
    learn, left = method.rows(len(y), fitted.seeds_.rows)
    row = left[position]
    base = fitted.base_
    if row in learn:
        kept = torch.from_numpy(learn[learn != row])
        base = method.fit(
            fitted.start_,
            X[kept],
            y[kept],
            seed=seed,
            n=len(learn),
            center=fitted.intercept,
            loss=find_loss(fitted.loss),
        )
    others = torch.from_numpy(np.delete(left, position))
    machine = fitted._machine()
    tangent = linearise(base.module, X, fitted.parameters, machine)
    alone = fitted._lazy_step(fitted.seeds_, len(others)).models(tangent, X[others], y[others]).loo
    parts = [alone.point(new[block]) for block in steps(len(new), alone.rows_at_once)]
    difference = (with_all - torch.cat(parts)).abs()
    # Rounding is no instability: the two models are equal where the base ignores row j.
    rounding = max(1e-9, 100 * machine.epsilon)
    difference[difference <= rounding * with_all.abs().max()] = 0.0
    result: NDArray[np.float64] = difference.double().cpu().numpy()
    return result


def _levels(nu: float | Sequence[float] | None, typical_error: float) -> NDArray[np.float64]:
    if nu is None:
        return np.asarray(RELATIVE_NU) * typical_error
    return np.asarray([check_not_negative("nu", value) for value in np.atleast_1d(nu).tolist()])


def clopper_pearson_upper(
    successes: NDArray[np.intp], trials: int, confidence: float
) -> NDArray[np.float64]:
    """Exact upper confidence bound for a probability."""
    from scipy.stats import beta

    bound = beta.ppf(confidence, successes + 1, np.maximum(trials - successes, 1))
    result: NDArray[np.float64] = np.where(successes == trials, 1.0, bound)
    return result
