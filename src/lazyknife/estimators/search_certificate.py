"""What a search over settings leaves of a certificate.

A search that compares K settings on the training rows chooses by looking at them. Whatever it
chooses, a miss of the chosen setting is a miss of one of the K, each fixed before looking:

    P(miss) ≤ Σₖ P(setting k misses) ≤ Σₖ (1 − coverage certified for setting k).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

from .. import sentences
from ..certificate import Certificate
from ..certificate.certify import claim_of, start_assumptions
from .base import IntervalRegressor
from .lazy import LazyJackknifeRegressor

LISTED = (GridSearchCV, RandomizedSearchCV)  # searches whose settings do not depend on the rows
PLANNED = {"alpha", "construction", "base", "folds", "network"}  # what a bound is known from
UNKNOWN = {"scaling", "encoding", "calibration"}  # what else a bound depends on


def after_search(search: Any) -> Certificate:
    """Return the certificate of the best estimator of a search over settings.

    The certificate of ``search.best_estimator_`` itself assumes that no setting was chosen by
    looking at the rows, which a search does. This one adds up what each of the compared settings
    may miss, so that it holds for the chosen one. With many settings or a large ``alpha`` little or
    nothing is left; search on some rows and fit a clone on the others to lose nothing.

    Parameters
    ----------
    search
        A fitted ``GridSearchCV`` or ``RandomizedSearchCV`` around an estimator of lazyknife.
        Other searches are certified nothing.

    """
    best = getattr(search, "best_estimator_", None)
    if not isinstance(best, IntervalRegressor):
        raise TypeError(
            f"search={search!r}: give a fitted search, with refit=True, over an estimator of "
            "lazyknife itself, not a pipeline around it"
        )
    own = replace(best.certificate_, remarks=_without_note(best.certificate_))
    if not isinstance(search, LISTED):
        return _refused(own, sentences.ADAPTIVE)
    return _of_any(own, [_certified(search, best, each) for each in search.cv_results_["params"]])


def _certified(search: Any, best: IntervalRegressor, params: dict[str, Any]) -> Certificate | None:
    """Return the certificate of a compared setting on all rows; None where it is not known."""
    varied = {key.partition("__")[0] for each in search.cv_results_["params"] for key in each}
    model = clone(search.estimator).set_params(**clone(params, safe=False))
    found, lazy = best.certificate_, isinstance(best, LazyJackknifeRegressor)
    if varied & UNKNOWN or (varied & PLANNED - {"network"} and not lazy):
        return None
    if lazy:
        rows = best._rows_like.new_zeros(1).expand(best.n_samples_fit_, *best._rows_like.shape[1:])
        leaving = model._leaving(rows)
        construction = model._construction_of(rows)
        if varied & PLANNED or (construction, leaving) != (best.construction_, best._leaving(rows)):
            terms = (construction, model._base_method(), model.network, model.folds)
            found = claim_of(len(rows), leaving, *terms)(model.alpha)
    return replace(found, assumptions=(*found.assumptions, *start_assumptions(model.network)))


def _of_any(own: Certificate, compared: list[Certificate | None]) -> Certificate:
    """Return what holds for any of the compared settings, in the words of the chosen one."""
    if own.coverage is None:
        return own
    known = [each for each in compared if each is not None and each.coverage is not None]
    if len(known) < len(compared):
        return _refused(own, sentences.WITHOUT_BOUND)
    coverage = max(0.0, 1 - sum(1 - (each.coverage or 0.0) for each in known))
    terms = {"count": len(known)}
    scope = own.scope
    if any(sentences.OVER_SEEDS in each.scope for each in known):
        scope = scope.replace(sentences.MARGINAL, sentences.OVER_SEEDS)
    assumed = [one for each in (own, *known) for one in each.assumptions]
    only = sentences.ONLY_SEARCHED.format(**terms)
    return replace(
        own,
        coverage=coverage,
        more="",
        bounds={**own.bounds, "search": coverage},
        assumptions=tuple(
            dict.fromkeys(only if one == sentences.UNTUNED else one for one in assumed)
        ),
        scope=scope,
        subject=f"{own.subject}, chosen among {len(known)} settings",
        remarks=(*own.remarks, sentences.UNION.format(**terms)),
    )


def _refused(own: Certificate, why: str) -> Certificate:
    """Return a certificate without a guarantee, and the reason."""
    objection = sentences.SEARCHED.format(why=why)
    return replace(own, coverage=None, bounds={}, objections=(*own.objections, objection))


def _without_note(certificate: Certificate) -> tuple[str, ...]:
    """Return the remarks but for the one that points here."""
    note = sentences.SET_LATER.partition("{")[0]
    return tuple(each for each in certificate.remarks if not each.startswith(note))
