"""From a construction's miss bound and a base's privacy curve to a certificate, and its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .. import sentences
from ..base import BASES, BaseMethod, check_base, check_trainable
from ..base.privacy import composed
from ..choosing.rows import FEWEST_PARTED, Leaving
from ..data.checks import (
    check_folds,
    check_fraction,
    check_level,
    check_not_negative,
    check_positive_int,
)
from ..intervals import (
    AUTO,
    CONSTRUCTIONS,
    Bound,
    Construction,
    check_construction,
    find_construction,
    is_own,
    is_parted,
    kappa,
    resolved,
)
from ..intervals.constructions import clusters_miss
from ..intervals.models import rounding_objections
from ..networks import CANDIDATES, listed_networks, mlp, wide
from ..records import INDEPENDENT, PrivacyCurve, RoundedModels, Side

Sentences = tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Certificate:
    """A coverage guarantee. It prints what to expect, and what is guaranteed for whom.

    Attributes
    ----------
    coverage
        The certified probability that an interval contains the true y; 0.0 where the bound is
        vacuous, None where nothing is guaranteed.
    bounds
        ``"ghost_point"``: the certified bound (the baselines name their own theorem instead).
        ``"paper"``: Theorem 1 of the paper, if its stability η was given; for comparison only,
        as ``"paper_literal"``, its value at the (ε, δ) that the paper's experiments state.
    assumptions
        The conditions of the guarantee.
    scope, rows
        The rows it applies to, and what it averages over.
    subject
        The method, n and alpha.
    objections
        The reasons why nothing is guaranteed, if so.
    remarks
        The theorem used, and what readers should know about the base.
    expected, more
        What to expect without a guarantee, and what another construction would certify, if more.

    """

    coverage: float | None
    bounds: Mapping[str, float]
    assumptions: tuple[str, ...]
    scope: str
    subject: str
    objections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    expected: str = ""
    rows: str = sentences.ANY_ROW
    more: str = field(default="", compare=False)

    @property
    def details(self) -> str:
        """All of it: the theorem, what it averages over, and what it assumes."""
        lines = [self.headline, f"About: {self.subject}.", *self.remarks]
        if self.coverage:
            lines += [f"Scope: {self.scope}.", "It assumes:"]
            lines += [f"  - {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{self.headline}\n({self.subject}; {sentences.DETAILS})"

    @property
    def headline(self) -> str:
        """What to expect, and what is guaranteed."""
        if self.coverage is None:
            return f"{sentences.NO_GUARANTEE}. {' '.join(self.objections)}"
        if self.coverage == 0.0:
            return f"{self.expected} {sentences.VACUOUS}: it certifies no coverage."
        terms = {"coverage": sentences.percent(self.coverage), "more": self.more, "rows": self.rows}
        return f"{self.expected} {sentences.GUARANTEE.format(**terms)}".strip()


class About(NamedTuple):
    """What is asked beside a level, as far as a certificate has to know."""

    side: Side = "both"
    n: int | None = None  # rows that the new one is compared with; None: all that are left out
    miss: Callable[[float], float] | None = None  # of a level, in place of the construction's bound
    rows: str = "{rows}"  # that it applies to, from those without the question
    subject: str = ""  # added to the subject
    exchangeable: str = sentences.EXCHANGEABLE  # what takes the place of exchangeability
    construction: str | None = None  # that answers, in place of that of the fit


NOTHING_ELSE = About()
SPLIT_NEEDS = (
    "{setting}: construction='split' requires infinitely wide networks of known kinds, and at "
    f"least {FEWEST_PARTED} rows: use network=None and base=None, or SplitConformalRegressor"
)
# What the paper's theorem is about; intervals of minmax contain those of plus.
PAPERS = (("ghost_point", "plus"), ("ghost_point", "minmax"))


def certifying(names: Iterable[str] = CONSTRUCTIONS) -> list[str]:
    """Those of the constructions that have a coverage guarantee."""
    return [name for name in names if CONSTRUCTIONS[name].miss is not None]


def certify(
    *,
    n: int,
    alpha: float,
    construction: str | Construction = AUTO,
    base: BaseMethod | None = None,
    network: Any = None,
    folds: int = 10,
    eta: float | None = None,
    nu: float | None = None,
    n_parameters: int | None = None,
    confidence: float | None = None,
) -> Certificate:
    """Return the certificate that a fit would carry, before any training.

    It is that of ``LazyJackknifeRegressor`` with these settings, the others being the default ones.

    Parameters
    ----------
    n
        Number of rows that will be passed to ``fit``. A ``Split`` base sets some of them aside, and
        so does the default network with more than 1,000 rows: the certificate counts the others.
    alpha
        Level of the intervals.
    construction
        ``"auto"`` or a key of ``CONSTRUCTIONS``; of an object of your own nothing is known.
    base
        How the base weights are obtained; None is ``Public()``, as in ``LazyJackknifeRegressor``.
    network, folds
        As in ``LazyJackknifeRegressor``.
    eta, nu
        The paper's stability: the two models of its condition differ by more than ν/2 with
        probability at most η. Assumed, or measured by ``audit_stability``.
    n_parameters
        Number of trained weights; it sharpens the bound of ``Perturbed`` in the l2 norm.
    confidence
        Certify the coverage of a given training set instead of the average over training sets: that
        of this share of all sets. For constructions ``"split"`` and ``"cv+"``.

    """
    check_positive_int("n", n)
    check_construction(construction, (AUTO, *CONSTRUCTIONS))
    if n_parameters is not None:
        check_positive_int("n_parameters", n_parameters)
    for argument, value in (("eta", eta), ("nu", nu)):
        if value is not None:
            check_not_negative(argument, value)
    method = check_base(base)
    check_trainable(method, network)
    construction = construction_for(n, construction, method, network)
    leaving = left_out(n, construction, method)
    if find_construction(construction).splits and (method.trains or n < FEWEST_PARTED):
        raise ValueError(SPLIT_NEEDS.format(setting=f"n={n}, base={method}"))
    claim = claim_of(n, leaving, construction, method, network, folds, n_parameters)
    if confidence is not None:
        check_fraction("confidence", confidence)
    return claim(check_level("alpha", alpha), eta, nu, confidence=confidence)


def construction_for(
    n: int, construction: str | Construction, base: BaseMethod, network: Any
) -> str | Construction:
    """The construction that ``LazyJackknifeRegressor`` uses for n rows, by default."""
    networks = listed_networks(network)
    if networks is None and network is None and not base.trains:
        networks = CANDIDATES
    parted = networks is not None and is_parted(base.rows_left(n), networks, construction, None)
    return resolved(construction, parted)


def left_out(n: int, construction: str | Construction, base: BaseMethod) -> Leaving:
    """Which of n rows ``LazyJackknifeRegressor`` leaves out, by default; "auto" as any other."""
    construction = resolved(construction, False)
    return find_construction(construction).leaving(base.rows_left(n))


def claim_of(
    n: int,
    leaving: Leaving,
    construction: str | Construction,
    base: BaseMethod,
    network: Any,
    folds: int,
    n_parameters: int | None = None,
) -> Claim:
    """Return what a lazy jackknife of n rows can claim, before any training."""
    learnt, networks = n - base.rows_left(n), listed_networks(network)
    check_folds(folds, leaving.rows if find_construction(construction).uses_folds else math.inf)
    dependence = base.dependence(learnt or n, n_parameters)
    if networks is not None:  # finite ones have a base each, the others need none
        dependence = composed([dependence for each in networks if not isinstance(each, wide)])
    assumptions = start_assumptions(network)
    return lazy_claim(construction, base, dependence, leaving, folds, assumptions=assumptions)


def lazy_claim(
    construction: str | Construction,
    base: BaseMethod,
    dependence: PrivacyCurve | None,
    leaving: Leaving,
    folds: int = 10,
    assumptions: Sentences = (),
    objections: Sentences = (),
    **scope: Any,
) -> Claim:
    """Return what a lazy jackknife can claim whose base has this dependence."""
    name, (n, apart, coins) = type(base).__name__, leaving
    shown = f" with {folds} folds" if find_construction(construction).uses_folds else ""
    if dependence is None:
        objections += (sentences.NOT_PRIVATE.format(base=name),)
    own = dependence is not None and type(base) not in BASES.values()
    assumed = (sentences.OWN_BASE.format(base=name),) if own else ()
    parted = sentences.SPLIT if find_construction(construction).splits else sentences.PARTED
    remarks = (parted.format(count=apart),) if apart else ()
    return Claim(
        subject=f"construction {{construction}}{shown}, n = {n}, {name} base",
        construction=construction,
        n=n,
        folds=folds,
        coins=coins,
        dependence=dependence,
        assumptions=(*assumed, *base.assumptions, *assumptions),
        objections=objections,
        remarks=(*base.remarks, *remarks),
        **scope,
    )


def start_assumptions(network: Any) -> tuple[str, ...]:
    """What the certificate must assume about networks and kernels that the user brings."""
    every = listed_networks(network) or (network,)
    kernels = [each for each in every if isinstance(each, wide) and callable(each.kind)]
    modules = [each for each in every if not isinstance(each, wide | mlp | None)]
    found = ((sentences.PUBLIC_START, modules), (sentences.PUBLIC_KERNEL, kernels))
    return tuple(sentence for sentence, given in found if given)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a certificate is about; called with a level, it gives the certificate.

    ``dependence`` carries the construction's bound, which is that of a base that treats all n + 1
    rows alike, over to the base that ran. Without it, or with any objection, there is no guarantee.
    """

    subject: str  # the method, and n; "{construction}" stands for that which answers
    construction: str | Construction
    n: int  # rows that are left out
    folds: int = 1
    coins: bool = False  # whether coins tell which rows make choices
    dependence: PrivacyCurve | None = INDEPENDENT
    theorem: str = "ghost_point"  # a key of ``THEOREMS``
    assumptions: Sentences = ()
    objections: Sentences = ()
    remarks: Sentences = ()
    rows: str = sentences.ANY_ROW  # that it applies to
    new_rows: int | None = None  # their number, where it is known
    available: Sentences = tuple(CONSTRUCTIONS)  # to suggest instead of one without a bound
    others: Sentences = ()  # constructions that would do, and may certify more

    def __call__(
        self,
        alpha: float,
        eta: float | None = None,
        nu: float | None = None,
        about: About = NOTHING_ELSE,
        confidence: float | None = None,
    ) -> Certificate:
        """Return the certificate at a level, and with η the paper's bound.

        ``confidence``: of a given training set, for this share of all of them.
        """
        if about.construction is not None:
            other = replace(self, construction=about.construction, others=())
            return other(alpha, eta, nu, about._replace(construction=None), confidence)
        dependence, assumptions = self.dependence, self.assumptions
        objections, remarks = self.objections, self.remarks
        independent = dependence is not None and dependence.total_variation == 0.0
        miss, needed, any_seed = Bound(None)
        expects = "about"
        if is_own(self.construction):
            objections += (self._without_bound(sentences.OWN_CONSTRUCTION),)
        else:
            kind, n = find_construction(self.construction), self.n if about.n is None else about.n
            given, expects = (alpha, n, self.folds), kind.expects
            independent = independent and about.n is None  # folds of some rows are not equal
            miss, needed, any_seed = kind.bound(*given, independent, self.new_rows, self.coins)
            if miss is not None and about.miss is not None:
                miss, needed, any_seed = about.miss(alpha), 1, not self.coins
            objections += () if miss is not None else (self._without_bound(sentences.NO_THEOREM),)
            if confidence is not None and miss is not None:
                objections += self._against_given_sets(kind, independent)
                of_most, needed, any_seed = kind.miss_of_most_sets, 1, True
                if of_most is not None:
                    miss = of_most(kappa(alpha, n), n, self.folds, confidence)
        if needed > 1:
            assumptions += (sentences.FOLD_OF_NEW_ROWS.format(count=needed),)
        bounds: dict[str, float] = {}
        rows, exchangeable = about.rows.format(rows=self.rows), about.exchangeable
        theorem = self.theorem
        scope = sentences.MARGINAL if any_seed else sentences.OVER_SEEDS
        if confidence is not None:
            sets = sentences.MOST_SETS.format(rows=rows, share=sentences.percent(confidence))
            rows, scope = sets, sentences.GIVEN_ROWS
            exchangeable, theorem = sentences.INDEPENDENT_ROWS, "most_sets"
        if miss is not None and dependence is not None:
            if not objections:
                bounds[theorem] = max(0.0, 1 - dependence.transfer(miss))
                reason = sentences.THEOREMS[theorem].format(tau=dependence.total_variation)
                drawn = (sentences.ANY_PART,) if self.coins and any_seed else ()
                remarks = (reason, *drawn, *remarks)
            if eta is not None and (self.theorem, self.construction) in PAPERS:
                bounds["paper"] = paper_bound(alpha, dependence, eta)
                bounds["paper_literal"] = paper_bound(alpha, dependence, eta, literal=True)
                widened = "ν" if nu is None else f"ν = {nu:g}"
                remarks += (sentences.PAPER.format(**bounds, eta=eta, nu=widened),)
        if about.exchangeable != sentences.EXCHANGEABLE:
            assumptions = tuple(one for one in assumptions if one != sentences.POOLED)
        every = (exchangeable, sentences.UNTUNED, *assumptions)
        subject = self.subject.replace("{construction}", repr(self.construction))
        share, more = sentences.percent(1 - alpha), ""
        if bounds and about is NOTHING_ELSE and confidence is None:
            more = self._more(alpha, independent, bounds[theorem])
        return Certificate(
            bounds.get(theorem),
            bounds,
            tuple(dict.fromkeys(every)),
            f"{rows}; {scope}",
            f"{subject}{about.subject}, alpha = {alpha:g}",
            objections,
            remarks,
            sentences.EXPECT[about.side].format(about=expects, share=share),
            rows,
            more,
        )

    def _more(self, alpha: float, independent: bool, coverage: float) -> str:
        """Name a construction that certifies more of the same rows; empty if none does."""
        found = list[tuple[float, str]]()
        for name in self.others:
            kind, dependence = find_construction(name), self.dependence
            miss = kind.bound(alpha, self.n, self.folds, independent, self.new_rows).miss
            if miss is not None and dependence is not None:
                found.append((1 - dependence.transfer(miss), name))
        best, name = max(found, default=(0.0, ""))
        terms = {"coverage": sentences.percent(max(best, 0.0)), "construction": name}
        return sentences.MORE.format(**terms) if best > coverage else ""

    def _against_given_sets(self, kind: Construction, independent: bool) -> Sentences:
        """Why nothing is known of a given training set, if so."""
        if kind.miss_of_most_sets is None:
            known = [name for name, each in CONSTRUCTIONS.items() if each.miss_of_most_sets]
            terms = {"construction": self.construction, "others": sentences.either(known)}
            return (sentences.NO_GIVEN_SET.format(**terms),)
        clean = independent and self.rows == sentences.ANY_ROW
        return () if clean else (sentences.SEEN_GIVEN_SET,)

    def _without_bound(self, sentence: str) -> str:
        others = sentences.either(certifying(self.available))
        return sentence.format(construction=self.construction, others=others)


