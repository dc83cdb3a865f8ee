"""The estimator and its settings; fitting.py has the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..base import BaseMethod
from ..compute import Device
from ..data.encoder import TableEncoder
from ..intervals import Construction
from ..losses import Loss
from ..tangent import FeatureMap, Selection
from .fit_cluster import ClusterFit

MOST_STARTS = 10_000
MORE_STARTS = "The mean of so many networks no longer changes; each of them takes time and memory"


@dataclass(eq=False, repr=False)
class LazyJackknifeRegressor(ClusterFit):
    """Certified prediction intervals for a table or a neural network, at the cost of one training.

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
        ``parameters``, ``n_starts``), or more than 5,000 rows and constructions ``"cv+"`` or
        ``"full"`` or other ``widths`` than None, ``"auto"`` and ``"constant"`` it is
        ``mlp((64, 64), skip=True)``.
    base
        How the base weights θ0 are obtained: ``Public``, ``Split``, ``DPSGD``, ``Perturbed``
        or ``Plain``. None is ``Public()``: the network's own starting weights.
    ridge
        λ > 0, or ``"auto"``: every leave-one-out model chooses λ on its own rows, without a leak;
        with more than 1,000 rows a random part of them, which is never left out, chooses for all.
    construction
        ``"plus"`` (jackknife+) certifies 1 − 2·alpha − τ, where τ is the base's total variation;
        ``"minmax"`` and ``"full"`` (exact full conformal) certify 1 − alpha − τ; ``"cv+"`` leaves
        folds out instead of rows; ``"jackknife"`` and ``"naive"`` certify nothing, nor does a
        ``lazyknife.intervals.Construction`` of your own, passed as an object.
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
        networks are infinitely wide, a size of errors learnt from the part of the rows that makes
        the choices. None is ``"auto"`` there, else ``"constant"``. Full conformal has
        ``"leverage"`` built in.
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
        ``Huber(delta=2.0)``. The last two predict the mean of y through their link.
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
        The scale on which models are fitted to y: ``"log"`` (y above 0), ``"log1p"`` (above −1),
        ``"logit"`` (between 0 and 1), ``"symlog"`` (heavy tails of both signs), or a pair
        ``(function, inverse)`` of monotone functions of arrays. Points and ends are transformed
        back, and coverage is untouched. A point is then the image of a mean: for ``"log"`` closer
        to the median of y than to its mean. ``loo_`` and its residuals remain on that scale.
    bounds
        The smallest and the largest value that y can have, such as ``(0, None)``; points and ends
        beyond them are moved to them. The certificate assumes that y always lies within.
    alpha
        Level: intervals aim at a coverage of 1 − alpha.
    nu
        Relaxation: widens every interval by ν on both sides, on the scale of ``target_transform``.
    device
        Where the lazy step and predictions run: ``"auto"`` (a GPU if there is one), ``"cpu"``,
        ``"cuda"`` or a ``torch.device``. The base is trained on the device of its network.
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

    network: Any = None  # Network | wide | Sequence[Network | wide] | None
    base: BaseMethod | None = None
    ridge: float | Literal["auto"] = "auto"
    construction: str | Construction = "plus"
    readout: str = "tangent"
    fit_intercept: bool = True
    parameters: Selection = "all"
    features: FeatureMap | None = None
    widths: str | None = None
    feature_weights: Literal["auto"] | None = "auto"
    folds: int = 10
    n_starts: int = 1
    loss: str | Loss = "squared"
    scaling: Any = "auto"
    encoding: TableEncoder | None = None
    target_transform: Any = None  # str | tuple[Callable, Callable] | None
    bounds: tuple[float | None, float | None] | None = None
    alpha: float = 0.1
    nu: float = 0.0
    device: Device = "auto"
    memory_budget: int | None = None
    random_state: Any = None
    verbose: bool = False
