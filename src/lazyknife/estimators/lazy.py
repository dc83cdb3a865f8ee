"""The estimator: the one place where the stages meet."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base import DPSGD, BaseMethod, Public
from ..certificate import Certificate, certificate_for
from ..compute import Device, Machine, machine_for
from ..data.checks import check_choice, check_positive, check_positive_int
from ..data.scaling import unlike_columns
from ..intervals import CONSTRUCTIONS
from ..losses import SQUARED, Loss, find_loss
from ..networks import Network, build, mlp
from ..solve.guard import rounding_objections, rounding_share
from ..solve.lazy import LazyStep
from ..solve.readout import READOUTS
from ..tangent import Selection, Sketch, linearise, selected
from .shared import Fitted, Given, IntervalRegressor, Seeds

# Beyond so many rows the noise, which takes half as long again as all else, is not learnt unasked.
NOISE_ROWS = 5000
FEWEST_FOR_NOISE = 4  # with two rows left out two are left to learn from


class LazyJackknifeRegressor(IntervalRegressor):
    """Certified prediction intervals for a network, for the price of one training.

    Base weights θ0 are learnt privately (or come from elsewhere), the network is linearised
    there, all n leave-one-out models are ridge regressions on the tangent features in closed
    form, and jackknife+ or one of its relatives makes intervals of them.

    Parameters
    ----------
    network
        None (``mlp((64, 64), skip=True)``: two hidden layers of 64, ReLU, and a linear function of
        the inputs beside them), a ``torch.nn.Module`` (copied with its weights,
        never changed), or a callable ``n_features -> module`` such as ``mlp((64, 64))``.
    base
        How θ0 comes about: ``DPSGD``, ``Perturbed``, ``Public``, ``Pretrained``, ``Split`` or
        ``Plain``. None is ``Public()``.
    ridge
        λ > 0, or ``"auto"``: for every model chosen on its own rows, without a leak.
    construction
        ``"plus"`` (jackknife+) certifies 1 − 2·alpha less the base's total variation; ``"minmax"``
        and ``"full"`` (exact full conformal of the linearised network) certify 1 − alpha less it;
        ``"cv+"`` leaves folds out instead of rows; ``"jackknife"`` and ``"naive"`` certify nothing.
    widths
        What errors are divided by, and widths multiplied: ``"constant"`` by nothing; ``"leverage"``
        by how far a row is from the others; ``"noise"`` by how large errors around it are.
        None takes ``"noise"`` for plus and minmax (``"constant"`` beyond 5,000 rows, with a
        ``Sketch`` and with another loss); full conformal has ``"leverage"`` built in.
    folds
        Number of folds of ``"cv+"``; its theorem wants n to be a multiple of it.
    readout
        ``"tangent"``: predictions of the linearised network, which the ridge fits; ``"network"``:
        of the real network at the moved weights, the paper's choice.
    parameters
        Which parameters the lazy step moves: ``"all"``, ``"last"`` (the last layer), a list of
        name patterns such as ``["head.*"]``, or a function of name and parameter.
    intercept
        Whether to fit an unpenalised intercept.
    starts
        The network is the mean of so many networks, each with a random start of its own.
    loss
        What the lazy step, and the base's training, minimise: ``"squared"``, ``"huber"``,
        ``"logistic"`` (y of 0 and 1), ``"poisson"`` (counts), or such as ``Huber(delta=2.0)``. The
        last two predict the mean of y through their link.
    features
        None, or ``Sketch(dimension)``: a random projection of the tangent features that looks at
        no data, for more rows than an n×n matrix fits. Without it the exact features are used,
        in the primal form when the moved parameters are fewer than the rows.
    scaling
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
        λ of each model and, last, of the full one, shape (n + 1,), or (folds + 1,); for full
        conformal of the full one alone.
    widths_
        The kind of widths that was used.
    rounding_
        By how much rounding may widen intervals at a typical row, in units of the residual that
        sets their ends. Above .05 there is no certificate.
    loo_
        The leave-one-out models.

    """

    _constructions = tuple(CONSTRUCTIONS)

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
        widths: str | None = None,
        folds: int = 10,
        starts: int = 1,
        loss: str | Loss = "squared",
        scaling: Any = None,
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
        self.widths = widths
        self.folds = folds
        self.starts = starts
        self.loss = loss
        self.scaling = scaling
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
        check_positive_int("starts", self.starts)
        if check_positive_int("folds", self.folds) < 2:
            raise ValueError(f"folds={self.folds}: give at least 2")
        self._check_intervals()
        if not isinstance(self._base_method(), BaseMethod):
            raise TypeError(
                f"base={self.base!r}: give an instance such as DPSGD(), Public() or Split()"
            )

    def _check_intervals(self) -> None:
        """Refuse constructions, scores and losses that do not go together."""
        score, scores = self.widths, CONSTRUCTIONS[self.construction].widths
        if score is not None and score not in scores:
            raise ValueError(
                f"widths={score!r} does not go with construction={self.construction!r}: choose "
                f"from {list(scores)}, or None"
            )
        if self.construction == "full" and self.readout != "tangent":
            raise ValueError(
                f"construction='full' is exact for the linearised network alone: use "
                f"readout='tangent', not {self.readout!r}"
            )
        if find_loss(self.loss) != SQUARED:
            if self.construction in ("full", "cv+"):
                raise ValueError(
                    f"construction={self.construction!r} has a closed form for the squared loss "
                    "alone: use 'plus' or 'minmax' with another loss"
                )
            if score not in (None, "constant") or self.features is not None:
                raise ValueError(
                    f"loss={self.loss!r} goes with widths='constant' and features=None alone"
                )
        if score == "noise" and self.features is not None:
            raise ValueError(
                "widths='noise' needs the kernel of all rows: use widths='leverage' or 'constant' "
                "with features=Sketch(...)"
            )

    def _widths_for(self, n: int) -> str:
        """The score to use for n rows: what was asked for, or what serves best at its cost."""
        asked = self.widths
        if asked is not None:
            return asked
        own = CONSTRUCTIONS[self.construction].widths[0]
        if own != "noise":
            return own
        fits = FEWEST_FOR_NOISE <= n <= NOISE_ROWS and self.features is None
        return own if fits and find_loss(self.loss) == SQUARED else "constant"

    def _base_method(self) -> BaseMethod:
        return Public() if self.base is None else self.base

    def _network(self) -> Network:
        return mlp(skip=True) if self.network is None else self.network

    def _machine(self) -> Machine:
        return machine_for(self.device, self.precision, self.memory_budget)

    def _lazy_step(self, seeds: Seeds, n: int) -> LazyStep:
        # The mean of networks has the mean of their kernels divided by their number.
        ridge = self.ridge if isinstance(self.ridge, str) else self.ridge / self.starts
        return LazyStep(
            ridge,
            self.intercept,
            self.readout,
            self.construction,
            self._widths_for(n),
            self.folds,
            find_loss(self.loss),
            self.features,
            seeds.lazy,
            self.alpha,
            self.progress,
        )

    def _learns_from_covariates(self) -> bool:
        return self._base_method().uses_covariates

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        learn, left = self._base_method().rows(n, seeds.rows)
        return None if len(left) == n else learn

    def _fit(self, given: Given) -> Fitted:
        X, y, scaling, seeds, covariates, names = given
        method, loss = self._base_method(), find_loss(self.loss)
        loss.check(y)
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        n = len(left)
        if self.construction == "cv+" and self.folds > n:
            raise ValueError(f"folds={self.folds} is more than the {n} rows: give at most {n}")
        if self.widths == "noise" and n < FEWEST_FOR_NOISE:
            raise ValueError(
                f"widths='noise' needs at least {FEWEST_FOR_NOISE} rows, not {n}: give more rows, "
                "or widths='constant'"
            )
        start = build(self._network(), X, seeds.start, self.starts)
        machine, lazy = self._machine(), self._lazy_step(seeds, n)
        moved = selected(start, self.parameters).values()
        lazy.check_fits(n, sum(p.numel() for p in moved), machine)
        base = method.fit(
            start,
            X[learn],
            y[learn],
            seed=seeds.base,
            center=self.intercept,
            progress=self.progress,
            covariates=covariates,
            loss=loss,
        )
        tangent = linearise(base.module, X, self.parameters, machine)
        models = lazy.models(tangent, X[left], y[left])
        _warn_if_far(models.loo.residuals, models.solved.residuals)
        certify = partial(
            _certificate,
            n=n,
            construction=self.construction,
            base=method,
            dependence=base.dependence,
            folds=self.folds,
            assumptions=(*self._start_assumptions(), *scaling.assumptions),
            objections=scaling.objections,
            rows=scaling.rows,
            new_rows=scaling.new_rows,
            loo=models.loo,
            size=float(y.abs().max()),
            columns=unlike_columns(X.numpy(), names),
        )
        given_to = ("loo", "construction", "size", "columns")
        terms = {name: certify.keywords[name] for name in given_to}
        for objection in rounding_objections(alpha=self.alpha, **terms):
            warnings.warn(f"no coverage is guaranteed. {objection}", stacklevel=4)
        attributes = {
            "base_": base,
            "start_": start,
            "ridge_": self.starts * models.solved.ridges.cpu().numpy(),
            "widths_": lazy.widths,
            "rounding_": rounding_share(models.loo, self.alpha, float(y.abs().max())),
            "seeds_": seeds,
        }
        return Fitted(models.loo, certify, attributes)


def _certificate(
    *,
    alpha: float,
    loo: Any,
    size: float,
    columns: str,
    construction: str,
    objections: tuple[str, ...],
    **terms: Any,
) -> Certificate:
    """Return the certificate of a level, unless rounding objects."""
    rounded = rounding_objections(loo, construction, alpha, size, columns)
    return certificate_for(
        alpha=alpha, construction=construction, objections=(*objections, *rounded), **terms
    )


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
    scaling: Any = None,
    random_state: Any = None,
    progress: bool = False,
) -> LazyJackknifeRegressor:
    """Return the estimator with the settings of the paper's experiments.

    A 64-64 ReLU network (or yours), DP-SGD with (ε, δ) = (.01, .001), ridge 10, no intercept,
    predictions of the real network at the moved weights, jackknife+ with ν = 0.
    """
    return LazyJackknifeRegressor(
        network=mlp((64, 64)) if network is None else network,
        base=DPSGD(epsilon=epsilon, delta=delta, epochs=epochs, batch_size=batch_size),
        ridge=ridge,
        construction="plus",
        widths="constant",
        readout="network",
        intercept=False,
        scaling=scaling,
        alpha=alpha,
        nu=nu,
        random_state=random_state,
        progress=progress,
    )
