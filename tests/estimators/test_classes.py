"""Sets of classes: explicit refits, exact coverage of bags, planted errors, and the interface."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

import lazyknife as lk
from lazyknife import LazyJackknifeClassifier
from lazyknife.choosing.candidates import wide_tangent
from lazyknife.choosing.likelihood import leave_one_out_values, of_one_scale
from lazyknife.data.own_scaling import unscaled
from lazyknife.estimators.fit_full import chosen_share, coins
from lazyknife.estimators.fit_full_classes import ClassRows
from lazyknife.estimators.fit_outputs import streamed_outputs
from lazyknife.intervals import kappa
from lazyknife.intervals.classes import SETS
from lazyknife.intervals.full_classes import best_others
from lazyknife.intervals.streamed import Passes
from lazyknife.sentences import PUBLIC_START
from lazyknife.tangent import Landmarks
from several import laplace, refit

FAST: dict[str, Any] = {"network": lk.wide("laplace", 1.0), "ridge": 0.3, "random_state": 0}
PLAIN = FAST | {"scaling": None, "feature_weights": None}
DEFAULT: dict[str, Any] = {"network": [lk.wide("gaussian"), lk.wide("laplace")], "random_state": 0}


def labelled(seed: int, n: int, classes: int = 3, features: int = 2) -> tuple[Any, Any]:
    """Rows whose class follows the features in part; every class has rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    values = X @ rng.normal(size=(features, classes)) + rng.gumbel(size=(n, classes))
    y = values.argmax(axis=1)
    y[: 2 * classes] = np.arange(2 * classes) % classes
    return X, y


def behind(values: Any, label: int) -> Any:
    """How far a label is behind the best other one."""
    others = np.delete(values, label, axis=-1)
    return np.maximum(others.max(axis=-1), 0.0) - values[..., label]


def sets_by_refits(X: Any, y: Any, new: Any, classes: int, level: float) -> dict[str, Any]:
    """Both constructions, by the definition."""
    n, Y, rank = len(y), np.eye(classes)[y], kappa(level, len(y))
    own, at = np.empty(n), np.empty((len(new), n, classes))
    for j in range(n):
        kept = np.arange(n) != j
        own[j] = behind(refit(X[kept], Y[kept], X[[j]], 0.3)[0], y[j])
        values = refit(X[kept], Y[kept], new, 0.3)
        at[:, j] = np.stack([behind(values, c) for c in range(classes)], axis=-1)
    point = np.eye(classes, dtype=bool)[refit(X, Y, new, 0.3).argmax(axis=1)]
    ordered = np.sort(own)[::-1]
    worst = ordered[rank - 1] if rank else np.inf
    losses = (at <= own[:, None] + 1e-12).sum(axis=1)
    return {
        "plus": (losses >= rank) | point,
        "minmax": (at.min(axis=1) <= worst + 1e-12) | point,
    }


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(8, 30),
    classes=st.integers(2, 4),
    level=st.sampled_from([0.02, 0.1, 0.2, 0.4]),
)
@pytest.mark.parametrize("construction", ["plus", "minmax"])
@pytest.mark.filterwarnings("ignore:.*every set contains")
def test_sets_equal_their_definition_by_refits(construction, seed, n, classes, level):
    X, y = labelled(seed, n + 12, classes)
    model = LazyJackknifeClassifier(**PLAIN, construction=construction, alpha=level)
    found = model.fit(X[:n], y[:n]).predict_set(X[n:])
    wanted = sets_by_refits(X[:n], y[:n], X[n:], classes, level)[construction]
    np.testing.assert_array_equal(found, wanted)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(8, 16), level=st.sampled_from([0.02, 0.15, 0.4]))
