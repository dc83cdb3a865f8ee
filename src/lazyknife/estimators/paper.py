"""The paper's method, DP-Lazy PI, and the stability that its theorem assumes, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from ..base import DPSGD
from ..compute import steps, track
from ..data.checks import check_fraction, check_not_negative, check_positive_int
from ..data.rows import check_target, to_tensor
from ..data.scaling import distinct_rows
from ..networks import Network, build, mlp
from ..tangent import linearise
from .fit_input import RandomState, Seeds, generator_of
from .lazy import LazyJackknifeRegressor

Numbers = NDArray[np.float64]
# Default ν, in units of the median leave-one-out error.
RELATIVE_NU = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
# What the paper fixes besides the base.
PAPER: dict[str, Any] = {
    "ridge": 10.0,
    "construction": "plus",
    "widths": "constant",
    "readout": "network",
    "fit_intercept": False,
    "scaling": None,
}


def DPLazyPI(
    *,
    network: Network | None = None,
    epsilon: float = 0.01,
    delta: float = 1e-3,
    epochs: int = 10,
    batch_size: int = 10,
    max_grad_norm: float = 1.0,
    lr: float | Sequence[float] | None = None,
    **settings: Any,
) -> LazyJackknifeRegressor:
    """Return the estimator with the settings of the paper's experiments.

    One network is trained by DP-SGD; its leave-one-out models are linearised around it, with
    λ = 10 and without an intercept; jackknife+ takes predictions of the network at their weights.

    Parameters
    ----------
    network
        A ``torch.nn.Module``, or a callable such as ``mlp((64, 64))``, the paper's and here None.
    epsilon, delta, epochs, batch_size, max_grad_norm, lr
        Settings of the ``DPSGD`` base.
    **settings
        Any other setting of ``LazyJackknifeRegressor``, such as ``alpha``, ``device``, ``loss``,
        ``construction`` or ``random_state``, and what the paper fixes: ``ridge=10.0``,
        ``readout="network"``, ``widths="constant"``, ``fit_intercept=False``, ``scaling=None``.

    Returns
    -------
    LazyJackknifeRegressor
        The estimator, not yet fitted.

    Notes
    -----
    These settings suit y with a spread of order one. For other units of y (a warning says so) pass
    ``readout="tangent", fit_intercept=True``, or divide y by a fixed unit.

    """
    base = DPSGD(epsilon, delta, epochs, batch_size, max_grad_norm, lr)
    built_in = {"widths": None} if settings.get("construction") == "full" else {}
    chosen = PAPER | built_in | settings
    return LazyJackknifeRegressor(mlp((64, 64)) if network is None else network, base, **chosen)


@dataclass(frozen=True, repr=False)
class StabilityAudit:
    """Estimated η at each ν; pass one pair to ``certify(eta=, nu=)``.

    Attributes
    ----------
    nu
        The relaxations ν.
    eta
        Share of new rows, over all refits, at which the two models of the paper's condition
        differ by more than ν/2.
    eta_upper
        Upper bounds for η, each with the given confidence on its own: that of Clopper and Pearson,
        or ``eta`` where it is larger.
    eta_in_sample
        The same share at the rows j that were left out, one for each refit: in-sample stability.
    lemma
        2ε + δ under replacing a row, at most 1: by the paper's lemma, in-sample and out-of-sample η
        differ by no more. None if the base is not private, or has seen the covariates.
    confidence
        Confidence of the upper bounds.
    refits
        Number of bases trained again.

    """

    nu: Numbers
    eta: Numbers
    eta_upper: Numbers
    eta_in_sample: Numbers
    lemma: float | None
    confidence: float
    refits: int

    def __repr__(self) -> str:
        head = (
            f"Stability over {self.refits} refits of the base "
            f"({self.confidence:.0%} upper bounds by Clopper-Pearson):"
        )
        lines = [
            f"  nu = {nu:<8.4g} eta about {eta:.3f}, at most {upper:.3f}; in-sample {inside:.3f}"
            for nu, eta, upper, inside in zip(
                self.nu, self.eta, self.eta_upper, self.eta_in_sample, strict=True
            )
        ]
        lemma = "Nothing bounds the difference of in-sample and out-of-sample eta without privacy."
        if self.lemma is not None:
            lemma = (
                f"By the paper's lemma eta and in-sample eta differ by at most {self.lemma:.3f}."
            )
        return "\n".join([head, *lines, lemma])


def audit_stability(
    model: LazyJackknifeRegressor,
    X: Any,
    y: Any,
    X_new: Any,
    *,
    refits: int = 20,
    nu: float | Sequence[float] | None = None,
    confidence: float = 0.95,
    random_state: RandomState = None,
    verbose: bool = False,
) -> StabilityAudit:
    """Estimate η(ν) = P(|f_{n,−j}(X_new) − f_{−j,−j}(X_new)| > ν/2) of the paper's Theorem 1.

    Both models are lazy fits without row j; the base of the first was trained on all rows, that of
    the second without row j. At X_j instead of X_new this is in-sample stability. Every refit
    starts from the same public weights, uses its own seed and runs the mechanism set up for all n
    rows. With ``ridge="auto"`` all of them have the λ that the model of all rows chose. The
    estimates are conditional on these training rows and on the first base.

    Parameters
    ----------
    model
        The estimator; a clone of it is fitted to X and y with ``X_pool=X_new``.
    X, y
        Training rows, shape (n, features), and targets, shape (n,).
    X_new
        Rows like those to predict, shape (m, features); labels are not needed.
    refits
        Number of rows j to leave out, each with a refit of the base. The bound counts one random
        new row for each refit, so that its trials are independent: with 20 refits it is at least
        0.14; a bound of 0.03 takes 99.
    nu
        One ν or several, on the scale of ``target_transform``; None takes multiples of the median
        leave-one-out error.
    confidence
        Confidence of the upper bounds.
    random_state
        Seed of the choice of rows and of the refits.
    verbose
        Whether to show a progress bar.

    """
    check_positive_int("refits", refits)
    check_fraction("confidence", confidence)
    asked = nu if nu is None else [check_not_negative("nu", v) for v in np.atleast_1d(nu).tolist()]
    rng = generator_of(random_state)
    # The audit is about models that leave out one row, whatever the construction.
    jackknife = clone(model).set_params(construction="plus", widths="constant")
    fitted = jackknife.fit(X, y, X_pool=X_new)
    if not hasattr(fitted, "base_"):
        raise ValueError(
            f"model={model!r} has no base to audit, since its models choose among candidates: give "
            "one network, such as network=mlp((64, 64), skip=True)"
        )
    if isinstance(fitted.ridge, str):
        ridge = float(fitted.ridge_[-1])
        fitted = jackknife.set_params(ridge=ridge).fit(X, y, X_pool=X_new)
    rows, new = (to_tensor(fitted.scaling_(fitted._check_new(each))) for each in (X, X_new))
    target = to_tensor(fitted.target_.forward(check_target(y, rows.numpy(), fitted)))
    positions = rng.integers(len(fitted.loo_.residuals), size=refits)
    (with_all,) = fitted._by_blocks(
        lambda part: (fitted.loo_.scaled(part).each[:, positions],), new
    )
    differences = np.stack(
        [
            _difference(fitted, rows, target, new, position, with_all[:, k], Seeds.of(rng).base)
            for k, position in track(enumerate(positions.tolist()), "refits", refits, verbose)
        ]
    )
    typical = float(fitted.loo_.residuals.abs().median())
    levels = typical * np.asarray(RELATIVE_NU) if asked is None else np.asarray(asked)
    exceeds = differences[:, :, None] > levels / 2  # (refits, new rows and row j, levels)
    trials = exceeds[np.arange(refits), rng.integers(len(new), size=refits)]
    eta, inside = exceeds[:, :-1].mean(axis=(0, 1)), exceeds[:, -1].mean(axis=0)
    upper = np.maximum(clopper_pearson_upper(trials.sum(axis=0), refits, confidence), eta)
    dependence, lemma = fitted.base_.dependence, None
    if dependence is not None and not fitted._learns_from_covariates():
        lemma = min(1.0, 2 * dependence.replace_one[0] + dependence.replace_one[1])
    return StabilityAudit(levels, eta, upper, inside, lemma, confidence, refits)


def _difference(
    fitted: LazyJackknifeRegressor,
    X: Tensor,
    y: Tensor,
    new: Tensor,
    position: int,
    with_all: Tensor,
    seed: int,
) -> Numbers:
    """|f_{n,−j} − f_{−j,−j}| at m new rows, the first of them given, and at row j, (m + 1,)."""
    learn, left = fitted._base_method().rows(len(y), fitted.seeds_.rows)
    base = fitted.base_
    if left[position] in learn:
        kept, pool = torch.from_numpy(learn[learn != left[position]]), None
        if fitted._learns_from_covariates():
            pool = to_tensor(distinct_rows(torch.cat([X[kept], new]).numpy()))
        network: Any = fitted.network
        start = build(network, X, fitted.seeds_.start, fitted.n_starts)
        terms = {"seed": seed, "covariates": pool, "n": len(learn)}
        base = fitted._learn(start, X[kept], y[kept], **terms)
    others = torch.from_numpy(np.delete(left, position))
    tangent = linearise(base.module, X, fitted.parameters, fitted._machine())
    step = fitted._lazy_step(fitted.seeds_, "constant")
    alone = step.models(tangent, X[others], y[others])
    own = slice(left[position], left[position] + 1)
    with_all = torch.cat([with_all, y[own].to(with_all) - fitted.loo_.residuals[position]])
    rows = torch.cat([new, X[own]])
    parts = [alone.point(rows[block]) for block in steps(len(rows), alone.rows_at_once)]
    difference = (with_all - torch.cat(parts)).abs()
    # Rounding is not instability: the two models are equal where the base ignores row j.
    difference[difference <= 1e-9 * with_all.abs().max()] = 0.0
    result: Numbers = difference.cpu().numpy()
    return result


def clopper_pearson_upper(successes: NDArray[np.intp], trials: int, confidence: float) -> Numbers:
    """Return the exact upper confidence bound for a probability."""
    from scipy.stats import beta

    bound = beta.ppf(confidence, successes + 1, np.maximum(trials - successes, 1))
    return np.where(successes == trials, 1.0, bound)
