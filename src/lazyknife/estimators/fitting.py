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
from ..certificate import Certifier
from ..certificate.certify import start_assumptions
from ..certificate.leaving import rows_in_all
from ..compute import Device, Machine, machine_for
from ..data.scaling import Source, unlike_columns
from ..intervals import find_construction
from ..intervals.rounded import rounding_share
from ..losses import Loss, find_loss
from ..networks import Network, build, is_known, listed_networks, mlp, wide
from ..records import Base, PrivacyCurve, RoundedModels
from ..sentences import domain
from ..solve.part import Leaving
from ..tangent import EXACT, FeatureMap, Selection, linearise, selected
from .candidates import (
    MOST_ROWS,
    Candidate,
    default_networks,
    finite_candidate,
    wide_candidate,
)
from .choices import Choices
from .choosing import ChoosingStep
from .choosing_full import FullStep
from .parting import PartedStep, is_parted
from .records import Fitted, Given, Seeds
from .shared import IntervalRegressor
from .step import LazyStep
from .warn import refuse_lost, warn_if_far, warn_of


class LazyFit(IntervalRegressor):
    """How ``LazyJackknifeRegressor``, which documents the settings, is fitted."""

    base: BaseMethod | None
    ridge: float | Literal["auto"]
    readout: str
    intercept: bool
    parameters: Selection
    features: FeatureMap | None
    widths: str | None
    relevance: Literal["auto"] | None
    folds: int
    starts: int
    loss: str | Loss
    device: Device
    precision: str
    memory_budget: int | None

    def _choices(self, candidates: bool = False) -> Choices:
        features = EXACT if self.features is None else self.features
        loss = find_loss(self.loss)
        return Choices(self.construction, self.readout, self.widths, loss, features, candidates)

    def _base_method(self) -> BaseMethod:
        return check_base(self.base)

    def _machine(self) -> Machine:
        return machine_for(self.device, self.precision, self.memory_budget)

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
        start = build(self.network, X, seeds.start, self.starts)
        lazy.check_fits(len(left), self._moved(start), machine)
        base = self._learnt(start, given, learn, seeds.base)
        tangent = linearise(base.module, X, self.parameters, machine)
        models = lazy.models(tangent, X[left], y[left])
        warn_if_far(models.loo.residuals, models.solved.residuals)
        size = float(given.y.abs().max())
        refuse_lost(rounding_share(models.loo, self.alpha, size), self.ridge, loss)
        leaving = self._leaving_of(len(left), None, start)
        certifier = self._certifier(given, base.dependence, models.loo, leaving)
        attributes = {
            "base_": base,
            "start_": start,
            "ridge_": self.starts * models.solved.ridges.cpu().numpy(),
            "widths_": lazy.widths,
            "rounding_": rounding_share(models.loo, self.alpha, certifier.size),
            "seeds_": seeds,
        }
        return Fitted(models.loo, certifier, attributes)

    def _learnt(self, start: nn.Module, given: Given, learn: Tensor, seed: int) -> Base:
        """Base weights of one network."""
        return self._base_method().fit(
            start,
            given.X[learn],
            given.y[learn],
            seed=seed,
            center=self.intercept,
            progress=self.progress,
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
        """The networks that models choose from; None for one network alone."""
        listed = listed_networks(self.network)
        finite = (self.starts, self.parameters, self.precision)
        reason = self._choices().cannot_choose(X, *finite)
        if listed is None:
            plain = self.network is None and type(self._base_method()) is Public and not reason
            found = default_networks(X, find_construction(self.construction).symmetric)
            fits = len(X) <= MOST_ROWS or self._parted(len(X), found)
            return found if plain and fits else None
        if reason:
            raise ValueError(f"network={self.network!r}: candidates {reason}")
        check_trainable(self._base_method(), self.network)
        return listed

    def _parted(self, n: float, networks: Iterable[object]) -> bool:
        return is_parted(n, networks, self.construction, self.widths)

    def _leaving(self, X: Tensor) -> Leaving:
        """Which of some rows are left out, by the shape of X alone."""
        n, networks = self._base_method().rows_left(len(X)), self._candidates(X)
        start = build(self.network, X[:3].clone(), 0, self.starts) if networks is None else None
        return self._leaving_of(n, networks, start)

    def _leaving_of(
        self, n: int, networks: Iterable[object] | None, start: nn.Module | None = None
    ) -> Leaving:
        """Which of n rows are left out of models that choose among networks, or of one start."""
        leaves_rows = find_construction(self.construction).leaves_rows
        if leaves_rows and networks is not None:
            return Leaving.choosing(n, self._parted(n, networks))
        if leaves_rows and start is not None:
            lazy, machine = self._lazy_step(Seeds.of(0), n), self._machine()
            return Leaving(n, coins=lazy.draws(n, self._moved(start), machine))
        return Leaving(n)

    def _moved(self, start: nn.Module) -> int:
        """Number of parameters that the lazy step moves."""
        return sum(p.numel() for p in selected(start, self.parameters).values())

    def _fit_chosen(self, given: Given, networks: Sequence[Network | wide]) -> Fitted:
        """Fit with networks, weights, λ and widths that every model chooses."""
        X, y, seeds = given.X, given.y, given.seeds
        method = self._base_method()
        learn, left = (torch.from_numpy(rows) for rows in method.rows(len(y), seeds.rows))
        self._choices().check_rows(len(left), self.folds)
        bases, candidates = self._bases(given, networks, learn)
        widths = self._choices(candidates=True).widths_for(len(left))
        step = self._step_for(candidates, widths, given, len(left))
        loo, choice = step.models(X[left], y[left])
        dependence = composed([base.dependence for base in bases])
        leaving = self._leaving_of(len(left), networks)
        certifier = self._certifier(given, dependence, loo, leaving, step.scaled)
        attributes: dict[str, Any] = {
            "widths_": widths,
            "rounding_": rounding_share(loo, self.alpha, certifier.size),
            "seeds_": seeds,
        }
        if choice is not None:
            attributes |= {"choice_": choice, "ridge_": choice.ridges}
        return Fitted(loo, certifier, attributes)

    def _step_for(
        self, candidates: Sequence[Candidate], widths: str, given: Given, n: float
    ) -> ChoosingStep | FullStep | PartedStep:
        machine = self._machine().of_type(torch.float64)  # predictions included
        ridge = None if isinstance(self.ridge, str) else float(self.ridge)
        scaled = isinstance(self.scaling, str) and self.scaling == "auto"
        more = (given.seeds.lazy, machine, given.nominal)
        common = (candidates, ridge, self.intercept, scaled, *more)
        if find_construction(self.construction).symmetric:
            return FullStep(*common)
        relevance = self.relevance is not None
        if self._parted(n, [candidate.network for candidate in candidates]):
            return PartedStep(*common, widths, relevance, self.progress)
        own = (self.construction, widths, relevance, self.folds, self.alpha, self.progress)
        return ChoosingStep(*common, *own)

    def _bases(
        self, given: Given, networks: Sequence[Network | wide], learn: Tensor
    ) -> tuple[list[Base], list[Candidate]]:
        """Base weights of every finite network, and all candidates."""
        bases, candidates = list[Base](), list[Candidate]()
        framed = type(self._base_method()) is Public
        for k, network in enumerate(networks):
            if isinstance(network, wide):
                candidates.append(wide_candidate(network))
                continue
            start = build(network, given.X, given.seeds.start + k)
            bases.append(self._learnt(start, given, learn, given.seeds.base + k))
            own = framed and not isinstance(network, nn.Module)
            name = str(network) if isinstance(network, mlp) else type(bases[-1].module).__name__
            terms = (self.parameters, self._machine(), own)
            candidates.append(finite_candidate(name, bases[-1].module, given.X, *terms))
        return bases, candidates

    def _lazy_step(self, seeds: Seeds, n: int) -> LazyStep:
        choices = self._choices()
        choices.check()
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
        self,
        given: Given,
        dependence: PrivacyCurve | None,
        loo: RoundedModels,
        leaving: Leaving,
        scaled: bool = False,
    ) -> Certifier:
        """Return the certifier, and warn where rounding leaves nothing to certify."""
        allowed = domain(find_loss(self.loss).domain)
        certifier = Certifier(
            construction=self.construction,
            base=self._base_method(),
            dependence=dependence,
            leaving=leaving,
            folds=self.folds,
            assumptions=(*start_assumptions(self.network), *given.assumptions, *allowed),
            objections=given.scaling.objections,
            rows=given.scaling.rows,
            new_rows=given.scaling.new_rows,
            loo=loo,
            size=float(given.y.abs().max()),
            columns=None if scaled else unlike_columns(given.X.numpy(), given.names),
        )
        warn_of(certifier.rounded(self.alpha))
        return certifier
