"""The estimator: the one place where the stages meet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..base import BaseMethod, Public, check_base
from ..certificate import Certifier
from ..compute import Device, Machine, machine_for
from ..data.checks import check_folds, check_positive, check_positive_int
from ..data.scaling import unlike_columns
from ..intervals import CONSTRUCTIONS
from ..intervals.rounded import rounding_share
from ..losses import Loss, find_loss
from ..networks import CANDIDATES, Network, build, mlp, wide
from ..records import Base, PrivacyCurve, RoundedModels, composed
from ..tangent import EXACT, FeatureMap, Selection, linearise, selected
from .candidates import (
    MOST_ROWS,
    Candidate,
    finite_candidate,
    listed_networks,
    wide_candidate,
)
from .choices import Choices
from .choosing import ChoosingStep
from .records import Fitted, Given, Seeds
from .shared import IntervalRegressor
from .step import LazyStep
from .warn import warn_if_far


@dataclass(eq=False, repr=False)
class LazyJackknifeRegressor(IntervalRegressor):
    """Certified prediction intervals for a neural network, at the cost of training it once.

    The network is linearised at base weights θ0 that are public or were learnt privately. All n
    leave-one-out models are then ridge regressions on its tangent features, in closed form, and
    jackknife+ or another construction turns them into intervals.

    Parameters
    ----------
    network
        None (``mlp((64, 64), skip=True)``: two hidden layers of 64 ReLU units and a linear function
        of the inputs beside them), a ``torch.nn.Module`` (copied with its weights, never changed),
        or a callable ``n_features -> module`` such as ``mlp((64, 64))``.
    base
        How the base weights θ0 are obtained: ``Public``, ``Split``, ``DPSGD``, ``Perturbed``,
        ``Pretrained`` or ``Plain``. None is ``Public()``: the network's own starting weights.
    ridge
        λ > 0, or ``"auto"``: every leave-one-out model chooses λ on its own rows, without a leak.
    construction
        ``"plus"`` (jackknife+) certifies 1 − 2·alpha − τ, where τ is the base's total variation;
        ``"minmax"`` and ``"full"`` (exact full conformal) certify 1 − alpha − τ; ``"cv+"`` leaves
        folds out instead of rows; ``"jackknife"`` and ``"naive"`` certify nothing.
    readout
        ``"tangent"``: predictions of the linearised network, which the ridge fits; ``"network"``:
        of the real network at the moved weights, the paper's choice.
    intercept
        Whether to fit an unpenalised intercept.
    parameters
        Which parameters the lazy step moves: ``"all"``, ``"last"`` (the last layer), a list of
        name patterns such as ``["head.*"]``, or a function of name and parameter.
    features
        None, or ``Sketch(dimension)``: a random projection of the tangent features, independent of
        the data, for when the n×n kernel does not fit in memory. Without it the exact features are
        used, in the primal form if there are fewer moved parameters than rows.
    widths
        What the width of an interval depends on: ``"constant"``, nothing; ``"leverage"``, the
        distance of the row from the training rows; ``"noise"``, the size of the errors around it.
        None is ``"noise"`` for plus and minmax (``"constant"`` beyond 5,000 rows, with a ``Sketch``
        and with another loss); full conformal has ``"leverage"`` built in.
    folds
        Number of folds of ``"cv+"``; its theorem requires n to be divisible by it.
    starts
        Number of networks, each with its own random start, whose mean is used as the network.
    loss
        Loss of the lazy step and of the base's training: ``"squared"``, ``"huber"``,
        ``"logistic"`` (y of 0 and 1), ``"poisson"`` (counts), or an instance such as
        ``Huber(delta=2.0)``. The last two predict the mean of y through their link.
    scaling
        None, ``"symlog"`` (fixed), ``"standardize"`` or a scikit-learn transformer. A fitted one
        requires ``X_pool`` or ``X_unlabeled`` in ``fit``; fitted on X alone it is a leak, and the
        certificate says so.
    alpha
        Level: intervals aim at a coverage of 1 − alpha.
    nu
        Relaxation: widens every interval by ν on both sides.
    device
        Where the lazy step and predictions run: ``"auto"`` (a GPU if there is one), ``"cpu"``,
        ``"cuda"`` or a ``torch.device``. The base is trained on the device of its network.
    precision
        ``"float64"``; ``"mixed"`` solves in float64 and predicts in float32, in half the time,
        unless a check on a sample finds it too coarse; ``"float32"`` also solves in float32, and
        ``"tf32"`` rounds further: what is too coarse is solved again in float64 if possible.
    memory_budget
        Bytes for everything but the matrices that the method requires (docs/speed.md); None takes a
        quarter of what is free on the device.
    random_state
        Seed of all randomness.
    progress
        Whether to show progress bars.

    Attributes
    ----------
    certificate_
        The coverage guarantee; print it.
    base_
        Base weights, their dependence on the data, and how they were obtained.
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

    network: Network | wide | Sequence[Network | wide] | None = None
    base: BaseMethod | None = None
    ridge: float | Literal["auto"] = "auto"
    construction: str = "plus"
    readout: str = "tangent"
    intercept: bool = True
    parameters: Selection = "all"
    features: FeatureMap | None = None
    widths: str | None = None
    relevance: Literal["auto"] | None = "auto"
    folds: int = 10
    starts: int = 1
    loss: str | Loss = "squared"
    scaling: Any = "auto"
    alpha: float = 0.1
    nu: float = 0.0
    device: Device = "auto"
    precision: str = "float64"
    memory_budget: int | None = None
    random_state: Any = None
    progress: bool = False

    def _constructions(self) -> list[str]:
        return list(CONSTRUCTIONS)

    def _check_settings(self) -> None:
        super()._check_settings()
        if isinstance(self.ridge, str) and self.ridge != "auto":
            raise ValueError(f"ridge={self.ridge!r}: give 'auto' or a number above 0")
        if self.ridge != "auto":
            check_positive("ridge", self.ridge)
        self._machine()
        check_positive_int("starts", self.starts)
        check_folds(self.folds)
        if not isinstance(self.intercept, bool | np.bool_):
            raise TypeError(f"intercept={self.intercept!r}: give True or False")
        self._choices().check()

    def _choices(self) -> Choices:
        features = EXACT if self.features is None else self.features
        return Choices(self.construction, self.readout, self.widths, find_loss(self.loss), features)

    def _base_method(self) -> BaseMethod:
        return check_base(self.base)

    def _machine(self) -> Machine:
        return machine_for(self.device, self.precision, self.memory_budget)

    def _learns_from_covariates(self) -> bool:
        return self._base_method().uses_covariates

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        learn, left = self._base_method().rows(n, seeds.rows)
        return None if len(left) == n else learn

    def _fit(self, given: Given) -> Fitted:
        chosen = self._candidates(given)
        return self._fit_one(given) if chosen is None else self._fit_chosen(given, chosen)

    def _fit_one(self, given: Given) -> Fitted:
        """Fit around one network."""
        X, y, seeds = given.X, given.y, given.seeds
        method, loss, machine = self._base_method(), find_loss(self.loss), self._machine()
        loss.check(y)
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        lazy = self._lazy_step(seeds, len(left))
        start = build(self.network, X, seeds.start, self.starts)
        lazy.check_fits(len(left), _count(selected(start, self.parameters)), machine)
        base = method.fit(
            start,
            X[learn],
            y[learn],
            seed=seeds.base,
            center=self.intercept,
            progress=self.progress,
            covariates=given.covariates,
            loss=loss,
        )
        tangent = linearise(base.module, X, self.parameters, machine)
        models = lazy.models(tangent, X[left], y[left])
        warn_if_far(models.loo.residuals, models.solved.residuals)
        certifier = self._certifier(given, base.dependence, models.loo)
        for objection in certifier.rounded(self.alpha):
            warnings.warn(f"no coverage is guaranteed. {objection}", stacklevel=4)
        attributes = {
            "base_": base,
            "start_": start,
            "ridge_": self.starts * models.solved.ridges.cpu().numpy(),
            "widths_": lazy.widths,
            "rounding_": rounding_share(models.loo, self.alpha, certifier.size),
            "seeds_": seeds,
        }
        return Fitted(models.loo, certifier, attributes)

    def _candidates(self, given: Given) -> tuple[Network | wide, ...] | None:
        """The networks that models choose from; None for one network alone."""
        listed = listed_networks(self.network)
        reason = self._cannot_choose(given)
        if listed is None:
            small = len(given.y) <= MOST_ROWS and type(self._base_method()) is Public
            return CANDIDATES if self.network is None and small and not reason else None
        if reason:
            raise ValueError(f"network={self.network!r}: several candidates {reason}")
        return listed

    def _cannot_choose(self, given: Given) -> str:
        """Why models cannot choose among candidates; empty if they can."""
        choices = self._choices()
        if not choices.loss.closed_form:
            return f"do not support loss={choices.loss.name!r}: use loss='squared'"
        if self.readout != "tangent":
            return f"do not support readout={self.readout!r}: use readout='tangent'"
        if self.features is not None:
            return f"do not support features={self.features!r}: use features=None"
        if self.construction == "full":
            return "do not support construction='full'"
        if self.starts != 1 or self._machine().dtype != torch.float64:
            return "require starts=1 and precision='float64'"
        if given.X.ndim != 2 or not given.X.is_floating_point():
            return "require rows of numbers"
        return "require at least 4 rows" if len(given.y) < 4 else ""

    def _fit_chosen(self, given: Given, networks: Sequence[Network | wide]) -> Fitted:
        """Fit with networks, weights, λ and widths that every model chooses."""
        X, y, seeds = given.X, given.y, given.seeds
        method, machine = self._base_method(), self._machine()
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        self._choices().check_rows(len(left), self.folds)
        bases, candidates = self._bases(given, networks, learn)
        step = ChoosingStep(
            candidates,
            None if self.ridge == "auto" else float(self.ridge),
            self.intercept,
            self.construction,
            self._choices().widths_for(len(left), "auto"),
            self.relevance is not None,
            isinstance(self.scaling, str) and self.scaling == "auto",
            self.folds,
            seeds.lazy,
            self.alpha,
            machine,
            self.progress,
        )
        loo, choice = step.models(X[left], y[left])
        dependence = composed([base.dependence for base in bases])
        certifier = self._certifier(given, dependence, loo)
        for objection in certifier.rounded(self.alpha):
            warnings.warn(f"no coverage is guaranteed. {objection}", stacklevel=4)
        attributes = {
            "choice_": choice,
            "ridge_": choice.ridge,
            "widths_": step.widths,
            "rounding_": rounding_share(loo, self.alpha, certifier.size),
            "seeds_": seeds,
        }
        return Fitted(loo, certifier, attributes)

    def _bases(
        self, given: Given, networks: Sequence[Network | wide], learn: Tensor
    ) -> tuple[list[Base], list[Candidate]]:
        """Base weights of every finite network, and all candidates."""
        bases: list[Base] = []
        candidates: list[Candidate] = []
        framed = type(self._base_method()) is Public
        for k, network in enumerate(networks):
            if isinstance(network, wide):
                candidates.append(wide_candidate(network))
                continue
            start = build(network, given.X, given.seeds.start + k, 1)
            bases.append(
                self._base_method().fit(
                    start,
                    given.X[learn],
                    given.y[learn],
                    seed=given.seeds.base + k,
                    center=self.intercept,
                    progress=self.progress,
                    covariates=given.covariates,
                    loss=find_loss(self.loss),
                )
            )
            own = framed and not isinstance(network, nn.Module)
            name = str(network) if isinstance(network, mlp) else type(bases[-1].module).__name__
            terms = (self.parameters, self._machine(), own)
            candidates.append(finite_candidate(name, bases[-1].module, given.X, *terms))
        return bases, candidates

    def _lazy_step(self, seeds: Seeds, n: int) -> LazyStep:
        choices = self._choices()
        choices.check_rows(n, self.folds)
        # The mean of networks has the mean of their kernels divided by their number.
        ridge = self.ridge if isinstance(self.ridge, str) else self.ridge / self.starts
        return LazyStep(
            ridge,
            self.intercept,
            self.readout,
            self.construction,
            choices.widths_for(n),
            self.folds,
            choices.loss,
            choices.features,
            seeds.lazy,
            self.alpha,
            self.progress,
        )

    def _certifier(
        self, given: Given, dependence: PrivacyCurve | None, loo: RoundedModels
    ) -> Certifier:
        return Certifier(
            construction=self.construction,
            base=self._base_method(),
            dependence=dependence,
            folds=self.folds,
            assumptions=(*self._start_assumptions(), *given.scaling.assumptions),
            objections=given.scaling.objections,
            rows=given.scaling.rows,
            new_rows=given.scaling.new_rows,
            loo=loo,
            size=float(given.y.abs().max()),
            columns=unlike_columns(given.X.numpy(), given.names),
        )


def _count(parameters: Mapping[str, Tensor]) -> int:
    return sum(p.numel() for p in parameters.values())
