"""Choices on a part of the rows: no leak, coverage with mutants, and the edges of the settings."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import lazyknife as lk
import reference
from lazyknife import LazyJackknifeRegressor
from lazyknife.choosing.candidates import Candidate
from lazyknife.choosing.rows import drawn_part
from lazyknife.choosing.shape import FOLDS, fit_shape
from lazyknife.compute import Machine
from lazyknife.estimators.fit_shared import PartedStep, part_of
from lazyknife.intervals import find_construction, kappa
from lazyknife.intervals.streamed import StreamedModels
from lazyknife.networks import wide
from lazyknife.tangent.trees import grow

N, MANY = 80, 400  # of too few rows no shape is learnt
NETWORKS = (wide("laplace"), wide("gaussian"))
LAPLACE = wide("laplace", scale=2.0)
NOMINAL = (False,) * 3 + (True,)


def rows_of(kind: str, n: int, p: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows and targets whose noise varies, has heavy tails or is discrete."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, p))
    if kind == "jumps":
        y = 2.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0.3)) + (X[:, 2] > 0) + 0.1 * generator.normal(size=n)
        return torch.from_numpy(X), torch.from_numpy(y)
    noise: NDArray[np.float64] = {
        "varying": np.exp(1.5 * X[:, 1]) * generator.normal(size=n),
        "heavy": generator.standard_t(1.5, size=n),
        "discrete": generator.integers(0, 3, size=n).astype(float),
    }[kind]
    return torch.from_numpy(X), torch.from_numpy(np.sin(2 * X[:, 0]) + noise + 5.0)


def step_of(networks: tuple[wide, ...] = NETWORKS, **settings: Any) -> PartedStep:
    candidates = [Candidate(str(network), network) for network in networks]
    terms: dict[str, Any] = {"ridge": None, "intercept": True, "scaled": True, "seed": 3}
    terms |= {"nominal": None, "widths": "auto", "any_scale": False, "relevance": True}
    return PartedStep(candidates, machine=Machine(budget=2**28), **terms | settings)


def rest_of(loo: StreamedModels, X: Tensor) -> list[int]:
    """Which rows are left out."""
    return [int((row == X).all(dim=1).nonzero()[0, 0]) for row in loo.out.rows]


# What becomes of a row: columns, or y, and their value.
CHANGES: dict[str, tuple[Any, float]] = {
    "y": ("y", 1e6),
    "-y": ("y", -1e6),
    "row": (slice(0, 3), 1e9),
    "category": (3, 7.0),
    "gap": (1, torch.nan),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"widths": "constant"}, {"ridge": 0.1}, {"intercept": False}, {"relevance": False}),
        {"any_scale": True},
    ],
)
def test_a_row_moves_nothing_of_the_model_without_it(settings: Any, change: str) -> None:
    shaped = settings.get("widths") != "constant"
    assert_fixed(step_of(nominal=NOMINAL, **settings), change, MANY if shaped else N, shaped)


@dataclass(frozen=True)
class AllShaped(PartedStep):
    """The shape is learnt from all rows."""

    def models(self, X: Tensor, y: Tensor) -> Any:
        loo, choice = super().models(X, y)
        passes, every = loo.passes, torch.arange(len(y))
        e = replace(passes, shape=None).models(X, y, every).residuals
        shape = fit_shape(X, y - e, e, self.alpha, self.seed, self.machine)
        return replace(passes, shape=shape).models(X, y, every[rest_of(loo, X)]), choice


@dataclass(frozen=True)
class AllGrown(PartedStep):
    """Trees are grown on all rows."""

    def models(self, X: Tensor, y: Tensor) -> Any:
        loo, choice = super().models(X, y)
        passes = replace(loo.passes, start=None)
        plain = replace(passes, basis=replace(passes.basis, trees=None))
        passes, grown = self._with_trees(plain, X, y)
        return passes.models(X, y, torch.tensor(rest_of(loo, X)), grown=grown), choice


# Boosted trees are grown on this many rows and more.
GROWN = {"networks": (LAPLACE,), "nominal": NOMINAL, "ridge": 0.1, "widths": "constant"}
PLENTY = 1800


@pytest.mark.parametrize("change", ["y", "row"])
def test_a_row_moves_no_trees_of_the_model_without_it(change: str) -> None:
    assert_fixed(step_of(**GROWN), change, PLENTY, shaped=False, kind="jumps")


def test_a_shape_learnt_from_all_rows_and_trees_grown_on_them_are_caught() -> None:
    with pytest.raises(AssertionError):
        assert_fixed(AllShaped(**vars(step_of(nominal=NOMINAL))), "y", MANY, True)
    with pytest.raises(AssertionError):
        assert_fixed(AllGrown(**vars(step_of(**GROWN))), "y", PLENTY, shaped=False, kind="jumps")
    for kind, n in (("varying", PLENTY), ("jumps", 1700)):  # where trees gain nothing
        X, y = rows_of(kind, n, 4, seed=0)  # or S has fewer than 1,500 rows
        assert not step_of(**GROWN).models(X, y)[1].trees


def test_values_of_trees_inside_the_part_are_out_of_fold() -> None:
    """A row's own y does not move its value; in-fold values, a mutant, follow it."""
    X, y = rows_of("jumps", 1600, 4, seed=0)
    step = step_of(**GROWN)
    passes = step_of(**GROWN | {"widths": "constant"}).chosen(X[:200], y[:200], 300)[0]
    passes = replace(passes, start=None)
    found, grown = step._with_trees(passes, X, y)
    assert found.basis.trees is not None
    other = y.clone()
    other[3::FOLDS] += 0.5 * torch.sin(torch.arange(320.0))
    again, moved = step._with_trees(passes, X, other)
    assert again.basis.trees is not None
    inside, follow = (each.basis.trees(X) for each in (found, again))
    assert torch.equal(grown[3::FOLDS], moved[3::FOLDS])
    assert not torch.equal(grown, moved)
    assert not torch.equal(inside[3::FOLDS], follow[3::FOLDS])
    size = float((grown * (y - y.mean())).sum() / grown.square().sum())  # a multiple of y
    errors = [(y - y.mean() - size * values).square().mean() for values in (grown, inside)]
    assert errors[1] < 0.8 * errors[0]  # too good to be true


