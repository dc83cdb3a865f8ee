import sys

import pytest

import lazyknife as lk
from lazyknife.compute import track
from rows import linear


def test_it_passes_the_items_on_and_shows_nothing_unasked(capsys):
    assert list(track(iter("abc"), "work", 3, show=False)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("rich", [True, False])
def test_it_shows_progress_on_stderr_with_and_without_rich(rich, capsys, monkeypatch):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert list(track(iter("abc"), "work", 3, show=True)) == ["a", "b", "c"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "work" in err


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (lk.LazyJackknifeRegressor(ridge=30.0, progress=True), "private training"),
        (lk.LazyJackknifeRegressor(base=lk.Plain(), ridge=30.0, progress=True), "training"),
        (lk.CVPlusRegressor(progress=True, epochs=1), "training networks"),
    ],
)
def test_fits_show_their_long_loops(model, word, capsys):
    model.fit(*linear(30))
    assert word in capsys.readouterr().err


def test_prediction_in_blocks_shows_them(capsys):
    X, y = linear(30)
    model = lk.LazyJackknifeRegressor(base=lk.Public(), memory_budget=40_000, progress=True)
    model.fit(X, y)
    model.predict_interval(X)
    assert "predicting" in capsys.readouterr().err