def paper_bound(alpha: float, dependence: PrivacyCurve, eta: float, literal: bool = False) -> float:
    """Theorem 1 of the paper: 1 − 2α − 3√(2η + 2ε + δ); 0.0 if vacuous.

    Its proof needs (ε, δ) under replacing one row. ``literal`` takes them under adding or removing
    one, as DP-SGD's settings and the paper's experiments state them.
    """
    epsilon, delta = dependence.add_remove if literal else dependence.replace_one
    return max(0.0, 1 - 2 * alpha - 3 * math.sqrt(2 * eta + 2 * epsilon + delta))


@dataclass(frozen=True)
class Certifier:
    """From a level to the certificate of a fit, rounding included."""

    claim: Claim
    loo: RoundedModels
    size: float  # the largest size of y
    columns: str | None  # a clause on columns in unlike units; None: models scale them

    def __call__(self, alpha: float, **terms: Any) -> Certificate:
        objections = (*self.claim.objections, *self.rounded(alpha))
        return replace(self.claim, objections=objections)(alpha, **terms)

    def rounded(self, alpha: float) -> Sentences:
        """Why rounding leaves no guarantee, if so."""
        allows = find_construction(self.claim.construction).tolerates_undetermined
        tolerated = max(kappa(alpha, self.claim.n) - 1, 0) if allows else 0
        return rounding_objections(self.loo, tolerated, alpha, self.size, self.columns)


