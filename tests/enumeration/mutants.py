"""Planted errors: methods that claim what they do not do, and rows in which it shows."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from enumeration.cases import (
    ASIDE,
    AUTO,
    BAGS,
    CASES,
    ERRORS,
    FOLDS,
    FULL,
    HONEST,
    KERNELS,
    LAZY_SEED,
    LEVELS,
    LINE,
    NEAR,
    PATHS,
    PLACES,
    REMEMBERED,
    RIDGES,
    SCALED,
    SCALES,
    SINGULAR,
    THIRDS,
    TIED,
    TOGETHER,
    TWO,
    TWO_VALUES,
    UNITS,
    Case,
    Changed,
    Parted,
    claiming,
    each,
    every,
    folded,
    lazy,
    one,
    private,
)
from enumeration.exact import Method
from lazyknife.base import Plain
from lazyknife.choosing.rows import drawn_part
from lazyknife.data.own_scaling import own_scales
from lazyknife.estimators.fit_shared import PartedStep
from lazyknife.intervals import CONSTRUCTIONS, Construction
from lazyknife.intervals.full_conformal import FullModels
from lazyknife.intervals.order import kth_largest, kth_smallest
from lazyknife.networks import CANDIDATES, mlp, wide
from lazyknife.records import Ends
from lazyknife.results import Intervals
from reference import Array

Change = Callable[[Any, Array, Array], Any]  # of a fitted model, knowing its rows


def changed(method: Method, change: Change) -> Method:
    """The method with every fitted model replaced."""
    return lambda X, y: [(p, change(model, X, y)) for p, model in method(X, y)]


def one_rank_more(model: Any, X: Array, y: Array) -> Changed:
    return Changed(model, model.certificate_, alpha=model.alpha + 1 / (len(y) + 1))


def one_of_four_more(model: Any, X: Array, y: Array) -> Changed:
    return Changed(model, model.certificate_, alpha=model.alpha + 1 / 5)


def without_ties(model: Any, X: Array, y: Array) -> Changed:
    def inwards(found: Intervals) -> Intervals:
        return replace(found, lower=found.lower + 1e-9, upper=found.upper - 1e-9)

    return Changed(model, model.certificate_, after=inwards)


def bare_plus(loo: Any, X: torch.Tensor, ranks: Sequence[int]) -> Ends:
    """Ends without any allowance for rounding."""
    found, margins = loo.scaled(X), loo.residuals.abs()
    each = found.each
    return found.point, kth_smallest(each - margins, ranks), kth_largest(each + margins, ranks)


def bare_minmax(loo: Any, X: torch.Tensor, ranks: Sequence[int]) -> Ends:
    """Likewise."""
    found, margin = loo.scaled(X), kth_largest(loo.residuals.abs(), ranks)
    each = found.each
    least, most = each.amin(dim=1, keepdim=True), each.amax(dim=1, keepdim=True)
    return found.point, least - margin, most + margin


BARE_PLUS = replace(CONSTRUCTIONS["plus"], ends=bare_plus)
BARE_MINMAX = replace(CONSTRUCTIONS["minmax"], ends=bare_minmax)


def refitted(model: Any, X: Array, y: Array, **settings: Any) -> Any:
    """The estimator with other settings, fitted to the same rows."""
    return type(model)(**model.get_params(deep=False) | settings).fit(X, y)


def constructed(construction: str | Construction) -> Change:
    """Another construction under the same certificate."""
    return lambda model, X, y: Changed(
        refitted(model, X, y, construction=construction), model.certificate_
    )


def at_one_ridge(model: Any, X: Array, y: Array) -> Any:
    """All models have the λ that the full one chose."""
    return refitted(model, X, y, ridge=float(model.ridge_[-1]))


def at_one_place(model: Any, X: Array, y: Array) -> Any:
    """All models have the network, its scale and the λ that the full one chose."""
    choice = model.choice_
    network = CANDIDATES[choice.network[-1]]
    settings = {"ridge": float(choice.ridge[-1]), "feature_weights": None}
    (scale,) = choice.weights[-1].tolist()
    return refitted(model, X, y, network=replace(network, scale=scale), **settings)


def in_one_frame(model: Any, X: Array, y: Array) -> Changed:
    """Features are scaled by all training rows."""
    frame = own_scales([torch.from_numpy(X)])[0]

    def scaled(rows: Array) -> Array:
        return frame.apply(torch.from_numpy(rows)).numpy()

    same = refitted(model, scaled(X), y, scaling=None)
    return Changed(same, same.certificate_, before=scaled)


def without_the_new_row(model: Any, X: Array, y: Array) -> Changed:
    """Full conformal prediction at what the training rows alone choose."""
    bold = copy.copy(model)
    bold.loo_ = FullModels(*(getattr(model.loo_, each.name) for each in fields(FullModels)))
    return Changed(bold, model.certificate_)


def less_the_median(model: Any, X: Array, y: Array) -> Changed:
    """Features are scaled by a model's own rows after the median of all rows was subtracted."""
    middle = np.median(X, axis=0)
    same = refitted(model, X - middle, y)
    return Changed(same, same.certificate_, before=lambda rows: rows - middle)


def without_doubts(model: Any, X: Array, y: Array) -> Changed:
    """Models whose candidates could not be compared count like others."""
    bold = copy.copy(model)
    bold.loo_ = replace(model.loo_, doubtful=torch.zeros_like(model.loo_.doubtful))
    return Changed(bold, SimpleNamespace(coverage=1 - 1 / (len(y) + 1)))