@pytest.mark.filterwarnings("ignore:.*every set contains")
def test_full_sets_equal_their_definition_by_refits(seed, n, level):
    """Every label of every new row joins the rows, of which each is left out in turn."""
    X, y = labelled(seed, n + 4)
    model = LazyJackknifeClassifier(**PLAIN, construction="full", alpha=level).fit(X[:n], y[:n])
    found, rank = model.predict_set(X[n:]), kappa(level, n)
    for row, x in enumerate(X[n:]):
        best = refit(X[:n], np.eye(3)[y[:n]], x[None], 0.3)[0].argmax()
        for label in range(3):
            rows, Y = np.vstack([X[:n], x]), np.eye(3)[[*y[:n], label]]
            scores = []
            for i in range(n + 1):
                kept = np.arange(n + 1) != i
                value = refit(rows[kept], Y[kept], rows[[i]], 0.3)[0]
                scores.append(behind(value, Y[i].argmax()))
            inside = (np.array(scores[:n]) >= scores[n] - 1e-12).sum() >= rank
            assert found[row, label] == (inside or label == best)


@pytest.mark.parametrize("n", [20, 430])
def test_the_rows_and_each_new_one_of_each_label_choose_as_a_fit_of_them(n):
    X, y = labelled(5, n + 3)
    terms = {"network": [lk.wide("gaussian"), lk.wide("laplace")], "scaling": None}
    model = LazyJackknifeClassifier(**terms, construction="full", random_state=0).fit(X[:n], y[:n])
    loo = model.loo_
    frame = loo.step.frames(torch.from_numpy(X[:n]), [torch.arange(0)], True)[0]
    joins = coins(torch.from_numpy(X), loo.step.seed) < chosen_share(
        coins(torch.from_numpy(X[: n + 1]), loo.step.seed), n
    )
    share = chosen_share(coins(torch.from_numpy(X[: n + 1]), loo.step.seed), n)
    known = ClassRows(loo.step, torch.from_numpy(X[:n]), loo.Y, frame, share)
    found = known.with_each(torch.from_numpy(X[n:]))
    for row in range(3):
        for label in (0, 2):
            k = 3 * row + label
            rows = np.vstack([X[:n], X[[n + row]]]) if joins[n + row] else X[:n]
            Y = torch.eye(3).double()[[*y[:n], label][: len(rows)]]
            alone = ClassRows(loo.step, torch.from_numpy(rows), Y, frame, share).search
            assert found.points[k] == alone.points[-1]
            assert found.values[k] == pytest.approx(alone.values[-1], abs=1e-8)


def test_full_sets_of_many_rows_equal_refits_on_the_features():
    """Given the part, rows that are left out and the new one: each left out of the others."""
    X, y = labelled(2, 1210)
    model = LazyJackknifeClassifier(**FAST, construction="full", alpha=0.2).fit(X[:1200], y[:1200])
    loo, new = model.loo_, X[1200:1203]
    passes, rank = loo.columns[0].passes, kappa(0.2, len(loo.codes))
    left = loo.columns[0].out.rows
    features = passes.features(torch.from_numpy(X))[0].numpy()
    Y, first = np.eye(3)[y], loo.columns[0]
    is_left = (torch.from_numpy(X[:1200])[:, None] == left[None]).all(dim=2).any(dim=1).numpy()
    own, apart = np.flatnonzero(is_left), np.flatnonzero(~is_left)
    assert len(own) == len(loo.codes)
    found = model.predict_set(new)
    penalty = passes.ridge * np.diag([*np.ones(features.shape[1] - 1), 0.0])
    assert first.solved.count == 1200
    for row in range(3):
        for label in range(3):
            at = np.array([*apart, *own, 1200 + row])
            T = Y[at].copy()
            T[-1] = np.eye(3)[label]
            F = features[at]
            hat = F @ np.linalg.solve(F.T @ F + penalty, F.T)
            values = T - (T - hat @ T) / (1 - np.diag(hat))[:, None]
            scores = np.array([behind(v, t.argmax()) for v, t in zip(values, T, strict=True)])
            inside = (scores[len(apart) : -1] >= scores[-1] - 1e-9).sum() >= rank
            best = model.predict(new)[row] == label
            assert found[row, label] == (inside or best)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(6, 20), outputs=st.integers(1, 4))
