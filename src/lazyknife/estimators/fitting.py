"""From an estimator's settings to its fitted models: the one place where the stages meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..base import BaseMethod, Public, check_base, check_trainable
from ..base.privacy import composed
from ..certificate import Certifier, lazy_claim
from ..certificate.certify import start_assumptions
from ..certificate.plan import rows_in_all
from ..choosing.candidates import (
    MOST_ROWS,
    Candidate,
    FiniteNetwork,
    default_networks,
    is_narrow,
)
from ..choosing.record import ChosenSettings
from ..choosing.rows import Leaving
from ..compute import Device, Machine, machine_for
from ..data.scaling import Source, unlike_columns
from ..errors import warn
from ..intervals import find_construction
from ..intervals.models import rounding_share
from ..losses import Loss, find_loss
from ..networks import Network, build, is_known, listed_networks, mlp, wide
from ..records import Base, PrivacyCurve, RoundedModels
from ..ridge.readout import Read
from ..sentences import domain
from ..tangent import EXACT, PROBE, FeatureMap, Selection, linearise, selected
from .base import IntervalRegressor
from .fit_full import FullStep
from .fit_input import Fitted, Given, Seeds
from .fit_network import LazyStep
from .fit_per_model import ChoosingStep
from .fit_shared import PartedStep, is_parted
from .setting_rules import Choices

LARGEST_SHARE = 1.0  # of what rounding may move the ends of a loss without a closed form


class LazyFit(IntervalRegressor):
    """How ``LazyJackknifeRegressor``, which documents the settings, is fitted."""

    base: BaseMethod | None
    ridge: float | Literal["auto"]
    readout: str
    fit_intercept: bool
    parameters: Selection
    features: FeatureMap | None
    widths: str | None
    feature_weights: Literal["auto"] | None
    folds: int
    n_starts: int
    loss: str | Loss
    device: Device
    memory_budget: int | None

    def _choices(self, candidates: bool = False) -> Choices:
        features = EXACT if self.features is None else self.features
        loss = find_loss(self.loss)
        return Choices(self.construction, self.readout, self.widths, loss, features, candidates)

    def _base_method(self) -> BaseMethod:
        return check_base(self.base)

    def _machine(self) -> Machine:
        return machine_for(self.device, self.memory_budget)

    def _learns_from_covariates(self) -> bool:
        return self._base_method().uses_covariates

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        learn, left = self._base_method().rows(n, seeds.rows)
        return None if len(left) == n else learn

    def _rows_in_all(self, needed: int) -> int:
        base, shape = self._base_method(), (MOST_ROWS, *self._rows_like.shape[1:])
        networks = self._candidates(self._rows_like.new_empty(1).expand(shape))

        def left(n: int) -> int:
            return self._leaving_of(base.rows_left(n), networks).rows

        return rows_in_all(needed, self.n_samples_fit_, base, left)

    def _fit(self, given: Given) -> Fitted:
        chosen = self._candidates(given.X)
        return self._fit_one(given) if chosen is None else self._fit_chosen(given, chosen)

    def _fit_one(self, given: Given) -> Fitted:
        """Fit around one network."""
        X, y, seeds = given.X, given.y, given.seeds
        method, loss, machine = self._base_method(), find_loss(self.loss), self._machine()
        loss.check(y)
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        lazy = self._lazy_step(seeds, len(left))
        start = build(self.network, X, seeds.start, self.n_starts)
        lazy.check_fits(len(left), self._moved(start), machine)
        base = self._learnt(start, given, learn, seeds.base)
        tangent = linearise(base.module, X, self.parameters, machine)
        loo = lazy.models(tangent, X[left], y[left])
        solved = loo.models if isinstance(loo, Read) else loo
        _warn_if_far(loo.residuals, solved.residuals)
        rounding = rounding_share(loo, self.alpha, float(y.abs().max()))
        if not loss.closed_form and not rounding <= LARGEST_SHARE:
            raise ValueError(
                f"ridge={self.ridge!r} is too small for loss={loss.name!r} and these rows: "
                "rounding errors may move the ends of intervals by more than the errors of the "
                "models. Give a larger ridge, or scale the features (scaling='symlog', or "
                "'standardize' with X_pool)"
            )
        leaving = self._leaving_of(len(left), None)
        certifier = self._certifier(given, base.dependence, loo, leaving)
        attributes = {
            "base_": base,
            "start_": start,
            "ridge_": self.n_starts * solved.ridges.cpu().numpy(),
            "widths_": lazy.widths,
            "rounding_": rounding,
            "seeds_": seeds,
        }
        return Fitted(loo, certifier, attributes)

    def _learnt(self, start: nn.Module, given: Given, learn: Tensor, seed: int) -> Base:
        """Base weights of one network."""
        return self._base_method().fit(
            start,
            given.X[learn],
            given.y[learn],
            seed=seed,
            center=self.fit_intercept,
            progress=self.verbose,
            covariates=given.covariates,
            loss=find_loss(self.loss),
        )

    def _scaling_for(self, rows: Any, source: Source) -> Any:
        """``"auto"``: by each model's rows; of the default network by rows that leak nothing."""
        if not isinstance(self.scaling, str) or self.scaling != "auto":
            return self.scaling
        clean = self.network is None and rows.ndim == 2 and not source.objections
        return "standardize" if clean and self._candidates_for(rows) is None else "auto"

    def _takes_categories(self, rows: Any) -> bool:
        chosen = self._candidates_for(rows)
        return chosen is not None and all(map(is_known, chosen))

    def _candidates_for(self, rows: Any) -> tuple[Network | wide, ...] | None:
        dtype = torch.float64 if rows.dtype.kind == "f" else torch.int64
        return self._candidates(torch.empty(rows.shape, dtype=dtype, device="meta"))

    def _candidates(self, X: Tensor) -> tuple[Network | wide, ...] | None:
        """The networks that models choose from; None where one network has nothing to choose."""
        listed = listed_networks(self.network)
        reason = self._choices().cannot_choose(X)
        symmetric = find_construction(self.construction).symmetric
        if listed is None and self.network is not None:
            chooses = isinstance(self.ridge, str) and not symmetric and not reason
            return (self.network,) if chooses else None
        if listed is None:
            plain = type(self._base_method()) is Public and not reason
            plain = plain and self.n_starts == 1 and self.parameters == "all"
            found = default_networks(X, symmetric)
            fits = len(X) <= MOST_ROWS or self._parted(len(X), found)
            return found if plain and fits else None
        if self.n_starts != 1 or self.parameters != "all":
            reason = reason or "require n_starts=1 and parameters='all'"
        if reason:
            raise ValueError(f"network={self.network!r}: candidates {reason}")
        check_trainable(self._base_method(), self.network)
        return listed

    def _parted(self, n: float, networks: Iterable[object]) -> bool:
        return is_parted(n, networks, self.construction, self.widths)

    def _leaving(self, X: Tensor) -> Leaving:
        """Which of some rows are left out, by the shape of X alone."""
        return self._leaving_of(self._base_method().rows_left(len(X)), self._candidates(X))

    def _leaving_of(self, n: int, networks: Iterable[object] | None) -> Leaving:
        """Which of n rows are left out of models that choose among networks, or of one network."""
        construction = find_construction(self.construction)
        if networks is None:
            return self._lazy_step(Seeds.of(0), n).leaving(n)
        return (
            Leaving(n) if construction.symmetric else Leaving.choosing(n, construction.uses_folds)
        )

    def _moved(self, start: nn.Module) -> int:
        """Number of parameters that the lazy step moves."""
        return sum(p.numel() for p in selected(start, self.parameters).values())

    def _fit_chosen(self, given: Given, networks: Sequence[Network | wide]) -> Fitted:
        """Fit with networks, weights, λ and widths that are chosen."""
        X, y, seeds = given.X, given.y, given.seeds
        method = self._base_method()
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        self._choices().check_rows(len(left), self.folds)
        starts, bases = self._bases(given, networks, learn, len(left))
        loo, choice, step = self._chosen(networks, bases, given, X[left], y[left])
        dependence = composed([base.dependence for base in bases if base is not None])
        leaving = self._leaving_of(len(left), networks)
        certifier = self._certifier(given, dependence, loo, leaving, step.scaled)
        attributes: dict[str, Any] = {
            "widths_": step.widths,
            "rounding_": rounding_share(loo, self.alpha, certifier.size),
            "seeds_": seeds,
        }
        if choice is not None:
            attributes |= {"choice_": choice, "ridge_": self.n_starts * choice.ridge}
        if len(networks) == 1 and bases[0] is not None:
            attributes |= {"start_": starts[0], "base_": bases[0]}
        return Fitted(loo, certifier, attributes)

    def _chosen(
        self,
        networks: Sequence[Network | wide],
        bases: Sequence[Base | None],
        given: Given,
        X: Tensor,
        y: Tensor,
    ) -> tuple[RoundedModels, ChosenSettings | None, ChoosingStep | FullStep | PartedStep]:
        """Models of some rows, what they chose, and the step that was taken."""
        candidates = [
            self._candidate(network, base, given)
            for network, base in zip(networks, bases, strict=True)
        ]
        widths = self._choices(candidates=True).widths_for(len(y))
        step = self._step_for(candidates, widths, given, len(y))
        loo, choice = step.models(X, y)
        return loo, choice, step

    def _candidate(self, network: Network | wide, base: Base | None, given: Given) -> Candidate:
        """A network to choose from, at its base weights."""
        if isinstance(network, wide):
            return Candidate(str(network), network)
        assert base is not None
        # Scaled inputs are another module, in which names of one's own would not be found; of many
        # features models would share few scales.
        own = isinstance(self.parameters, str) and not isinstance(network, nn.Module)
        own = own and is_narrow(given.X) and type(self._base_method()) is Public
        name = str(network) if isinstance(network, mlp) else type(base.module).__name__
        terms = (given.X[:PROBE], self.parameters, self._machine(), own)
        return Candidate(name, FiniteNetwork(base.module, *terms))

    def _step_for(
        self, candidates: Sequence[Candidate], widths: str, given: Given, n: float
    ) -> ChoosingStep | FullStep | PartedStep:
        ridge = None if isinstance(self.ridge, str) else float(self.ridge)
        scaled = isinstance(self.scaling, str) and self.scaling == "auto"
        scaled = scaled and any(candidate.scales for candidate in candidates)
        more = (given.seeds.lazy, self._machine(), given.nominal)
        common = (candidates, ridge, self.fit_intercept, scaled, *more, widths)
        if find_construction(self.construction).symmetric:
            return FullStep(*common)
        relevance = self.feature_weights is not None
        if self._parted(n, [candidate.network for candidate in candidates]):
            return PartedStep(*common, relevance, self.verbose)
        own = (self.construction, relevance, self.folds, self.verbose)
        return ChoosingStep(*common, *own)

    def _bases(
        self, given: Given, networks: Sequence[Network | wide], learn: Tensor, n: int
    ) -> tuple[list[nn.Module | None], list[Base | None]]:
        """Starting and base weights of every finite network, unless n rows of it do not fit."""
        starts, bases = list[nn.Module | None](), list[Base | None]()
        widths = self._choices(candidates=True).widths_for(n)
        terms = {"construction": self.construction, "widths": widths, "folds": self.folds}
        step = LazyStep(self.ridge, **terms)  # type: ignore[arg-type]
        for k, network in enumerate(networks):
            if isinstance(network, wide):
                starts.append(None)
                bases.append(None)
                continue
            starts.append(start := build(network, given.X, given.seeds.start + k, self.n_starts))
            if not find_construction(self.construction).symmetric:
                step.check_fits(n, self._moved(start), self._machine())
            bases.append(self._learnt(start, given, learn, given.seeds.base + k))
        return starts, bases

    def _lazy_step(self, seeds: Seeds, n: int) -> LazyStep:
        choices = self._choices()
        choices.check()
        choices.check_rows(n, self.folds)
        # The mean of networks has the mean of their kernels divided by their number.
        ridge = self.ridge if isinstance(self.ridge, str) else self.ridge / self.n_starts
        return LazyStep(
            ridge,
            self.fit_intercept,
            self.readout,
            self.construction,
            choices.widths_for(n),
            self.folds,
            choices.loss,
            choices.features,
            seeds.lazy,
            self.verbose,
        )

    def _certifier(
        self,
        given: Given,
        dependence: PrivacyCurve | None,
        loo: RoundedModels,
        leaving: Leaving,
        scaled: bool = False,
    ) -> Certifier:
        """Return the certifier, and warn where rounding leaves nothing to certify."""
        allowed = domain(find_loss(self.loss).domain)
        claim = lazy_claim(
            self.construction,
            self._base_method(),
            dependence,
            leaving,
            self.folds,
            assumptions=(*start_assumptions(self.network), *given.assumptions, *allowed),
            objections=given.scaling.objections,
            rows=given.scaling.rows,
            new_rows=given.scaling.new_rows,
        )
        columns = None if scaled else unlike_columns(given.X.numpy(), given.names)
        certifier = Certifier(claim, loo, float(given.y.abs().max()), columns)
        for objection in certifier.rounded(self.alpha):
            warn(f"no coverage is guaranteed. {objection}")
        return certifier


def _warn_if_far(read_out: Tensor, linearised: Tensor) -> None:
    """Warn if left-out predictions are farther from the linearised ones than those are from y.

    With the tangent readout they are the same.
    """
    gap = float((read_out - linearised).square().mean().sqrt())
    error = float(linearised.square().mean().sqrt())
    if not gap <= error:
        warn(
            "the moved networks are far from the linearised ones that the ridge fitted (left-out "
            f"predictions differ by {gap:.3g}, the linearised errors are {error:.3g}), so the "
            "intervals are valid but wide. Use readout='tangent', divide y by a fixed unit so that "
            "its spread is of order one, or use a larger ridge",
        )
