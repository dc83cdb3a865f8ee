"""What all rows and a new one choose, for every y at once, against a search for each y."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import lazyknife as lk
import reference
from lazyknife.choosing.candidates import Candidate
from lazyknife.choosing.every_y import begin, below, walk
from lazyknife.choosing.per_model import TIE, ModelSearch, PointValues, coordinate_search
from lazyknife.choosing.rows import SEARCHED
from lazyknife.choosing.space import CandidateKernels, GridPoint
from lazyknife.data.own_scaling import own_scales
from lazyknife.estimators.fit_full import (
    EXTREME,
    FramedRows,
    FullStep,
    _Joint,
    chosen_share,
    coins,
)
from lazyknife.intervals import kappa
from lazyknife.tangent import EXACT
from machines import MACHINE
from reference import Array

NETWORKS = [lk.wide("gaussian"), lk.wide("anova_laplace"), lk.wide("laplace", squash=True)]


class Case(NamedTuple):
    X: torch.Tensor
    y: torch.Tensor
    x: torch.Tensor  # the new row, (1, features)
    step: FullStep

    @property
    def known(self) -> FramedRows:
        """Training rows, scaled as those and the new one are."""
        frame = own_scales([torch.cat([self.X, self.x])])[0]
        return FramedRows(self.step, self.X, self.y, frame)


def case(n: int, features: int, seed: int, **settings: object) -> Case:
    """Rows with a step, of which some features count; targets with an outlier now and then."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 1, features))
    y = np.sign(X[:, 0]) + 0.5 * X[:, -1] + 0.5 * rng.normal(size=n + 1)
    y[0] += 5 * (seed % 3 == 2)
    candidates = [Candidate(str(network), network) for network in NETWORKS]
    terms = {"ridge": None, "intercept": seed % 2 == 0, "scaled": True, "any_scale": False}
    more = {"seed": 0, "machine": MACHINE, "nominal": None, "widths": "leverage"}
    step = FullStep(candidates, **terms | more | {"relevance": True, "features": EXACT} | settings)  # type: ignore[arg-type]
    rows, targets = torch.from_numpy(X), torch.from_numpy(y)
    return Case(rows[:-1], targets[:-1], rows[-1:], step)


class Searched(NamedTuple):
    """What the n + 1 rows choose for one y: by the search that leave-one-out models make."""

    start: GridPoint
    end: GridPoint
    kernels: CandidateKernels


def searched(given: Case, y: float) -> Searched:
    frame = given.known.frame
    X, targets = torch.cat([given.X, given.x]), torch.cat([given.y, given.y.new_tensor([y])])
    kernels = given.step.kernels(X, [frame])
    values = PointValues(kernels, targets, given.step.intercept, MACHINE)
    free = given.step.relevance, given.step.ridge is None
    end = coordinate_search(values, [ModelSearch(0, len(X))], *free).points[0]
    start, best = None, np.inf
    for point in kernels.grid(free[1]).starts():
        value = float(values.memo[0, point][0][0, -1])
        if value < best - TIE:
            start, best = point, value
    assert start is not None
    return Searched(start, end, kernels)


def scores(given: Case, found: Searched, point: GridPoint, y: float) -> Array:
    """Studentised scores of the n + 1 rows at a point, by refits."""
    kernel, ridge, _ = found.kernels.at(0, [point])()
    values, vectors = np.linalg.eigh(kernel[0].numpy())
    J = vectors * np.sqrt(values.clip(min=0))
    candidates, targets = np.array([y]), given.y.numpy()
    terms = (float(ridge[0]), given.step.intercept)
    return reference.candidate_scores(J[:-1], targets, J[-1], candidates, *terms)[:, 0]