def test_the_criterion_of_one_scale_adds_quadratic_forms(seed, n, outputs):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, 2)), rng.normal(size=(n, outputs))
    K, targets = laplace(X, X), torch.from_numpy(Y.T.copy())[None]
    found = of_one_scale(
        leave_one_out_values(
            torch.tensor(K)[None], torch.full((1,), 0.3, dtype=torch.float64), targets, True
        )
    )
    for j in range(n + 1):
        kept = np.arange(n) != j
        G = K[np.ix_(kept, kept)] + 0.3 * np.eye(kept.sum())
        inverse = np.linalg.inv(G)
        ones = inverse.sum(axis=0)
        A = inverse - np.outer(ones, ones) / ones.sum()
        freedom = kept.sum() - 1
        log_det = np.linalg.slogdet(G)[1] + np.log(ones.sum())
        wanted = np.log(np.trace(Y[kept].T @ A @ Y[kept]) / freedom) + log_det / freedom
        assert abs(float(found.values[0, 0, j]) - wanted) <= 1e-9 + float(found.noise[0, 0, j])


def test_every_model_chooses_as_a_fit_without_its_row_even_the_only_one_of_a_class():
    """A class that only the left-out row has leaves no trace in the model without it."""
    X, y = labelled(3, 24)
    y[-1] = 7
    model = LazyJackknifeClassifier(**DEFAULT).fit(X, y)
    for j in (0, 5, 23):
        kept = np.arange(24) != j
        other = LazyJackknifeClassifier(**DEFAULT).fit(X[kept], y[kept])
        assert model.choice_.network[j] == other.choice_.network[-1]
        assert model.choice_.ridge[j] == other.choice_.ridge[-1]
        np.testing.assert_array_equal(model.choice_.weights[j], other.choice_.weights[-1])
        values = np.zeros(4)
        values[np.isin(model.classes_, other.classes_)] = other._values(X[[j]])[0]
        label = int(np.searchsorted(model.classes_, y[j]))
        assert float(model.loo_.scores[j]) == pytest.approx(behind(values, label), abs=1e-9)


def test_a_class_without_rows_changes_no_score():
    """Its value is 0, and where all others of a label are below 0, they count as 0, too."""
    values = torch.tensor([[1.4, -0.3, -0.1], [0.2, 0.5, 0.3], [-0.2, -0.1, 1.3]])
    more = torch.cat([values, torch.zeros(3, 1)], dim=1)
    assert torch.equal(best_others(more)[:, :3], best_others(values))
    assert best_others(values)[0].tolist() == pytest.approx([0.0, 1.4, 1.4])


def test_many_rows_equal_the_passes_of_each_target():
    X, y = labelled(0, 300)
    rows, Y = torch.from_numpy(X), torch.eye(3).double()[y]
    tangent = wide_tangent(lk.wide("laplace", 1.0), unscaled(1, 2)[0])
    passes = Passes(Landmarks.of(tangent, rows[:60]), 0.3, True, 0.0)
    left_out = torch.arange(200, 300)
    columns = streamed_outputs(passes, rows, Y, left_out, torch.tensor([0.1, 0.2, 0.3]).double())
    for k, column in enumerate(columns):
        alone = Passes(passes.basis, 0.3, True, 0.4).models(rows, Y[:, k], left_out)
        np.testing.assert_allclose(column.residuals, alone.residuals, atol=1e-9)
        np.testing.assert_allclose(column.scores, alone.scores, atol=1e-8)
        np.testing.assert_allclose(
            column.scaled(rows[:5]).each, alone.scaled(rows[:5]).each, atol=1e-9
        )