@pytest.mark.parametrize("ridge", [None, 0.1])
def test_left_out_errors_with_trees_are_those_of_the_ridge_with_them(ridge: float | None) -> None:
    X, y = rows_of("jumps", 120, 4, seed=0)
    step = step_of(**GROWN | {"ridge": ridge})
    passes = replace(step.chosen(X, y, 141)[0], start=None)
    trees = grow(X, y - 1, 0, max_iter=10)
    tried, grown = replace(passes, basis=replace(passes.basis, trees=trees)), y.roll(1) + y / 2
    sums, rows = tried.sums(X, y, grown)
    found = step._errors_with(sums, rows[:50], passes, y)
    assert len(found) == (5 if ridge is None else 3)
    for (weight, times), error in found.items():
        basis = replace(passes.basis, trees=replace(trees, values=0 * trees.values))
        settings = {"basis": basis, "ridge": times * passes.ridge}
        given = weight * passes.ridge**0.5 * grown
        loo = replace(passes, **settings).models(X, y, torch.arange(120), grown=given)
        assert error == pytest.approx(float(loo.residuals[:50].square().mean()), rel=1e-8)


def assert_fixed(
    step: PartedStep, change: str, n: int, shaped: bool, kind: str = "varying"
) -> None:
    """Whatever becomes of a row, the model without it and its shape stay."""
    X, y = rows_of(kind, n, 4, seed=0)
    X[:, 3] = (X[:, 3] > 0).double()
    new = rows_of("varying", 12, 4, 1)[0]
    before, choice = step.models(X, y)
    assert (choice.each_widths == ("learnt",)) == shaped
    assert choice.trees == (kind == "jumps")
    k, (place, value) = 7, CHANGES[change]
    row = rest_of(before, X)[k]
    if place == "y":
        y[row] = value
    else:
        X[row, place] = value
    after, other = step.models(X, y)
    assert choice == other
    found, again = before.scaled(new), after.scaled(new)
    limit = after.rounding.slack(after.full_at(new).roots.square(), torch.ones(12)).max()
    assert torch.allclose(found.each[:, k], again.each[:, k], rtol=1e-9, atol=min(1e-6, limit))
    assert torch.allclose(found.scales, again.scales, rtol=1e-12)
    assert torch.allclose(found.shift, again.shift, rtol=1e-12)
    others = torch.arange(len(before.residuals)) != k
    for first, second in zip(before.out.shape, after.out.shape, strict=True):
        assert torch.equal(first[others], second[others])
    assert torch.equal(before.passes.basis.whiten, after.passes.basis.whiten)