@dataclass(frozen=True)
class Noted:
    """Certificates that say which settings were set after the estimator was made."""

    certify: Callable[..., Certificate]
    names: tuple[str, ...]

    def __call__(self, alpha: float, **terms: Any) -> Certificate:
        found, names = self.certify(alpha=alpha, **terms), ", ".join(self.names)
        remark = sentences.SET_LATER.format(names=names)
        return replace(found, remarks=(*found.remarks, remark))


@dataclass(frozen=True)
class Worded:
    """Certificates of what is no interval: with a sentence and assumptions of their own."""

    certify: Callable[..., Certificate]
    expected: str
    assumptions: Sentences = ()
    about: str = "about"  # how coverage compares with 1 − alpha

    def __call__(self, alpha: float, **terms: Any) -> Certificate:
        found = self.certify(alpha=alpha, **terms)
        terms = {"about": self.about, "share": sentences.percent(1 - alpha)}
        assumptions = (*found.assumptions, *self.assumptions)
        return replace(found, expected=self.expected.format(**terms), assumptions=assumptions)


@dataclass(frozen=True)
class Clustered:
    """Certificates for a row of a new cluster, where whole clusters are left out."""

    certify: Callable[..., Certificate]
    clusters: int

    def __call__(self, alpha: float, about: About = NOTHING_ELSE, **terms: Any) -> Certificate:
        own = about._replace(
            n=None,
            miss=self.miss,
            rows=sentences.NEW_CLUSTER,
            subject=f", {self.clusters} clusters",
            exchangeable=sentences.CLUSTERS,
        )
        return self.certify(alpha=alpha, about=own, **terms)

    def miss(self, alpha: float) -> float:
        return clusters_miss(alpha, self.clusters)
