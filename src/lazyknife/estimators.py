"""The estimator: the one place where the stages meet."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .base import DPSGD, BaseMethod
from .certificate import certificate_for
from .checks import check_choice, check_positive
from .lazy import LazyStep
from .machine import Device, Machine, machine_for
from .networks import Network, build
from .readout import READOUTS
from .regressor import Fitted, IntervalRegressor, Seeds
from .scaling import Scaling
from .tangent import Selection, Sketch, linearise, selected


class LazyJackknifeRegressor(IntervalRegressor):
    """Certified prediction intervals for a network, for the price of one training.

    Base weights θ0 are learnt privately (or come from elsewhere), the network is linearised
    there, all n leave-one-out models are ridge regressions on the tangent features in closed
    form, and jackknife+ or one of its relatives makes intervals of them.

    Parameters
    ----------
    network
        None (two hidden layers of 64, ReLU), a ``torch.nn.Module`` (copied with its weights,
        never changed), or a callable ``n_features -> module`` such as ``mlp((64, 64))``.
    base
        How θ0 comes about: ``DPSGD``, ``Perturbed``, ``Public``, ``Split`` or ``Plain``. None is
        ``DPSGD()``.
    ridge
        λ > 0, or ``"auto"``: for every leave-one-out model chosen on its own rows.
    construction
        ``"plus"``, ``"minmax"``, ``"jackknife"`` or ``"naive"``.
    readout
        ``"tangent"``: predictions of the linearised network, which the ridge fits; ``"network"``:
        of the real network at the moved weights, the paper's choice.
    parameters
        Which parameters the lazy step moves: ``"all"``, ``"last"`` (the last layer), a list of
        name patterns such as ``["head.*"]``, or a function of name and parameter.
    intercept
        Whether to fit an unpenalised intercept.
    features
        None, or ``Sketch(dimension)``: a random projection of the tangent features that looks at
        no data, for more rows than an n×n matrix fits. Without it the exact features are used,
        in the primal form when the moved parameters are fewer than the rows.
    transform
        None, ``"symlog"`` (fixed), ``"standardize"`` or a scikit-learn transformer. A fitted one
        wants ``X_pool`` or ``X_unlabeled`` in ``fit``; fitted on X alone it is a leak, and the
        certificate says so.
    alpha
        Level: intervals aim at a coverage of 1 − alpha.
    nu
        Relaxation: widens every interval by ν on both sides.
    device
        Where the lazy step and predictions run: ``"auto"`` (a GPU if there is one), ``"cpu"``,
        ``"cuda"`` or a ``torch.device``. The base is learnt where its network lives.
    precision
        ``"float64"``; ``"mixed"`` solves in float64 and predicts in float32, which halves its time,
        unless a check on a sample says that it is too coarse; ``"float32"`` solves so too, and
        ``"tf32"`` rounds the products of prediction further: the check then warns.
    memory_budget
        Bytes for everything but the matrices that the method cannot do without (docs/speed.md);
        None takes a quarter of what is free on the device.
    random_state
        Seed of all randomness.
    progress
        Whether to show progress bars.

    Attributes
    ----------
    certificate_
        The coverage guarantee; print it.
    base_
        Base weights, their dependence on the data, and what ran.
    ridge_
        λ of each leave-one-out model and, last, of the full one, shape (n + 1,).
    rounding_
        Largest error of low precision seen on a sample of left-out residuals, in units of their
        typical size; None where all is float64.
    loo_
        The leave-one-out models.

    """

    def __init__(
        self,
        network: Network | None = None,
        base: BaseMethod | None = None,
        ridge: float | Literal["auto"] = "auto",
        construction: str = "plus",
        readout: str = "tangent",
        intercept: bool = True,
        parameters: Selection = "all",
        features: Sketch | None = None,
        transform: Any = None,
        alpha: float = 0.1,
        nu: float = 0.0,
        device: Device = "auto",
        precision: str = "float64",
        memory_budget: int | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.network = network
        self.base = base
        self.ridge = ridge
        self.construction = construction
        self.readout = readout
        self.intercept = intercept
        self.parameters = parameters
        self.features = features
        self.transform = transform
        self.alpha = alpha
        self.nu = nu
        self.device = device
        self.precision = precision
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.progress = progress

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("readout", self.readout, READOUTS)
        if isinstance(self.ridge, str):
            check_choice("ridge", self.ridge, ["auto"])
        else:
            check_positive("ridge", self.ridge)
        self._machine()
        if not isinstance(self.features, Sketch | None):
            raise TypeError(f"features={self.features!r}: give None or Sketch(dimension=4096)")
        if self.features is not None and self.readout != "tangent":
            raise ValueError(
                "features=Sketch(...) has no moved network: use readout='tangent' with it"
            )
        if not isinstance(self._base_method(), BaseMethod):
            raise TypeError(
                f"base={self.base!r}: give an instance such as DPSGD(), Public() or Split()"
            )

    def _base_method(self) -> BaseMethod:
        return DPSGD() if self.base is None else self.base

    def _machine(self) -> Machine:
        return machine_for(self.device, self.precision, self.memory_budget)

    def _lazy_step(self, seeds: Seeds) -> LazyStep:
        return LazyStep(
            self.ridge, self.intercept, self.readout, self.features, seeds.base, self.progress
        )

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        learn, left = self._base_method().rows(n, seeds.rows)
        return None if len(left) == n else learn

    def _fit(self, X: Tensor, y: Tensor, scaling: Scaling, seeds: Seeds) -> Fitted:
        method = self._base_method()
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        start = build(self.network, X, seeds.start)
        machine, lazy = self._machine(), self._lazy_step(seeds)
        moved = selected(start, self.parameters).values()
        lazy.check_fits(len(left), sum(p.numel() for p in moved), machine)
        base = method.fit(
            start,
            X[learn],
            y[learn],
            seed=seeds.base,
            center=self.intercept,
            progress=self.progress,
        )
        tangent = linearise(base.module, X, self.parameters, machine)
        models = lazy.models(tangent, X[left], y[left])
        _warn_if_far(models.loo.residuals, models.solved.residuals)
        certificate = certificate_for(
            n=len(left),
            alpha=self.alpha,
            construction=self.construction,
            base=method,
            dependence=base.dependence,
            assumptions=(*self._start_assumptions(), *scaling.assumptions),
            objections=scaling.objections,
            rows=scaling.rows,
        )
        attributes = {
            "base_": base,
            "start_": start,
            "ridge_": models.solved.ridges.cpu().numpy(),
            "rounding_": models.rounding,
            "seeds_": seeds,
        }
        return Fitted(models.loo, certificate, attributes)


def _warn_if_far(read_out: Tensor, linearised: Tensor) -> None:
    """Warn when left-out predictions are off the linearised ones by more than the latter's errors.

    Through the tangent readout they are the same.
    """
    gap = float((read_out - linearised).square().mean().sqrt())
    error = float(linearised.square().mean().sqrt())
    if not gap <= error:
        warnings.warn(
            "the moved networks are far from the linearised ones that the ridge fitted (left-out "
            f"predictions differ by {gap:.3g}, the linearised errors are {error:.3g}), so the "
            "intervals are valid but wide. Use readout='tangent', bring y to a spread of order "
            "one by a fixed unit, or use a larger ridge",
            stacklevel=4,
        )


def DPLazyPI(
    *,
    network: Network | None = None,
    alpha: float = 0.1,
    epsilon: float = 0.01,
    delta: float = 1e-3,
    epochs: int = 10,
    batch_size: int = 10,
    ridge: float = 10.0,
    nu: float = 0.0,
    transform: Any = None,
    random_state: Any = None,
    progress: bool = False,
) -> LazyJackknifeRegressor:
    """Return the estimator with the settings of the paper's experiments.

    A 64-64 ReLU network (or yours), DP-SGD with (ε, δ) = (.01, .001), ridge 10, no intercept,
    predictions of the real network at the moved weights, jackknife+ with ν = 0.
    """
    return LazyJackknifeRegressor(
        network=network,
        base=DPSGD(epsilon=epsilon, delta=delta, epochs=epochs, batch_size=batch_size),
        ridge=ridge,
        construction="plus",
        readout="network",
        intercept=False,
        transform=transform,
        alpha=alpha,
        nu=nu,
        random_state=random_state,
        progress=progress,
    )