def test_the_part_depends_on_the_number_of_rows_alone() -> None:
    step = step_of((LAPLACE,), ridge=1.0, widths="constant")
    tables = [rows_of(kind, N, 2, seed=len(kind)) for kind in ("varying", "heavy")]
    first, second = (rest_of(step.models(X, y)[0], X) for X, y in tables)
    assert first == second
    assert len(first) == N - part_of(N)


def test_the_shape_is_that_of_explicit_refits_of_the_part() -> None:
    """Left-out predictions and errors of the ridge of S, by fits without each of its rows."""
    X, y = rows_of("varying", 300, 2, seed=0)
    loo = step_of((LAPLACE,)).models(X, y)[0]
    passes, own = loo.passes, drawn_part(300, 3)
    assert passes.shape is not None
    rows, targets = passes.basis.at(X[own]).coordinates.numpy(), y[own].numpy() - passes.center
    twin = reference.refits(rows, targets, passes.ridge, True)
    level = (rows * twin.moves[:-1]).sum(axis=1) + twin.intercepts[:-1] + passes.center
    inside = rows @ twin.moves[-1] + twin.intercepts[-1] + passes.center

    def at(level: Any) -> Any:
        given = torch.from_numpy(level), y[own] - torch.from_numpy(level)
        found = fit_shape(X[own], *given, 0.1, 3, step_of().machine)
        assert found is not None
        return found.at(X, torch.zeros(300).double(), torch.zeros(300).double())

    expected = passes.shape.at(X, torch.zeros(300).double(), torch.zeros(300).double())
    both = zip(at(level)[:2], expected[:2], at(inside)[:2], strict=True)
    for found, same, wrong in both:
        assert torch.allclose(found, same, rtol=1e-6, atol=1e-9)
        assert not torch.allclose(wrong, same, rtol=1e-2)  # errors of rows that were fitted


@pytest.mark.parametrize("factor", [1.0, 1e2, 1e4, 1e9, 1e150])
def test_rows_far_away_have_the_shape_of_some_row(factor: float) -> None:
    X, y = rows_of("varying", 300, 2, seed=0)
    loo = step_of((wide("relu"),)).models(X, y)[0]
    assert loo.passes.shape is not None
    new = factor * rows_of("varying", 20, 2, seed=1)[0]
    for construction in ("plus", "minmax"):
        _, lower, upper = find_construction(construction).ends(loo, new, [1, 5, 0])
        assert not bool((lower.isnan() | upper.isnan()).any())
        assert bool((lower[:, :2] <= upper[:, :2]).all())