def naive(model: Any, X: Any) -> Any:
    """A mutant: scores of the full model on the rows that it was fitted to."""
    loo = model.loo_
    values = loo.point(torch.from_numpy(X)).numpy()
    Y = torch.eye(len(model.classes_)).double()[loo.codes].numpy()
    if hasattr(loo, "own"):
        fitted = Y - loo.own.training_residuals.numpy()
    else:
        fitted = Y - np.stack([c.training_residuals.numpy() for c in loo.columns], axis=1)
    own = [behind(row, code) for row, code in zip(fitted, loo.codes.tolist(), strict=True)]
    worst = np.sort(own)[::-1][kappa(model.alpha, len(own)) - 1]
    return np.stack([behind(values, c) <= worst for c in range(Y.shape[1])], axis=1)


@pytest.mark.parametrize("construction", ["plus", "minmax", "full"])
@pytest.mark.parametrize("terms", [PLAIN, DEFAULT], ids=["one network", "choosing"])
def test_sets_miss_no_more_than_their_bound_in_any_bag_and_a_naive_mutant_does(terms, construction):
    """Each of n + 1 rows is as likely to be the new one; labels are close to noise."""
    caught, level, count = 0, 0.26, 14
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(count, 1)), rng.permutation(np.arange(count) % 3)
        small = terms | ({"ridge": 0.01} if terms is PLAIN else {})
        missed, naively = [], []
        for i in range(count):
            others = np.arange(count) != i
            model = LazyJackknifeClassifier(**small, construction=construction, alpha=level)
            model.fit(X[others], y[others])
            missed.append(not model.predict_set(X[[i]])[0, y[i]])
            naively.append(not naive(model, X[[i]])[0, y[i]])
        rank = kappa(level, count - 1)
        bound = (2 * rank - 1 if construction == "plus" else rank) / count
        assert np.mean(missed) <= bound
        assert model.certificate_.coverage == pytest.approx(1 - bound)
        caught += np.mean(naively) > bound
    assert caught >= (3 if terms is PLAIN else 1)


@pytest.mark.parametrize("n", [60, 1200])
def test_text_labels_frames_levels_and_saving(n, tmp_path):
    X, y = labelled(1, n + 80)
    names = np.array(["pear", "apple", "fig"])[y]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(X[:, 0] > 0, "u", "v"))
    model = LazyJackknifeClassifier(**FAST).fit(frame[:n], pd.Series(names[:n]))
    assert model.classes_.tolist() == ["apple", "fig", "pear"]
    new = frame[n:]
    wide_sets = model.predict_set(new, alpha=[0.05, 0.1, 0.3])
    assert wide_sets.shape == (80, 3, 3)
    assert (np.diff(wide_sets.astype(int), axis=2) <= 0).all()
    np.testing.assert_array_equal(model.predict_set(new), wide_sets[:, :, 1])
    best = np.searchsorted(model.classes_, model.predict(new))
    assert wide_sets[np.arange(80), best].all()
    shares = model.predict_proba(new)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(shares.argmax(axis=1), best)
    truth = np.searchsorted(model.classes_, names[n:])
    assert wide_sets[np.arange(80), truth, 1].mean() >= 0.7
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeClassifier.load(tmp_path / "m.lk")
    np.testing.assert_array_equal(loaded.predict_set(new), model.predict_set(new))
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    assert loaded.certificate_ == model.certificate_
    assert "true class" in str(model.certificate_)
    assert "any other class is never in a set" in model.certificate_.details
    assert model.certify(alpha=0.3).coverage < model.certificate_.coverage
    with pytest.raises(ValueError, match=r"use LazyJackknifeClassifier\.load"):
        lk.LazyJackknifeRegressor.load(tmp_path / "m.lk")


