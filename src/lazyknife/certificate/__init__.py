"""What coverage is guaranteed, by which theorem, on what condition; and the way back, `plan`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..base import DPSGD, BaseMethod
from ..base.roots import falling_root
from ..data.checks import (
    check_choice,
    check_fraction,
    check_not_negative,
    check_positive_int,
)
from ..intervals import CONSTRUCTIONS, kappa, miss_bound, rows_needed
from ..records import PrivacyCurve

EXCHANGEABLE = (
    "The training rows and the new row are exchangeable (for instance independent draws)."
)
UNTUNED = "No setting was chosen by looking at these rows."
MARGINAL = (
    "on average over the training rows, the algorithm's own randomness and the new row; not for "
    "a given training set, nor for a given x"
)


@dataclass(frozen=True, repr=False)
class Certificate:
    """A coverage guarantee, printed as sentences.

    Attributes
    ----------
    coverage
        The certified probability that an interval holds its y; 0.0 where the bound is vacuous,
        None where nothing is guaranteed.
    bounds
        ``"ghost_point"``: the certified bound (the baselines name their own theorem instead).
        ``"paper"``: Theorem 1 of the paper, where its stability η was given; shown, never counted.
    assumptions
        What the guarantee rests on.
    scope
        For which rows, and over what it is an average.
    subject
        The method, n and alpha that it is about.
    objections
        Why nothing is guaranteed, if so.

    """

    coverage: float | None
    bounds: Mapping[str, float]
    assumptions: tuple[str, ...]
    scope: str
    subject: str
    objections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = [self._headline(), *self.remarks]
        if self.coverage:
            lines += [f"Scope: {self.scope}.", "It assumes:"]
            lines += [f"  - {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.coverage is None:
            reasons = " ".join(self.objections)
            return f"No coverage is guaranteed ({self.subject}). {reasons}"
        if self.coverage == 0.0:
            return f"The guarantee is vacuous: it certifies no coverage ({self.subject})."
        return (
            f"The interval of a new row holds its y with probability at least "
            f"{math.floor(self.coverage * 1e4) / 1e4:.4f} ({self.subject})."
        )


def make_certificate(
    *,
    subject: str,
    theorem: str = "ghost_point",
    miss: float | None,
    dependence: PrivacyCurve | None,
    assumptions: tuple[str, ...] = (),
    objections: tuple[str, ...] = (),
    rows: str = "any new row",
    paper: float | None = None,
    remarks: tuple[str, ...] = (),
) -> Certificate:
    """Put a certificate together from the stages' own words.

    ``miss`` is the construction's bound under a symmetric base, ``dependence`` carries it over to
    the base that ran. Any objection, a missing bound or a missing curve leaves no guarantee.
    """
    bounds: dict[str, float] = {}
    coverage = None
    if miss is not None and dependence is not None and not objections:
        coverage = max(0.0, 1 - dependence.transfer(miss))
        bounds[theorem] = coverage
    if paper is not None:
        bounds["paper"] = paper
    return Certificate(
        coverage,
        bounds,
        tuple(dict.fromkeys((EXCHANGEABLE, UNTUNED, *assumptions))),
        f"{rows}; {MARGINAL}",
        subject,
        objections,
        remarks,
    )


def certify(
    *,
    n: int,
    alpha: float,
    construction: str = "plus",
    base: BaseMethod | None = None,
    folds: int = 10,
    eta: float | None = None,
    nu: float | None = None,
    n_parameters: int | None = None,
) -> Certificate:
    """Return the certificate that a fit would carry, before any training.

    Parameters
    ----------
    n
        Rows that will be passed to ``fit`` (a ``Split`` base sets its part of them aside).
    alpha
        Level of the intervals.
    construction
        A key of ``CONSTRUCTIONS``.
    base
        How the base weights come about; None is the default ``DPSGD()``.
    folds
        Of construction ``"cv+"``.
    eta, nu
        The paper's stability: with probability at most η do the two models of its condition
        differ by more than ν/2. Assumed, or measured by ``audit_stability``.
    n_parameters
        Number of trained weights; it sharpens the bound of ``Perturbed`` in the l2 norm.

    """
    check_positive_int("n", n)
    method = DPSGD() if base is None else base
    left = method.rows_left(n)
    learnt = n if left == n else n - left
    return certificate_for(
        n=left,
        alpha=alpha,
        construction=construction,
        base=method,
        dependence=method.dependence(learnt, n_parameters),
        folds=folds,
        eta=eta,
        nu=nu,
    )


def certificate_for(
    *,
    n: int,
    alpha: float,
    construction: str,
    base: BaseMethod,
    dependence: PrivacyCurve | None,
    folds: int = 10,
    eta: float | None = None,
    nu: float | None = None,
    assumptions: tuple[str, ...] = (),
    objections: tuple[str, ...] = (),
    rows: str = "any new row",
    new_rows: int | None = None,
) -> Certificate:
    """Return the certificate of a lazy jackknife on n rows whose base has this dependence.

    ``new_rows`` is the number of rows that it is about, where that is known.
    """
    check_fraction("alpha", alpha)
    check_choice("construction", construction, CONSTRUCTIONS)
    for argument, value in (("eta", eta), ("nu", nu)):
        if value is not None:
            check_not_negative(argument, value)
    name = type(base).__name__
    independent = dependence is not None and dependence.total_variation == 0.0
    miss, needed = miss_bound(construction, alpha, n, folds, independent, new_rows)
    assumptions += exchangeable_rows(needed)
    if not CONSTRUCTIONS[construction].certifies:
        objections += (f"Construction {construction!r} has no coverage theorem: use 'plus'.",)
    elif miss is None:
        objections += (f"CV+ requires equal folds, and {n} is not divisible by {folds}.",)
    if dependence is None:
        objections += (
            f"The {name} base saw all of the data without privacy: use Public, Split, or DPSGD "
            "with a finite epsilon.",
        )
    paper: float | None = None
    remarks: tuple[str, ...] = base.remarks
    if dependence is not None and miss is not None:
        tau = dependence.total_variation
        if not objections:
            theorem = f"By the ghost-point theorem; the base's total variation is {tau:.4f}."
            remarks = (theorem, *remarks)
        if eta is not None:
            paper = paper_bound(alpha, dependence, eta)
            remarks += (_paper_remark(paper, eta, nu),)
    shown = f"{construction!r} with {folds} folds" if construction == "cv+" else repr(construction)
    return make_certificate(
        subject=f"construction {shown}, alpha = {alpha:g}, n = {n}, {name} base",
        miss=miss,
        dependence=dependence,
        assumptions=(*base.assumptions, *assumptions),
        objections=objections,
        rows=rows,
        paper=paper,
        remarks=remarks,
    )


def exchangeable_rows(needed: int) -> tuple[str, ...]:
    """Return what a theorem assumes that speaks of more than one new row."""
    if needed <= 1:
        return ()
    return (
        f"Not one but {needed} new rows, as many as a fold has, are exchangeable with the training "
        "rows.",
    )


def paper_bound(alpha: float, dependence: PrivacyCurve, eta: float) -> float:
    """Theorem 1 of the paper: 1 − 2α − 3√(2η + 2ε + δ) with replace-one (ε, δ); 0.0 if vacuous."""
    epsilon, delta = dependence.replace_one
    return max(0.0, 1 - 2 * alpha - 3 * math.sqrt(2 * eta + 2 * epsilon + delta))


def _paper_remark(paper: float, eta: float, nu: float | None) -> str:
    relaxation = "ν" if nu is None else f"ν = {nu:g}"
    return (
        f"The paper's Theorem 1 would give {paper:.3f} for intervals widened by {relaxation}, if "
        f"its stability condition held with η = {eta:g}; shown for comparison, not certified."
    )


@dataclass(frozen=True, repr=False)
class Plan:
    """How to reach a wanted coverage.

    Attributes
    ----------
    alpha
        The level to use; None if no level certifies the wanted coverage.
    epsilon
        The ε that the base spends; None for a base without one, or if none is small enough.
    base
        The base to use.
    certificate
        What it certifies; None if there is no plan.
    sentence
        The plan in words.

    """

    alpha: float | None
    epsilon: float | None
    base: BaseMethod
    certificate: Certificate | None
    sentence: str

    def __repr__(self) -> str:
        return self.sentence


def plan(
    *,
    n: int,
    coverage: float,
    construction: str = "plus",
    epsilon: float | None = None,
    base: BaseMethod | None = None,
    alpha: float | None = None,
    folds: int = 10,
) -> Plan:
    """Invert ``certify``: the settings that certify a wanted coverage with n rows.

    Without ``alpha``: the largest alpha that does with this base (or ``DPSGD(epsilon)``). With
    ``alpha``: the most ε that the base may spend.
    """
    check_positive_int("n", n)
    check_fraction("coverage", coverage)
    check_choice("construction", construction, CONSTRUCTIONS)
    if not CONSTRUCTIONS[construction].certifies:
        raise ValueError(
            f"construction={construction!r} certifies nothing: use 'plus', 'minmax' or 'full'"
        )
    if epsilon is not None and (base is not None or alpha is not None):
        raise ValueError("epsilon= goes alone: give epsilon, or base, or (with alpha) neither")
    method = base or (DPSGD() if epsilon is None else DPSGD(epsilon=epsilon))
    left = method.rows_left(n)
    if construction == "cv+" and left % check_positive_int("folds", folds):
        raise ValueError(
            f"folds={folds}: 'cv+' certifies equal folds only, and {left} rows are no multiple"
        )
    goal = _Goal(n, coverage, construction, folds)
    if alpha is None:
        if base is None and epsilon is None:
            raise ValueError("give epsilon= or base= to get an alpha, or alpha= to get an ε")
        return _plan_alpha(goal, method)
    return _plan_epsilon(goal, method, check_fraction("alpha", alpha))


@dataclass(frozen=True)
class _Goal:
    """A coverage to certify."""

    n: int
    coverage: float
    construction: str
    folds: int

    def certificate(self, alpha: float, base: BaseMethod) -> Certificate:
        return certify(
            n=self.n, alpha=alpha, construction=self.construction, base=base, folds=self.folds
        )

    def certified(self, alpha: float, base: BaseMethod) -> float:
        return self.certificate(alpha, base).coverage or 0.0


def _plan_alpha(goal: _Goal, base: BaseMethod) -> Plan:
    """Bisect over κ: only ⌊α(n+1)⌋ matters, and the certificate falls in it."""
    rows = base.rows_left(goal.n)
    low, high = 0, rows  # κ = 0 always "certifies", by an infinite interval
    while low < high:
        middle = (low + high + 1) // 2
        enough = goal.certified(middle / (rows + 1), base) >= goal.coverage
        low, high = (middle, high) if enough else (low, middle - 1)
    spent = base.spent(goal.n)
    if low == 0:
        best = goal.certified(1 / (rows + 1), base)
        return Plan(
            None,
            spent,
            base,
            None,
            f"No alpha certifies {goal.coverage:g} with n = {goal.n} and {base}: finite intervals "
            f"certify at most {best:.4f}. Use more rows, less ε, or construction 'minmax'.",
        )
    alpha = low / (rows + 1)
    certificate = goal.certificate(alpha, base)
    sentence = (
        f"alpha = {alpha:.4g} certifies a coverage of {certificate.coverage:.4f} with n = "
        f"{goal.n}, construction {goal.construction!r} and {base}."
    )
    return Plan(alpha, spent, base, certificate, sentence)


def _plan_epsilon(goal: _Goal, base: BaseMethod, alpha: float) -> Plan:
    """Find the least noise whose certificate reaches the wanted coverage."""
    n, rank = goal.n, kappa(alpha, goal.n)
    if rank == 0:
        return Plan(
            None,
            None,
            base,
            None,
            f"No ε to plan at alpha = {alpha:g} with n = {n}: the intervals are infinite, whatever "
            f"the base. At least {rows_needed(alpha)} rows are needed.",
        )
    miss = miss_bound(goal.construction, alpha, n, goal.folds, independent=False).miss
    assert miss is not None
    if 1 - miss <= goal.coverage:
        return Plan(
            None,
            None,
            base,
            None,
            f"No ε certifies {goal.coverage:g} at alpha = {alpha:g} with n = {n}: even weights "
            f"that never saw the data certify only {1 - miss:.4f}. Use a smaller alpha.",
        )

    def shortfall(log_noise: float) -> float:
        return goal.coverage - goal.certified(alpha, base.with_noise(math.exp(log_noise)))

    chosen = base.with_noise(math.exp(falling_root(shortfall, 0.0, 1.0) + 4e-4))
    certificate = goal.certificate(alpha, chosen)
    spent = chosen.spent(n)
    sentence = (
        f"At alpha = {alpha:g} with n = {n} and construction {goal.construction!r} a base may "
        f"spend up to ε = {spent:.4g} and still certify {certificate.coverage:.4f}: {chosen}."
    )
    return Plan(alpha, spent, chosen, certificate, sentence)