def test_a_nearly_noiseless_table_keeps_its_certificate() -> None:
    X = torch.rand(1200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(3 * X[:, 0]) * X[:, 1] + X @ torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    model = LazyJackknifeRegressor(network=wide("gaussian"), random_state=0).fit(X, y)
    assert model.rounding_ < 0.05
    assert model.certificate_.coverage is not None


@pytest.fixture(scope="module")
def full_model() -> Any:
    X, y = rows_of("varying", 1300, 3, 0)
    terms: dict[str, Any] = {"network": [LAPLACE], "feature_weights": None, "random_state": 0}
    plus = LazyJackknifeRegressor(**terms, construction="plus").fit(X[:1100], y[:1100])
    groups = (X[:1100, 2] > 0).long()
    full = LazyJackknifeRegressor(**terms, construction="full").fit(
        X[:1100], y[:1100], groups=groups
    )
    return plus, full, X[1100:], y[1100:]


def test_full_conformal_makes_the_same_choices_and_certifies_more(full_model: Any) -> None:
    plus, full, X, y = full_model
    m = 1100 - part_of(1100)
    assert full.choice_ == plus.choice_
    assert full.widths_ == "auto"
    assert full.choice_.each_widths == ("learnt",)
    assert torch.equal(full.predict(X), plus.predict(X))
    assert full.certificate_ == lk.certify(n=1100, alpha=0.1, construction="full")
    assert full.certificate_.coverage == 1 - kappa(0.1, m) / (m + 1)
    widths = [model.predict_interval(X, alpha=[0.1, 0.3]).width for model in (plus, full)]
    assert np.allclose(widths[0].mean(axis=0), widths[1].mean(axis=0), rtol=0.02)
    assert 0.8 < float(full.predict_interval(X).covers(y).mean()) < 0.98


def test_full_conformal_answers_questions_and_is_saved(full_model: Any, tmp_path: Any) -> None:
    _, full, X, _ = full_model
    found = full.predict_interval(X, groups=(X[:, 2] > 0).long())
    sizes = [int((full.groups_.codes == code).sum()) for code in (0, 1)]
    worst = max(kappa(0.1, size) / (size + 1) for size in sizes)
    assert found.certificate.coverage == 1 - worst
    one = full.loo_.only(torch.from_numpy(np.flatnonzero(full.groups_.codes[:, 0] == 0)))
    label = full.groups_.labels[0][0]
    rows = X[(X[:, 2] > 0).long() == label]
    ends = find_construction("full").ends(one, rows, [kappa(0.1, sizes[0])])
    expected = full.target_.ends(*ends[1:], 0.0)[0][:, 0]
    assert torch.equal(found.lower[(X[:, 2] > 0).long() == label], expected)
    both, upper = full.predict_interval(X, alpha=0.2), full.predict_interval(X, 0.1, side="upper")
    assert float((upper.upper - both.upper).abs().median() / both.width.median()) < 0.2
    assert upper.certificate.coverage == full.certificate_.coverage
    full.save(tmp_path / "model.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "model.lk").predict_interval(X)
    assert torch.equal(again.upper, full.predict_interval(X).upper)


def test_a_split_of_few_rows_is_certified_for_most_training_sets() -> None:
    X, y = rows_of("varying", 300, 3, 2)
    terms: dict[str, Any] = {"network": [LAPLACE], "construction": "split", "random_state": 0}
    model = LazyJackknifeRegressor(**terms).fit(X[:120], y[:120])
    m = 120 - part_of(120)
    assert len(model.loo_.residuals) == m == 60
    assert model.certificate_ == lk.certify(n=120, alpha=0.1, construction="split")
    assert model.certify(confidence=0.9).coverage < model.certificate_.coverage
    found = model.predict_interval(X[120:], alpha=0.2)
    assert bool(torch.isfinite(found.width).all())
    assert 0.6 < float(found.covers(y[120:]).mean()) < 0.95
    assert model.choice_.rows == m


@pytest.mark.parametrize(
    ("settings", "n"),
    [({"network": lk.mlp((3,))}, 40), ({"network": [LAPLACE]}, 7), ({"n_starts": 2}, 40)],
)
def test_a_split_refuses_what_it_cannot_split(settings: Any, n: int) -> None:
    X, y = rows_of("varying", n, 2, 0)
    model = LazyJackknifeRegressor(**settings, construction="split", random_state=0)
    with pytest.raises(ValueError, match="requires infinitely wide networks"):
        model.fit(X, y)