def test_the_certificate_counts_the_rows_that_are_left_out():
    X, y = labelled(2, 1500)
    model = LazyJackknifeClassifier(**FAST).fit(X, y)
    left = len(model.loo_.codes)
    assert left == 225
    assert f"n = {left}" in model.certificate_.subject
    rank = kappa(0.1, left)
    assert model.certificate_.coverage == pytest.approx(1 - (2 * rank - 1) / (left + 1))
    X, y = load_iris(return_X_y=True)
    found = LazyJackknifeClassifier(**FAST, construction="minmax").fit(X, y).certificate_
    assert found.coverage == pytest.approx(1 - kappa(0.1, 150) / 151)


def test_too_few_rows_keep_all_classes_and_say_so():
    X, y = labelled(0, 12)
    model = LazyJackknifeClassifier(**FAST, alpha=0.05).fit(X, y)
    with pytest.warns(UserWarning, match=r"12 rows are too few.*every set contains all classes"):
        assert model.predict_set(X).all()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"network": []}, "network"),
        ({"network": 3}, "network=3: give None"),
        ({"construction": "cv+"}, "construction='cv\\+': choose from 'plus', 'minmax', 'full'"),
        ({"scaling": "standardize"}, "scaling='standardize': choose from 'auto', 'symlog'"),
        ({"ridge": -1.0}, "ridge=-1.0: give a number above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(terms, message):
    X, y = labelled(0, 20)
    with pytest.raises((ValueError, TypeError), match=message):
        LazyJackknifeClassifier(**FAST | terms).fit(X, y)


def logits() -> torch.nn.Module:
    """A network of the user's with an output for each class."""
    torch.manual_seed(3)
    layers = torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("construction", ["plus", "minmax"])
def test_sets_of_a_network_are_those_of_ridges_on_its_gradients(construction):
    """Of the sum of its outputs over the root of their number; outputs themselves count for 0."""
    X, y = labelled(4, 34)
    network, ridge = logits().double(), 0.3
    model = LazyJackknifeClassifier(network=logits(), ridge=ridge, construction=construction)
    found = model.set_params(alpha=0.2, scaling=None).fit(X[:24], y[:24]).predict_set(X[24:])
    rows = []
    for x in torch.from_numpy(X):
        total = network(x).sum() / np.sqrt(3)
        parts = torch.autograd.grad(total, list(network.parameters()))
        rows.append(torch.cat([part.reshape(-1) for part in parts]).numpy())
    J, Y, point = np.stack(rows), np.eye(3)[y[:24]], []

    def values(kept: Any, at: Any) -> Any:
        G = np.ones((len(kept) + 1, len(kept) + 1))
        G[:-1, :-1] = J[kept] @ J[kept].T + ridge * np.eye(len(kept))
        G[-1, -1] = 0
        solved = np.linalg.solve(G, np.vstack([Y[kept], np.zeros((1, 3))]))
        return J[at] @ J[kept].T @ solved[:-1] + solved[-1]

    own, at = np.empty(24), np.empty((10, 24, 3))
    for j in range(24):
        kept = np.delete(np.arange(24), j)
        own[j] = behind(values(kept, [j])[0], y[j])
        at[:, j] = np.stack([behind(values(kept, np.arange(24, 34)), c) for c in range(3)], axis=-1)
    point = np.eye(3, dtype=bool)[values(np.arange(24), np.arange(24, 34)).argmax(axis=1)]
    rank = kappa(0.2, 24)
    wanted = {
        "plus": (at <= own[:, None] + 1e-9).sum(axis=1) >= rank,
        "minmax": at.min(axis=1) <= np.sort(own)[-rank] + 1e-9,
    }
    np.testing.assert_array_equal(found, wanted[construction] | point)


def test_sets_of_networks_miss_no_more_than_their_bound_in_any_bag():
    caught, level, count = 0, 0.26, 14
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(count, 2)), rng.permutation(np.arange(count) % 3)
        missed, naively = [], []
        for i in range(count):
            others = np.arange(count) != i
            model = LazyJackknifeClassifier(network=logits(), ridge=0.01, alpha=level)
            model.fit(X[others], y[others])
            missed.append(not model.predict_set(X[[i]])[0, y[i]])
            naively.append(not naive(model, X[[i]])[0, y[i]])
        bound = (2 * kappa(level, count - 1) - 1) / count
        assert np.mean(missed) <= bound
        assert model.certificate_.coverage == pytest.approx(1 - bound)
        caught += np.mean(naively) > bound
    assert caught >= 2


