import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, StandardScaler

import lazyknife as lk
from lazyknife.data.scaling import TRANSFORMS, _training_rows, fingerprints, unlike_columns
from lazyknife.sentences import OUTSIDE
from rows import linear

X, Y = linear(30)
X = 100 * X + 5
NEW = 100 * linear(20, seed=1)[0] + 5
OTHER = 100 * linear(50, seed=2)[0] + 5


def fitted(transform, base=None, X=X, **rows):
    settings = {"readout": "tangent", "scaling": transform, "random_state": 0}
    return lk.LazyJackknifeRegressor(lk.mlp((4,)), base, 1.0, **settings).fit(X, Y, **rows)


@pytest.mark.parametrize(
    "transform", ["standardize", StandardScaler(), QuantileTransformer(n_quantiles=10)]
)
def test_fitted_on_the_training_rows_alone_it_is_a_leak(transform):
    certificate = fitted(transform).certificate_
    assert certificate.coverage is None
    assert "ghost_point" not in certificate.bounds
    assert "which is a leak" in str(certificate)
    assert "X_pool" in str(certificate)
    assert "theorem" not in str(certificate)


def test_pooled_it_is_certified_for_the_rows_of_the_pool():
    scaler = StandardScaler()
    model, given = fitted("standardize", X_pool=NEW), fitted(scaler, X_pool=NEW)
    expected = StandardScaler().fit(np.concatenate([X, NEW])).transform(OTHER)
    for each in (model, given):
        np.testing.assert_allclose(each.scaling_(OTHER), expected)
    assert not hasattr(scaler, "mean_")  # the user's own is not changed
    assert "does not depend on the order of the rows" in given.certificate_.details
    assert model.certificate_.coverage == fitted(None).certificate_.coverage
    assert "X_pool" in model.certificate_.scope
    model.predict_interval(NEW)  # no warning
    model.predict_interval(NEW[:3])
    with pytest.warns(UserWarning, match="2 of 5 rows are not among the rows passed as X_pool"):
        model.predict_interval(np.concatenate([NEW[:3], OTHER[:2]]))


def test_fingerprints_are_the_same_in_every_process():
    """So that a pickled model knows its pool: Python's own hash of bytes is not."""
    rows = np.array([[1.5, -0.0], [1.5, 0.0]])
    assert fingerprints(rows) == [6878557574657089902] * 2


def test_fitted_on_other_rows_it_is_certified_on_their_being_others():
    model = fitted("standardize", X_unlabeled=OTHER)
    np.testing.assert_allclose(model.scaling_.transformer.mean_, OTHER.mean(axis=0))
    assert model.certificate_.coverage == fitted(None).certificate_.coverage
    assert any("X_unlabeled" in sentence for sentence in model.certificate_.assumptions)
    leak = fitted("standardize", X_unlabeled=np.vstack([OTHER, X[:3]])).certificate_
    assert leak.coverage is None
    assert "3 of the rows passed as X_unlabeled are training rows" in str(leak)
    assert "remove" not in str(leak)  # which rows to remove would depend on the training rows


def test_with_a_split_base_it_is_fitted_on_the_part_set_aside():
    model = fitted("standardize", lk.Split())
    learn, _ = lk.Split().rows(30, model.seeds_.rows)
    np.testing.assert_allclose(model.scaling_.transformer.mean_, X[learn].mean(axis=0))
    assert model.certificate_.coverage == fitted(None, lk.Split()).certificate_.coverage
    split = lk.SplitConformalRegressor(scaling="standardize", random_state=0).fit(X, Y)
    assert split.certificate_.coverage is not None


def test_training_rows_in_the_pool_count_once():
    once, again = (fitted("standardize", X_pool=pool) for pool in (NEW, np.vstack([X, X, NEW])))
    for name in ("mean_", "scale_"):
        found = (getattr(model.scaling_.transformer, name) for model in (once, again))
        np.testing.assert_allclose(*found, rtol=1e-12)
    assert once.certificate_.coverage == again.certificate_.coverage is not None
    assert "all rows passed as X_pool are exchangeable" in once.certificate_.details


def test_equal_rows_of_discrete_columns_are_no_evidence_of_a_leak():
    """Rows with few values are equal by chance; a column that never repeats tells rows apart."""
    few, many = (np.random.default_rng(k).integers(0, 2, (m, 2)) for k, m in ((0, 30), (1, 90)))
    assert set(fingerprints(few)) & set(fingerprints(many))
    certificate = fitted("standardize", X=few, X_unlabeled=many).certificate_
    assert certificate.coverage == fitted(None).certificate_.coverage
    assert OUTSIDE in certificate.assumptions
    assert fitted("standardize", X=few, X_unlabeled=few).certificate_.coverage is None
    frame, others = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (few, many))
    frame, others = frame.assign(c=X[:, 0]), others.assign(c=np.arange(90.0))
    leak = pd.concat([others, frame[:5]])
    assert fitted(StandardScaler(), X=frame, X_unlabeled=others).certificate_.coverage is not None
    assert fitted(StandardScaler(), X=frame, X_unlabeled=leak).certificate_.coverage is None


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        (np.vstack([X[:29], X[:1]]), X[:29]),
        (np.vstack([X[:27], X[:3]]), np.vstack([OTHER[:5], X[:12]])),
        (X, np.vstack([X, X])),
        (X, np.vstack([X[:10]] * 3)),
        (X, np.vstack([OTHER[:9], OTHER[:9], X[:9]])),
    ],
    ids=["a row twice", "rows twice", "leaked twice", "leaked three times", "others twice"],
)
def test_rows_that_were_repeated_do_not_hide_a_leak(rows, others):
    assert fitted("standardize", X=rows, X_unlabeled=others).certificate_.coverage is None
    frames = (pd.DataFrame(table).assign(sort="a") for table in (rows, others))
    assert _training_rows(*frames) == _training_rows(rows, others) > 0