def first_row_twice(model: Any, X: Array, y: Array) -> Any:
    """Rows are not treated alike: the first counts twice."""
    return refitted(model, np.r_[X[:1], X], np.r_[y[:1], y])


def standardised(model: Any, X: Array, y: Array) -> Changed:
    """The leak that the library names, without its objection."""
    return Changed(refitted(model, X, y, scaling="standardize"), model.certificate_)


def trained(model: Any, X: Array, y: Array) -> Changed:
    """Base weights that remember all rows, under the certificate of public ones."""
    base = Plain(epochs=30, lr=0.1)
    return Changed(refitted(model, X, y, base=base), model.certificate_)


def on_one_scale(model: Any, X: Array, y: Array) -> Any:
    """The scale of y begins at the smallest of all y."""
    start = y.min() - 0.01
    return refitted(
        model, X, y, target_transform=(lambda y: np.log(y - start), lambda z: np.exp(z) + start)
    )


@dataclass(frozen=True)
class AllScored(PartedStep):
    """Rows set aside are left out too."""

    def models(self, X: torch.Tensor, y: torch.Tensor) -> Any:
        own = drawn_part(len(y), self.seed)
        passes, choice, _ = self.chosen(X[own], y[own], len(y))
        return passes.models(X, y, torch.arange(len(y))), choice


class ScoredToo(Parted):
    def _step_for(self, *terms: Any) -> Any:
        return AllScored(**vars(super()._step_for(*terms)))


def all_scored(rows: Any, **settings: Any) -> Case:
    """One bag of two rows set aside, two others and a new one."""
    own = drawn_part(4, LAZY_SEED).tolist()
    case = one(lazy(kind=ScoredToo, **ASIDE, **settings), rows)
    return case._replace(blocks=[own, [row for row in range(4) if row not in own]])


ALONE = {"network": wide("laplace", 1.0), "ridge": 0.1, "feature_weights": None}
WEAK = {"network": mlp((8,)), "widths": "constant", "ridge": 1e3}  # the base decides
TRUE_EPSILON = math.log(HONEST / (1 - HONEST))

MINMAX = {**LINE, "construction": "minmax"}
MUTANTS: dict[str, list[Case]] = {
    "one rank more": each(changed(lazy(**LINE), one_rank_more), *BAGS),
    "one rank more, minmax": each(changed(lazy(**MINMAX), one_rank_more), TWO_VALUES),
    "one rank more, full": each(changed(lazy(**FULL), one_rank_more), *BAGS),
    "ties missed": [every(changed(lazy(**LINE), without_ties), TIED, 4)],
    "ties missed, full": [every(changed(lazy(**FULL), without_ties), TIED, 4)],
    "rounding, plus": [every(changed(lazy(**LINE), constructed(BARE_PLUS)), TWO, 6)],
    "rounding, minmax": [every(changed(lazy(**MINMAX), constructed(BARE_MINMAX)), THIRDS, 3)],
    "κ/(n + 1) claimed for plus": [one(claiming(lazy(2, **LINE), 2 / 5), SCALES)],
    "errors on training rows": each(changed(lazy(**LINE), constructed("naive")), ERRORS),
    "around the full model": each(changed(lazy(**LINE), constructed("jackknife")), ERRORS),
    "folds not left out": [folded(one(changed(lazy(**FOLDS), constructed("naive")), ERRORS))],
    "λ chosen once": each(changed(lazy(**AUTO), at_one_ridge), RIDGES),
    "λ chosen without the new row": each(
        changed(lazy(**FULL | {"ridge": "auto"}), without_the_new_row), LEVELS
    ),
    "all chosen without the new row": each(
        changed(lazy(construction="full"), without_the_new_row), TOGETHER
    ),
    "places chosen once": each(changed(lazy(), at_one_place), PLACES),
    "features scaled by all rows": each(changed(lazy(), in_one_frame), SCALES),
    "features less the median of all rows": each(changed(lazy(**SCALED), less_the_median), NEAR),
    "doubts ignored": each(changed(lazy(**PATHS), without_doubts), SINGULAR),
    "scaled without the new row": each(changed(lazy(**FULL | ALONE), in_one_frame), UNITS),
    "features standardised by all rows": each(changed(lazy(**LINE), standardised), RIDGES),
    "scale of y by all rows": each(changed(lazy(**AUTO), on_one_scale), RIDGES),
    "base trained on all rows": each(changed(lazy(**WEAK), trained), SCALES),
    "rows set aside are scored": [all_scored(SCALES, construction="plus")],
    "rows set aside are scored, full": [all_scored(SCALES, construction="full")],
    "one rank more, rows set aside": [
        case._replace(method=changed(case.method, one_of_four_more))
        for case in CASES["rows set aside, full"][:5]
    ],
    "one rank more, split": [
        case._replace(method=changed(case.method, one_of_four_more))
        for case in CASES["rows set aside, split"][:5]
    ],
    "ties missed, rows set aside": [
        case._replace(method=changed(case.method, without_ties))
        for case in CASES["rows set aside, full"][5:]
    ],
    "memory without privacy": each(claiming(private(widths="constant"), 1 / 4), REMEMBERED),
    "half of ε": each(
        claiming(private(widths="constant"), math.exp(TRUE_EPSILON / 2) / 4), REMEMBERED
    ),
}

# Found by another order of the rows, since an enumeration fits only one of them.
UNLIKE_ROWS: dict[str, list[Case]] = {
    "the first row counts twice": each(changed(lazy(**LINE), first_row_twice), SCALES),
    "the first row counts twice, default": each(changed(lazy(), first_row_twice), SCALES),
    "the first row counts twice, choosing": each(changed(lazy(**KERNELS), first_row_twice), SCALES),
}