@pytest.mark.parametrize("n", [40, 1100])
def test_full_sets_of_frames_have_levels_and_files(n, tmp_path):
    X, y = labelled(1, n + 20)
    names = np.array(["pear", "apple", "fig"])[y]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(X[:, 0] > 0, "u", "v"))
    model = LazyJackknifeClassifier(**FAST, construction="full").fit(frame[:n], names[:n])
    sets = model.predict_set(frame[n:], alpha=[0.1, 0.3])
    assert (sets[:, :, 0] >= sets[:, :, 1]).all()
    left = len(model.loo_.codes)
    assert model.certificate_.coverage == pytest.approx(1 - kappa(0.1, left) / (left + 1))
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeClassifier.load(tmp_path / "m.lk")
    np.testing.assert_array_equal(loaded.predict_set(frame[n:], alpha=[0.1, 0.3]), sets)
    own = LazyJackknifeClassifier(network=lk.mlp((3,)), ridge=1.0, construction="full")
    if n > 1000:
        with pytest.raises(ValueError, match="does not support networks of your own with more"):
            own.fit(X[:n], y[:n])
    else:
        assert own.fit(X[:n], y[:n]).predict_set(X[n:]).any(axis=1).all()


@pytest.mark.parametrize("n", [60, 1100])
def test_networks_take_images_candidates_and_files(n, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n + 50)
    images = torch.from_numpy(rng.normal(size=(n + 50, 1, 4, 4)))
    images[:, 0, :2] += torch.from_numpy(y - 1.0)[:, None, None]
    torch.manual_seed(0)
    head = torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 9, 3)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 2), *head)
    model = LazyJackknifeClassifier(network=network, random_state=0).fit(images[:n], y[:n])
    sets = model.predict_set(images[n:])
    assert sets[np.arange(50), y[n:]].mean() >= 0.8
    assert PUBLIC_START in model.certificate_.assumptions
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeClassifier.load(tmp_path / "m.lk", network=network)
    np.testing.assert_array_equal(loaded.predict_set(images[n:]), sets)
    several = LazyJackknifeClassifier(network=[lk.mlp((4,)), lk.wide()], random_state=0)
    assert "mlp" in str(several.fit(*labelled(1, 40)).choice_)


def test_networks_that_have_no_leave_one_out_models_are_refused():
    X, y = labelled(0, 20)
    for network, message in [
        (torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)), "BatchNorm"),
        (torch.nn.Linear(3, 3), "network fails on rows of shape"),
        (torch.nn.Linear(2, 3).requires_grad_(False), "no parameter with requires_grad"),
    ]:
        with pytest.raises(ValueError, match=message):
            LazyJackknifeClassifier(network=network).fit(X, y)


def test_labels_that_make_no_sense_are_refused():
    X, y = labelled(0, 20)
    model = LazyJackknifeClassifier(**FAST)
    for labels, message in [
        (np.zeros(20), "y has one class"),
        (np.where(y > 1, np.nan, y), "missing labels"),
        (pd.Series([None, *"ab" * 9, "a"], dtype="string"), "missing labels"),
        (np.random.default_rng(0).normal(size=20), "continuous"),
        (y[:19], "inconsistent numbers of samples"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, labels)
    with pytest.raises(ValueError, match="not kernel functions"):
        LazyJackknifeClassifier(network=lk.wide(lambda x, z: x @ z.T)).fit(*labelled(0, 1001))


def test_constructions_are_typed():
    hints = get_type_hints(LazyJackknifeClassifier)
    assert set(get_args(hints["construction"])) == {*SETS, "full"}