def accepted(given: Case, y: float, rank: int) -> bool:
    """Whether y is accepted: rows that are extreme at the start rank first."""
    found = searched(given, y)
    first, last = (scores(given, found, point, y) for point in (found.start, found.end))
    largest = np.sort(first)[::-1][max(1, rank // EXTREME)]
    last[first > largest] = np.inf
    if first[-1] > largest:
        return False
    return bool((last[:-1] >= last[-1]).sum() >= rank)


def candidates(given: Case, count: int) -> Array:
    middle, spread = float(given.y.median()), float(given.y.std())
    return middle + spread * np.r_[np.linspace(-4, 4, count), -1e3, 1e3]


@pytest.mark.parametrize("seed", range(6))
def test_pieces_end_where_a_search_for_each_y_ends(seed: int) -> None:
    given = case(9 + 2 * seed, 2, seed)
    joint = _Joint(given.known, given.x)
    start = begin(joint.table, joint.grid)
    pieces = walk(joint.table, start, joint.grid, True)
    assert len(pieces.row) > 2  # the search depends on y
    overlaps = 0
    for y in candidates(given, 25):
        found = searched(given, y)
        for part, point in ((start, found.start), (pieces, found.end)):
            inside = (part.low <= y) & (y <= part.high)
            points = {joint.table.points[k] for k in part.point[inside].tolist()}
            assert point in points
            overlaps += len(points) - 1
    assert overlaps <= 2


@pytest.mark.parametrize("seed", range(8))
def test_ends_are_those_of_the_accepted_candidates(seed: int) -> None:
    given = case(12 + seed, 2, seed)
    ranks = [1, 3]
    lower, upper = (end[0].numpy() for end in given.known.accepted(given.x, ranks))
    for k, rank in enumerate(ranks):
        width = upper[k] - lower[k]
        assert np.isfinite(width)
        for y in candidates(given, 30):
            if accepted(given, y, rank):
                assert lower[k] <= y <= upper[k]
        # Rows that are extreme for some y accept all of them, so the hull may be wider.
        ends = [lower[k] + 1e-6 * width, upper[k] - 1e-6 * width]
        tight = [accepted(given, y, rank) for y in ends]
        assert all(tight) or rank == 3


def test_what_is_below_zero() -> None:
    """Against signs on a grid, for quadratics of all kinds."""
    rng = np.random.default_rng(0)
    square, slope, constant = rng.integers(-2, 3, size=(3, 400)).astype(float)
    low, high = np.sort(rng.normal(scale=3, size=(2, 400)), axis=0)
    lows, highs = below(square, slope, constant, low, high)
    t = np.minimum(low + (high - low) * np.linspace(0, 1, 201)[:, None], high)
    values = square * t**2 + slope * t + constant
    inside = ((lows[:, None] <= t) & (t <= highs[:, None])).any(axis=0)
    assert (inside | (values > -1e-9)).all()  # none is left out
    blank = (slope == 0) & (square * constant == 0)  # where 0/0 counts as everywhere
    assert (~inside | (values < 1e-9) | blank).all()


def test_coins_depend_on_the_row_alone() -> None:
    X = torch.randn(4000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X[5], X[7, 0], X[8, 0] = X[3], 0.0, torch.nan
    found = coins(X, 1)
    assert torch.equal(found[3:9].flip(0), coins(X[3:9].flip(0), 1))
    assert found[5] == found[3]
    X[7, 0] = -0.0
    assert torch.equal(coins(X, 1), found)
    assert abs(float((found < 0.3).double().mean()) - 0.3) < 0.03
    assert abs(float(((found < 0.3) & (coins(X, 2) < 0.3)).double().mean()) - 0.09) < 0.03
    assert float(np.corrcoef(found, X.nan_to_num()[:, 0])[0, 1]) < 0.06


def test_all_rows_search_where_the_coins_pick_few_or_many() -> None:
    """The coins of all n + 1 rows decide, the new one's too."""
    n = 2 * SEARCHED - 1  # a share of one half
    for heads, share in (
        (SEARCHED // 2 - 1, 1.0),
        (SEARCHED // 2, 0.5),
        (2 * SEARCHED, 0.5),
        (2 * SEARCHED + 1, 1.0),
    ):
        tosses = torch.cat([torch.full((heads,), 0.1), torch.full((5,), 0.9)])
        assert chosen_share(tosses, n) == share
        assert chosen_share(tosses, SEARCHED - 1) == 1.0


def test_rows_that_do_not_search_have_no_part_in_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every y has the places of the others, by which rows are screened and ranked."""
    monkeypatch.setattr("lazyknife.estimators.fit_full.SEARCHED", 20)
    given = case(39, 2, 1)
    known = replace(given.known, share=chosen_share(coins(given.X, 0), 39))
    assert known.share == 0.5
    assert 10 < len(known.part) < 30
    new = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outside = coins(new, 0) >= 0.5
    assert 0 < int(outside.sum()) < 20
    lower, upper = known.accepted(new, [4])
    places = known.start, known.search.points[0]
    start, end = (known.full(place).accepts(new[outside]) for place in places)
    low, high = start.ends([1])
    assert (lower[outside] >= low).all()
    assert (upper[outside] <= high).all()
    for row, (least, most) in enumerate(zip(lower[outside, 0], upper[outside, 0], strict=True)):
        accepted = list[float]()
        for y in np.linspace(float(low[row]), float(high[row]), 401):
            first, last = (
                torch.cat([part.score[row] - part.slope[row] * t, (t / part.scale[row])[None]])
                for part in (start, end)
                for t in [y - part.middle[row]]
            )
            ranked = torch.where(first.abs() == first.abs().max(), torch.inf, last.abs())
            if (ranked[:-1] >= ranked[-1]).sum() >= 4 and ranked[-1] < torch.inf:
                accepted.append(y)
        assert least <= min(accepted)
        assert max(accepted) <= most


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_rows_that_are_explained_to_the_last_digit(value: float) -> None:
    """All parabolas would touch at one y."""
    X = np.random.default_rng(0).normal(size=(24, 2))
    model = lk.LazyJackknifeRegressor(NETWORKS, construction="full", random_state=0)
    found = model.fit(X, np.full(24, value)).predict_interval(X[:2] + 1, alpha=0.2)
    np.testing.assert_allclose(found.to_numpy(), value, atol=1e-9)


def test_rows_that_do_not_search_are_screened_like_those_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a bag with outliers, of which one does not search, no more are missed than may be."""
    monkeypatch.setattr("lazyknife.estimators.fit_full.SEARCHED", 6)
    rng = np.random.default_rng(201)
    count = int(rng.integers(4, 14)) + 1
    X = rng.normal(size=(count, int(rng.integers(1, 4))))
    y = X[:, 0] + 0.5 * rng.standard_t(2, size=count)
    y[:2] = 1e9, -1e9
    networks = [lk.wide("gaussian"), lk.wide("laplace")]
    missed = 0
    for i in range(count):
        others = np.arange(count) != i
        model = lk.LazyJackknifeRegressor(networks, construction="full", random_state=0)
        model.fit(X[others], y[others])
        missed += int(not model.predict_interval(X[[i]], alpha=0.2).covers(y[[i]])[0])
    assert missed <= kappa(0.2, count - 1) == 1
