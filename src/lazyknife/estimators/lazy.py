"""The estimator: its settings, which of them go together, and its fit, where all stages meet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ..base import BaseMethod, Public, check_base, check_trainable
from ..base.privacy import composed
from ..certificate import Certifier, lazy_claim
from ..certificate.certify import SPLIT_NEEDS, Clustered, Worded, start_assumptions
from ..certificate.plan import LARGEST_N, rows_in_all
from ..choosing.candidates import (
    MOST_ROWS,
    Candidate,
    FiniteNetwork,
    default_networks,
    is_narrow,
)
from ..choosing.likelihood import of_own_scales
from ..choosing.record import ChosenSettings
from ..choosing.rows import MANY, Leaving, drawn_part, part_of
from ..compute import Device, Machine, machine_for
from ..data.checks import (
    check_between,
    check_choice,
    check_flag,
    check_folds,
    check_level,
    check_positive_int,
    check_reasonable,
)
from ..data.encoder import TableEncoder
from ..data.rows import backend_of, give_back, row_labels, to_tensor
from ..data.scaling import Source, unlike_columns
from ..data.targets import Function, Target, find_target
from ..errors import warn
from ..intervals import (
    AUTO,
    CONSTRUCTIONS,
    Construction,
    find_construction,
    is_parted,
    kappa,
    resolved,
)
from ..intervals.models import rounding_share
from ..intervals.outputs import OutputModels
from ..intervals.streamed import CompactModels
from ..losses import LOSSES, Loss, find_loss
from ..networks import DEFAULT, Network, build, is_known, listed_networks, mlp, wide
from ..networks.building import CODES
from ..records import INDEPENDENT, Base, PrivacyCurve, RoundedModels
from ..results import Boxes
from ..ridge.readout import READOUTS, LinearModels
from ..ridge.widths import WIDTHS
from ..sentences import EXPECT_BOXES, domain
from ..tangent import (
    EXACT,
    FEATURES,
    PROBE,
    FeatureMap,
    Selection,
    check_selection,
    linearise,
    selected,
)
from .answers import refuse_nan
from .base import (
    Bounds,
    ConstructionName,
    IntervalRegressor,
    ScalingName,
    Transformer,
    TransformName,
)
from .fit_clusters import has_many_rows
from .fit_dask import fit_collection
from .fit_full import FullStep
from .fit_input import Fitted, Given, RandomState, Seeds
from .fit_network import LazyStep
from .fit_outputs import leaving_of, outputs_step
from .fit_per_model import ChoosingStep
from .fit_shared import PartedStep
from .questions import Asked

# A network, or a list of candidates.
Networks = Network | wide | Sequence[Network | wide]
MOST_STARTS = 10_000
MORE_STARTS = "The mean of so many networks no longer changes; each of them takes time and memory"
# What settings may be where y has several outputs.
ONE_OUTPUT: dict[str, tuple[Any, ...]] = {
    "construction": (AUTO, "plus", "minmax"),
    "readout": ("tangent",),
    "loss": ("squared",),
    "features": (None,),
    "parameters": ("all",),
    "n_starts": (1,),
    "target_transform": ("auto", None),
    "bounds": (None,),
}
# The same where whole clusters are left out.
SINGLE_ROWS: dict[str, tuple[Any, ...]] = {
    "construction": (AUTO, "plus"),
    "widths": (None, "constant"),
    **{
        name: ONE_OUTPUT[name] for name in ("readout", "loss", "features", "parameters", "n_starts")
    },
}
FEWEST_CLUSTERS = 3
LARGEST_SHARE = 1.0  # of what rounding may move the ends of a loss without a closed form


@dataclass(eq=False, repr=False)
class LazyJackknifeRegressor(IntervalRegressor):
    """Prediction intervals with a coverage guarantee, for a table or a PyTorch network.

    The network is linearised at base weights θ0 that are public or were learnt privately. All n
    leave-one-out models are then ridge regressions on its tangent features, in closed form, and
    jackknife+ or another construction turns them into intervals.

    Without arguments every leave-one-out model chooses, on its own rows and therefore without a
    leak, how to scale the features, its network among eight infinitely wide ones, how much each
    feature matters, λ, and what the widths of intervals depend on. With more than 1,000 rows all
    models share these choices, which are made on a random part of the rows: those train every
    model but are never left out, and the others are the n of the certificate.

    Parameters
    ----------
    network
        A ``torch.nn.Module`` (copied with its weights, never changed), a callable ``n_features ->
        module`` such as ``mlp((64, 64))``, an infinitely wide network such as ``wide("laplace")``,
        or a list of such candidates, among which every leave-one-out model chooses. None is
        ``lazyknife.networks.CANDIDATES``, eight infinitely wide networks; with a base other than
        ``Public``, settings that require a finite network (``readout``, ``loss``, ``features``,
        ``parameters``, ``n_starts``), or more than 5,000 rows and construction ``"cv+"`` or other
        ``widths`` than None, ``"auto"`` and ``"constant"`` it is ``mlp((64, 64), skip=True)``.
    base
        How the base weights θ0 are obtained: ``Public``, ``Split``, ``DPSGD``, ``Perturbed``
        or ``Plain``. None is ``Public()``: the network's own starting weights.
    ridge
        λ > 0, or ``"auto"``: every leave-one-out model chooses λ on its own rows, without a leak;
        with more than 1,000 rows a random part of them, which is never left out, chooses for all.
    construction
        ``"auto"`` is ``"full"`` where a part of the rows chooses for all models, that is, with more
        than 1,000 rows and infinitely wide networks, and ``"plus"`` elsewhere. ``"plus"``
        (jackknife+) certifies 1 − 2·alpha − τ, where τ is the base's total variation; ``"minmax"``
        and ``"full"`` (exact full conformal) certify 1 − alpha − τ; ``"cv+"`` leaves folds out
        instead of rows; ``"jackknife"`` and ``"naive"`` certify nothing, nor does a
        ``lazyknife.intervals.Construction`` of your own, passed as an object. With ``"auto"``,
        jackknife+ answers what full conformal prediction cannot, such as distributions.
    readout
        ``"tangent"``: predictions of the linearised network, which the ridge fits; ``"network"``:
        of the real network at the moved weights, the paper's choice.
    fit_intercept
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
        distance of the row from the training rows; ``"auto"``, where models choose λ or a network:
        leverage, times a factor that every model chooses, or with more than 1,000 rows, if all
        networks are infinitely wide, quantiles of errors at ``alpha``, learnt from the part of the
        rows that makes the choices; intervals may then lie to one side of the point prediction.
        None is ``"auto"`` there, else ``"constant"``. Full conformal has ``"leverage"`` built in;
        with more than 1,000 rows and infinitely wide networks None is ``"auto"`` there, too.
    feature_weights
        ``"auto"``: every model searches a weight for each feature of infinitely wide networks, if
        there are at most 64 features; with more than 1,000 rows, if there are 5 rows of the search
        for each. None: all features have the same weight.
    folds
        Number of folds of ``"cv+"``; their sizes differ by at most one row.
    n_starts
        Number of networks, each with its own random start, whose mean is used as the network.
    loss
        Loss of the lazy step and of the base's training: ``"squared"``, ``"huber"``,
        ``"logistic"`` (y of 0 and 1), ``"poisson"`` (counts), or an instance such as
        ``Huber(delta=2.0)``. The last two predict the mean of y through their link. For sets of
        classes use ``LazyJackknifeClassifier``.
    scaling
        ``"auto"``: where models choose λ or a network, each of them divides the features by their
        standard deviations in its own rows, rounded to powers of 2, which is no leak; modules that
        you pass, networks that are trained, finite networks of more than 64 features, and those
        with a given ``ridge``, ``readout``, ``loss`` or ``features`` receive them as they are.
        None, ``"symlog"`` (fixed), ``"standardize"`` or a scikit-learn transformer: a fitted one
        requires ``X_pool`` or ``X_unlabeled`` in ``fit``; fitted on X alone it is a leak, and the
        certificate says so.
    encoding
        A ``TableEncoder`` with settings for the columns of frames; None: its defaults.
    target_transform
        The scale on which models are fitted to y. ``"auto"``: where all networks are infinitely
        wide, every model chooses on its own rows, by their likelihood: y itself, a root, or, if all
        y have one sign, a logarithm; with more than 1,000 rows the part that makes the choices
        does. None: y itself. ``"log"`` (y above 0), ``"log1p"`` (above −1), ``"logit"`` (between 0
        and 1), ``"symlog"`` (heavy tails of both signs), or a pair ``(function, inverse)`` of
        monotone functions of arrays. Points and ends are transformed back, and coverage is
        untouched. A point is then the image of a mean: on a logarithm closer to the median of y
        than to its mean. ``loo_`` and its residuals remain on the scale of the full-data model.
    bounds
        The smallest and the largest value that y can have, such as ``(0, None)``; points and ends
        beyond them are moved to them. The certificate assumes that y always lies within.
    alpha
        Level: intervals aim at a coverage of 1 − alpha.
    nu
        Relaxation: widens every interval by ν on both sides, on the scale of a given
        ``target_transform``, or of y.
    device
        Where training, the lazy step and predictions run: ``"auto"`` (a GPU if there is one),
        ``"cpu"``, ``"cuda"`` or a ``torch.device``.
    memory_budget
        Bytes for everything but the matrices that the method requires (docs/speed.md), at least
        one million; None takes a quarter of what is free on the device.
    random_state
        Seed of all randomness.
    verbose
        Whether to show progress bars.

    Attributes
    ----------
    certificate_
        The coverage guarantee; print it.
    construction_
        The construction that ``"auto"`` stands for, or the given one.
    base_
        Base weights, their dependence on the data, and how they were obtained.
    choice_
        What the models chose, where there was a choice; print it.
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

    network: Networks | None = None
    base: BaseMethod | None = None
    ridge: float | Literal["auto"] = "auto"
    construction: ConstructionName | Construction = "auto"
    readout: Literal["tangent", "network"] = "tangent"
    fit_intercept: bool = True
    parameters: Selection = "all"
    features: FeatureMap | None = None
    widths: Literal["constant", "leverage", "auto"] | None = None
    feature_weights: Literal["auto"] | None = "auto"
    folds: int = 10
    n_starts: int = 1
    loss: Literal["squared", "huber", "logistic", "poisson"] | Loss = "squared"
    scaling: ScalingName | Transformer | None = "auto"
    encoding: TableEncoder | None = None
    target_transform: TransformName | Literal["auto"] | tuple[Function, Function] | None = "auto"
    bounds: Bounds | None = None
    alpha: float = 0.1
    nu: float = 0.0
    device: Device = "auto"
    memory_budget: int | None = None
    random_state: RandomState = None
    verbose: bool = False
    # What a fit makes, for type checkers.
    base_: Base = field(init=False)
    choice_: ChosenSettings = field(init=False)
    ridge_: NDArray[np.float64] = field(init=False)
    widths_: str = field(init=False)
    rounding_: float = field(init=False)

    _several_outputs = _takes_clusters = True

    # The settings, and which of them go together.

    def _constructions(self) -> list[str]:
        return [AUTO, *CONSTRUCTIONS]

    def _check_settings(self) -> None:
        super()._check_settings()
        if isinstance(self.ridge, str) and self.ridge != "auto":
            raise ValueError(f"ridge={self.ridge!r}: give 'auto' or a number above 0")
        if not isinstance(self.ridge, str):
            check_reasonable("ridge", self.ridge)
        self._machine()
        check_positive_int("n_starts", self.n_starts)
        check_between("n_starts", self.n_starts, (1, MOST_STARTS), MORE_STARTS)
        check_folds(self.folds)
        check_flag("fit_intercept", self.fit_intercept)
        check_selection(self.parameters)
        check_choice("readout", self.readout, READOUTS)
        if self.feature_weights is not None:
            check_choice("feature_weights", self.feature_weights, ["auto"])
        if self.widths is not None:
            check_choice("widths", self.widths, WIDTHS)
        if not isinstance(self._features, FeatureMap):
            known = ", ".join(kind.__name__ for kind in FEATURES.values())
            raise TypeError(f"features={self.features!r}: give None or an instance of {known}")
        find_loss(self.loss)
        for name, other, values in self._conflicts():
            raise ValueError(
                f"{name}={getattr(self, name)!r} does not support {other}="
                f"{getattr(self, other)!r}: choose {other} from {', '.join(map(repr, values))}"
            )

    def _conflicts(self) -> Iterator[tuple[str, str, Iterable[Any]]]:
        """Pairs of settings that exclude each other, and values of the second that would do.

        Constructions, readouts, losses, features and widths declare what they support.
        """
        kind, loss = self._construction, find_loss(self.loss)
        readouts = READOUTS if kind.readouts is None else kind.readouts
        widths = WIDTHS if kind.widths is None else {name: WIDTHS[name] for name in kind.widths}
        if not (loss.identity or self._target().chosen or self.target_transform is None):
            yield "target_transform", "loss", [n for n, each in LOSSES.items() if each.identity]
        if self.readout not in readouts:
            yield "construction", "readout", readouts
        if READOUTS[self.readout].moves_network and not self._features.has_moves:
            yield "features", "readout", [n for n in readouts if not READOUTS[n].moves_network]
        if not (loss.closed_form or kind.any_loss):
            yield "loss", "construction", [n for n, each in CONSTRUCTIONS.items() if each.any_loss]
        if not (loss.closed_form or self._features.has_kernel):
            yield "loss", "features", [None]
        if self.widths is None:
            return
        if self.widths not in widths:
            yield "construction", "widths", [*widths, None]
        if WIDTHS[self.widths].needs_factors and not loss.closed_form:
            any_loss = [name for name, each in widths.items() if not each.needs_factors]
            yield "loss", "widths", [*any_loss, None]

    def _target(self) -> Target:
        return find_target(self.target_transform, self.bounds, auto=True)

    @property
    def _own_models(self) -> str | Construction:
        """The construction where no part of the rows chooses for all models."""
        return resolved(self.construction, False)

    @property
    def _construction(self) -> Construction:
        """The same as an object, by which settings are checked."""
        return find_construction(self._own_models)

    def _construction_of(self, X: Tensor) -> str | Construction:
        """The construction for some rows, by the shape of X alone."""
        left, networks = self._base_method().rows_left(len(X)), self._candidates(X)
        return resolved(self.construction, networks is not None and self._parted(left, networks))

    @property
    def _features(self) -> FeatureMap:
        return EXACT if self.features is None else self.features

    def _base_method(self) -> BaseMethod:
        return check_base(self.base)

    def _machine(self) -> Machine:
        return machine_for(self.device, self.memory_budget)

    def _check_rows(self, n: int) -> None:
        """Refuse settings that require more than the n rows that the base leaves."""
        if self._construction.uses_folds:
            check_folds(self.folds, n)
        if self.widths is not None and n < WIDTHS[self.widths].fewest_rows:
            raise ValueError(
                f"widths={self.widths!r} requires at least {WIDTHS[self.widths].fewest_rows} rows, "
                f"not {n}: give more rows, or widths='constant'"
            )

    def _widths_for(self, n: int, networks: Iterable[object] | None) -> str:
        """The widths for n rows: the setting, or the default of models that choose, or do not."""
        chooses = networks is not None
        if self.widths is not None:
            if WIDTHS[self.widths].needs_candidates and not chooses:
                others = [name for name, each in WIDTHS.items() if not each.needs_candidates]
                raise ValueError(
                    f"widths={self.widths!r} requires models that choose λ or a network "
                    "(ridge='auto', readout='tangent', loss='squared', features=None): choose "
                    f"widths from {', '.join(map(repr, others))}, None"
                )
            return self.widths
        parted = networks is not None and self._parted(n, networks)
        if self._construction.widths is not None and not parted:
            return self._construction.widths[0]
        return "auto" if chooses and n >= WIDTHS["auto"].fewest_rows else "constant"

    # The rows.

    def _learns_from_covariates(self) -> bool:
        return self._base_method().uses_covariates

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        learn, left = self._base_method().rows(n, seeds.rows)
        return None if len(left) == n else learn

    def _rows_in_all(self, needed: int) -> int:
        if isinstance(self.loo_, CompactModels):  # Dask collections are parted whatever their size
            return bisect_left(range(LARGEST_N), needed, key=lambda n: n - part_of(n))
        base, shape = self._base_method(), (MOST_ROWS, *self._rows_like.shape[1:])
        networks = self._candidates(self._rows_like.new_empty(1).expand(shape))

        def left(n: int) -> int:
            return self._leaving_of(base.rows_left(n), networks).rows

        return rows_in_all(needed, self.n_samples_fit_, base, left)

    def _leaving(self, X: Tensor) -> Leaving:
        """Which of some rows are left out, by the shape of X alone."""
        return self._leaving_of(self._base_method().rows_left(len(X)), self._candidates(X))

    def _leaving_of(self, n: int, networks: Iterable[object] | None) -> Leaving:
        """Which of n rows are left out of models that choose among networks, or of one network."""
        chooses = networks is not None or isinstance(self.ridge, str)
        return self._construction.leaving(n) if chooses else Leaving(n)

    def _scaling_for(self, rows: Any, source: Source) -> Any:
        """``"auto"``: by each model's rows; of the default network by rows that leak nothing."""
        if not isinstance(self.scaling, str) or self.scaling != "auto":
            return self.scaling
        clean = self.network is None and rows.ndim == 2 and not source.objections
        own = any(self._is_scaled(each, rows) for each in self._candidates_for(rows) or ())
        return "standardize" if clean and not own else "auto"

    def _is_scaled(self, network: Network | wide, rows: Any) -> bool:
        """Whether every model scales the features of a candidate by its own rows."""
        if isinstance(network, wide):
            return True
        # Scaled inputs are another module, in which names of one's own would not be found; of many
        # features models would share few scales.
        own = isinstance(self.parameters, str) and not isinstance(network, nn.Module)
        own = own and rows.ndim == 2 and self._features == EXACT
        return own and is_narrow(rows) and not self._base_method().trains

    def _takes_categories(self, rows: Any) -> bool:
        chosen = self._candidates_for(rows)
        return chosen is not None and all(map(is_known, chosen))

    # The networks that models choose from.

    def _candidates_for(self, rows: Any) -> tuple[Network | wide, ...] | None:
        dtype = torch.float64 if rows.dtype.kind == "f" else torch.int64
        return self._candidates(torch.empty(rows.shape, dtype=dtype, device="meta"))

    def _candidates(self, X: Tensor) -> tuple[Network | wide, ...] | None:
        """The networks that models choose from; None where one network has nothing to choose."""
        listed, reason = listed_networks(self.network), self._cannot_choose(X)
        symmetric = self._chosen_by_all(self._base_method().rows_left(len(X)))
        if listed is None:
            plain = self.network is None and not (self._base_method().trains or reason)
            if plain and self.n_starts == 1 and self.parameters == "all":
                found = default_networks(X)
                if len(X) <= MOST_ROWS or self._parted(len(X), found):
                    return found
            chooses = isinstance(self.ridge, str) and (symmetric or not reason)
            own: Any = DEFAULT if self.network is None else self.network
            return (own,) if chooses else None
        check_trainable(self._base_method(), self.network)
        if self.n_starts != 1 or self.parameters != "all":
            reason = reason or "require n_starts=1 and parameters='all'"
        if reason:
            raise ValueError(f"network={self.network!r}: candidates {reason}")
        return listed

    def _cannot_choose(self, X: Tensor) -> str:
        """Why models of rows like X cannot choose among candidates; empty if they can."""
        loss = find_loss(self.loss)
        if not loss.closed_form:
            return f"do not support loss={loss.name!r}: use loss='squared'"
        if self.readout != "tangent":
            return f"do not support readout={self.readout!r}: use readout='tangent'"
        if self._features != EXACT:
            return f"do not support features={self.features!r}: use features=None"
        if not X.is_floating_point():
            return f"require rows of numbers; {CODES}"
        if X.ndim != 2:
            return "require rows of numbers"
        return "require at least 4 rows" if len(X) < 4 else ""

    def _candidate(self, network: Network | wide, base: Base | None, given: Given) -> Candidate:
        """A network to choose from, at its base weights."""
        if isinstance(network, wide):
            return Candidate(str(network), network)
        assert base is not None
        name = str(network) if isinstance(network, mlp) else type(base.module).__name__
        scaled, machine = self._is_scaled(network, given.X), self._machine()
        finite = FiniteNetwork(base.module, given.X[:PROBE], self.parameters, machine, scaled)
        return Candidate(name, finite)

    # The fit.

    def _fit_collection(self, X: Any, y: Any, X_pool: Any, X_unlabeled: Any) -> Self:
        self._check_settings()
        return self._set_fitted(*fit_collection(self, X, y, X_pool, X_unlabeled))

    def _require(self, allowed: Mapping[str, tuple[Any, ...]], what: str, remedy: str) -> None:
        """Refuse settings that do not go with something else than one output of single rows."""
        for name, values in allowed.items():
            if (own := getattr(self, name)) not in values:
                raise ValueError(
                    f"{name}={own!r} does not support {what}: choose {name} from "
                    f"{', '.join(map(repr, values))}{remedy}"
                )
        if not isinstance(self._base_method(), Public):
            raise ValueError(f"base={self.base!r} does not support {what}: use Public()")

    def _check_outputs(self, shape: tuple[int, ...]) -> None:
        what, remedy = f"several outputs, y of shape {shape}", ", or fit each output on its own"
        self._require(ONE_OUTPUT, what, remedy)

    def _fit_clusters(self, given: Given, clusters: tuple[Tensor, ...]) -> Fitted:
        """Leave whole clusters out."""
        self._require(SINGLE_ROWS, "clusters", "")
        (n, count), certain = (len(given.y), len(clusters)), given.target.chosen
        if count < FEWEST_CLUSTERS:
            raise ValueError(f"clusters has {count} labels: give rows of {FEWEST_CLUSTERS} or more")
        step = outputs_step(self, given, "constant", None)
        leaving, left = Leaving(n), None
        loo: RoundedModels
        if has_many_rows(clusters):
            many = step.many_clusters(certain)
            loo, choice, rows = many.leave_clusters(given.X, given.y, clusters)
            leaving, left = Leaving(len(rows), n - len(rows)), rows.numpy()
            count = loo.columns.shape[1]
        else:
            step = replace(step, construction="cv+", folds=clusters, any_scale=certain)
            loo, choice = step.models(given.X, given.y)
        target = given.target
        if choice.target_scale is not None:
            target = target.on(choice.target_scale)
            given = given._replace(y=to_tensor(target.forward(given.y.numpy())))
        terms = INDEPENDENT, loo, leaving, self._own_models
        certifier = self._certifier(given, *terms, step.scaled)
        found = self._attributes("constant", loo, certifier, given.seeds, choice)
        return Fitted(loo, Clustered(certifier, count), found, target, left)

    def _attributes(
        self,
        widths: str,
        loo: RoundedModels,
        certifier: Certifier,
        seeds: Seeds,
        choice: ChosenSettings,
    ) -> dict[str, Any]:
        return {
            "widths_": widths,
            "construction_": self._own_models,
            "rounding_": rounding_share(loo, self.alpha, certifier.size),
            "seeds_": seeds,
            "choice_": choice,
            "ridge_": choice.ridge,
        }

    def _fit_outputs(self, given: Given) -> Fitted:
        """Fit to y of several outputs, shape (n, outputs)."""
        if given.clusters is not None:
            raise ValueError("clusters does not support several outputs: fit each on its own")
        if (constant := given.y.amin(dim=0) == given.y.amax(dim=0)).any():
            column = int(constant.nonzero()[0])
            raise ValueError(f"y[:, {column}] is constant: leave out outputs without variation")
        n = len(given.y)
        step = outputs_step(self, given, self._widths_for(n, ()), of_own_scales)
        solved = step.outputs(given.X, given.y)
        loo = OutputModels(solved.columns, solved.units, solved.unit_error)
        sized = given._replace(y=given.y / solved.units.median(dim=0).values)
        certifier = self._certifier(
            sized, INDEPENDENT, loo, leaving_of(n), self._own_models, step.scaled
        )
        widths = step.widths if n <= MANY else "constant"
        found = self._attributes(widths, loo, certifier, given.seeds, solved.choice)
        certify = Worded(certifier, EXPECT_BOXES, about=self._construction.expects)
        return Fitted(loo, certify, found, left_out=solved.left_out.numpy())

    def predict_box(self, X: Any, alpha: float | None = None) -> Boxes:
        """Boxes that contain all outputs of the true y together, for y of several outputs.

        Parameters
        ----------
        X
            Rows to predict.
        alpha
            The level; None is the estimator's own. Nothing is fitted again.

        """
        check_is_fitted(self)
        loo = self.loo_
        if not isinstance(loo, OutputModels):
            raise ValueError("y has one output: call predict_interval")
        level = check_level("alpha", self.alpha if alpha is None else alpha)
        certificate = self.certify(alpha=level)
        self._warn_of_infinite(Asked((level,)))
        rows = self._new_rows(X)
        terms = kappa(level, len(loo.scores)), str(self.construction_)
        point, lower, upper = self._by_blocks(lambda block: loo.boxes(block, *terms), rows)
        refuse_nan(point, lower, upper)
        ends = (point, lower - self.nu, upper + self.nu)
        point, lower, upper = (give_back(part, X) for part in ends)
        return Boxes(point, lower, upper, level, row_labels(X), backend_of(X), certificate)

    def _fit(self, given: Given) -> Fitted:
        if given.y.dim() == 2:
            return self._fit_outputs(given)
        if given.clusters is not None:
            return self._fit_clusters(given, given.clusters)
        networks, seeds = self._candidates(given.X), given.seeds
        learn, left = map(torch.from_numpy, self._base_method().rows(len(given.y), seeds.rows))
        X, y = given.X[left], given.y[left]
        find_loss(self.loss).check(given.y)
        self._check_rows(len(y))
        widths = self._widths_for(len(y), networks)
        parted = networks is not None and self._parted(len(y), networks)
        if self._construction.splits and not parted:
            raise ValueError(SPLIT_NEEDS.format(setting=f"network={self.network!r}"))
        step = self._lazy_step(seeds, widths)
        bases = self._bases(given, networks, learn, step, len(y))
        loo: RoundedModels
        choice: ChosenSettings | None = None
        ridges: NDArray[np.float64] | None = None
        scaled = False
        if networks is None:
            loo, ridges = self._solve(bases[0], given.X, X, y, step)
        else:
            pairs = zip(networks, bases, strict=True)
            candidates = [self._candidate(network, base, given) for network, base in pairs]
            choosing = self._step_for(candidates, widths, given, len(y))
            loo, choice = choosing.models(X, y)
            scaled = choosing.scaled
            if choice is not None:
                by_all = self._chosen_by_all(len(y))
                ridges = choice.each_ridge if by_all else choice.ridge
        dependence = composed([base.dependence for base in bases if base is not None])
        leaving = self._leaving_of(len(y), networks)
        target = given.target
        if choice is not None and choice.target_scale is not None:
            target = target.on(choice.target_scale)
            given = given._replace(y=to_tensor(target.forward(given.y.numpy())))
        construction = resolved(self.construction, parted)
        certifier = self._certifier(given, dependence, loo, leaving, construction, scaled)
        attributes: dict[str, Any] = {
            "widths_": widths,
            "construction_": construction,
            "rounding_": rounding_share(loo, self.alpha, certifier.size),
            "seeds_": seeds,
            "choice_": choice,
            "ridge_": None if ridges is None else self.n_starts * ridges,
        }
        if len(bases) == 1:
            attributes["base_"] = bases[0]
        found = {name: value for name, value in attributes.items() if value is not None}
        out = left.numpy()
        if leaving.apart:
            out = np.delete(out, drawn_part(len(y), seeds.lazy))
        return Fitted(loo, certifier, found, target, out)

    def _bases(
        self,
        given: Given,
        networks: Sequence[Network | wide] | None,
        learn: Tensor,
        step: LazyStep,
        n: int,
    ) -> list[Base | None]:
        """Base weights of every finite network, unless n rows of it do not fit."""
        bases = list[Base | None]()
        every: Sequence[Any] = (self.network,) if networks is None else networks
        for k, network in enumerate(every):
            if isinstance(network, wide):
                bases.append(None)
                continue
            start = build(network, given.X, given.seeds.start + k, self.n_starts)
            moved = sum(p.numel() for p in selected(start, self.parameters).values())
            step.check_fits(n, moved, self._machine())
            terms = {"seed": given.seeds.base + k, "covariates": given.covariates}
            bases.append(self._learn(start, given.X[learn], given.y[learn], **terms))
        return bases

    def _learn(self, start: nn.Module, X: Tensor, y: Tensor, **terms: Any) -> Base:
        """Base weights from some rows; ``terms`` are those of ``Task`` that are no settings."""
        own = {"center": self.fit_intercept, "progress": self.verbose}
        base = self._base_method()
        if base.trains:
            start = start.to(self._machine().device)
        return base.fit(start, X, y, **own, **terms, loss=find_loss(self.loss))

    def _lazy_step(self, seeds: Seeds, widths: str) -> LazyStep:
        # The mean of networks has the mean of their kernels divided by their number.
        ridge = self.ridge if isinstance(self.ridge, str) else self.ridge / self.n_starts
        return LazyStep(
            ridge,
            self.fit_intercept,
            self.readout,
            self._construction,
            widths,
            self.folds,
            find_loss(self.loss),
            self._features,
            seeds.lazy,
            self.verbose,
        )

    def _solve(
        self, base: Base | None, probe: Tensor, X: Tensor, y: Tensor, step: LazyStep
    ) -> tuple[RoundedModels, NDArray[np.float64]]:
        """Models around one network that has nothing to choose but λ, and their λ."""
        assert base is not None
        tangent = linearise(base.module, probe, self.parameters, self._machine())
        loo = step.models(tangent, X, y)
        solved = loo.models if isinstance(loo, LinearModels) else loo
        rounding = rounding_share(loo, self.alpha, float(y.abs().max()))
        if not step.loss.closed_form and not rounding <= LARGEST_SHARE:
            raise ValueError(
                f"ridge={self.ridge!r} is too small for loss={step.loss.name!r} and these rows: "
                "rounding errors may move the ends of intervals by more than the errors of the "
                "models. Give a larger ridge, or scale the features (scaling='symlog', or "
                "'standardize' with X_pool)"
            )
        return loo, solved.ridges.cpu().numpy()

    def _step_for(
        self, candidates: Sequence[Candidate], widths: str, given: Given, n: float
    ) -> ChoosingStep | FullStep | PartedStep:
        ridge = None if isinstance(self.ridge, str) else float(self.ridge)
        scaled = isinstance(self.scaling, str) and self.scaling == "auto"
        scaled = scaled and any(candidate.scales for candidate in candidates)
        more = (given.seeds.lazy, self._machine(), given.nominal)
        # A finite network has outputs on the scale of y; full conformal compares values of y.
        wide_alone = all(isinstance(candidate.network, wide) for candidate in candidates)
        by_all = self._chosen_by_all(n)
        any_scale = given.target.chosen and wide_alone and not by_all
        any_scale = any_scale and not self._construction.takes_extremes
        common = (candidates, ridge, self.fit_intercept, scaled, *more, widths, any_scale)
        relevance = self.feature_weights is not None
        if by_all:
            return FullStep(*common, relevance, self._features, self.verbose)
        if self._parted(n, [candidate.network for candidate in candidates]):
            own = self._construction.splits
            return PartedStep(*common, relevance, self.verbose, self.alpha, own)
        terms = (self._construction, relevance, self.folds, self.verbose)
        return ChoosingStep(*common, *terms, alpha=self.alpha)

    def _chosen_by_all(self, n: float) -> bool:
        """Whether all of n rows choose together with the new one."""
        return self._construction.symmetric and n <= MANY

    def _supports_full(self, given: Given) -> bool:
        """Whether full conformal prediction could answer with the same settings."""
        other = copy(self)
        other.construction = "full"
        return given.clusters is None and given.y.dim() == 1 and not any(other._conflicts())

    def _parted(self, n: float, networks: Iterable[object]) -> bool:
        return is_parted(n, networks, self._construction, self.widths)

    def _certifier(
        self,
        given: Given,
        dependence: PrivacyCurve | None,
        loo: RoundedModels,
        leaving: Leaving,
        construction: str | Construction,
        scaled: bool = False,
    ) -> Certifier:
        """Return the certifier, and warn where rounding leaves nothing to certify."""
        allowed = domain(find_loss(self.loss).domain)
        claim = lazy_claim(
            construction,
            self._base_method(),
            dependence,
            leaving,
            self.folds,
            assumptions=(*start_assumptions(self.network), *given.assumptions, *allowed),
            objections=given.scaling.objections,
            rows=given.scaling.rows,
            new_rows=given.scaling.new_rows,
            others=("full",) if construction == "plus" and self._supports_full(given) else (),
        )
        columns = None if scaled else unlike_columns(given.X.numpy(), given.names)
        certifier = Certifier(claim, loo, float(given.y.abs().max()), columns)
        for objection in certifier.rounded(self.alpha):
            warn(f"no coverage is guaranteed. {objection}")
        return certifier