@pytest.mark.parametrize("values", [2, 10, 100, 1000, 10**6])
def test_rows_that_are_equal_by_chance_are_accepted(values):
    """In tables of one column, where nothing but its values tells rows apart."""
    refused = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, values])
        tables = (np.log1p(rng.integers(0, values, (m, 1))) for m in (30, 60))
        refused += _training_rows(*tables) > 0
    # Of 1,000 values, 18 pairs of tables repeat none on average, but share some.
    assert refused <= (30 if values == 1000 else 6)
    grid = np.array([(a, b) for a in range(5) for b in range(6)], dtype=float)
    assert _training_rows(grid, grid[::-1]) == 0


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_fixed_scaling_maps_each_row_alone_and_any_other_needs_rows_to_learn_from(name):
    alone, pooled = fitted(name), fitted(name, X_pool=NEW)
    same = np.array_equal(alone.scaling_(OTHER), pooled.scaling_(OTHER))
    assert (name != "standardize") == same == (alone.certificate_.coverage is not None)
    own = fitted(FunctionTransformer(np.arcsinh)).certificate_  # is assumed to be fixed
    assert own.coverage is not None
    assert any("each row independently" in sentence for sentence in own.assumptions)


def test_columns_in_very_unlike_units_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4)) * [1.0, 1e7, 3.0, 1e5]
    clause = unlike_columns(X, ["a", "income", "c", "rooms"])
    assert "'income'" in clause
    assert "'rooms'" in clause
    assert "'a'" not in clause
    assert unlike_columns(X[:, [0, 2]]) == ""
    assert "number 1" in unlike_columns(X)
    assert unlike_columns(rng.normal(size=(5, 3, 3))) == ""


GIVES = "scaling=.* gave "
BAD = {
    "too few rows": (lambda rows: rows[:-1], r"scaling=.* shape \(29, 3\) for 30 rows"),
    "no features": (lambda rows: rows[:, :0], r"scaling=.* shape \(30, 0\) for 30 rows"),
    "one axis": (lambda rows: rows[:, 0], r"scaling=.* shape \(30,\) for 30 rows"),
    "a number": (lambda rows: 3.0, r"scaling=.* shape \(\) for 30 rows"),
    "text": (lambda rows: rows.astype("U1"), GIVES + "values that are not numbers"),
    "ragged": (lambda rows: [[1], [1, 2]], GIVES + "values that are not numbers"),
    "complex": (lambda rows: rows + 1j, GIVES + "values that are not numbers: complex numbers"),
    "not finite": (np.log, "values that are not finite"),
}


@pytest.mark.parametrize("network", [None, lk.mlp((4,))])
@pytest.mark.parametrize("name", BAD)
def test_a_transformer_gives_a_row_of_numbers_for_each_row(network, name):
    function, words = BAD[name]
    model = lk.LazyJackknifeRegressor(network, scaling=FunctionTransformer(function))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=words):
        model.fit(X, Y)


def test_a_transformer_gives_the_same_columns_and_all_rows_later():
    for function, rows, words in (
        (lambda rows: rows[:30], OTHER, r"scaling=.* shape \(30, 3\) for 50 rows"),
        (lambda rows: rows[:, : len(rows)], NEW[:2], r"scaling=.* shape \(2,\), but \(3,\) in"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted(FunctionTransformer(function)).predict_interval(rows)


def test_bad_rows_and_unknown_scalings_are_refused():
    with pytest.raises(ValueError, match="X_pool or X_unlabeled, not both"):
        fitted("standardize", X_pool=NEW, X_unlabeled=OTHER)
    with pytest.raises(ValueError, match=r"X_pool has rows of shape \(2,\)"):
        fitted("standardize", X_pool=NEW[:, :2])
    for wrong, error in (("log", ValueError), (3, TypeError), (StandardScaler, TypeError)):
        words = f"scaling={wrong!r}: .* None, 'auto', 'symlog', 'standardize', or"
        with pytest.raises(error, match=words):
            fitted(wrong)


def test_symlog_is_odd_and_monotone():
    np.testing.assert_allclose(lk.symlog(np.array([1 - np.e, 0.0, np.e - 1])), [-1, 0, 1])
    assert (np.diff(lk.symlog(np.linspace(-1e6, 1e6, 1001))) > 0).all()
    np.testing.assert_allclose(fitted("symlog").scaling_(NEW), lk.symlog(NEW))
