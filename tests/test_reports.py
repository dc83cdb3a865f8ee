"""HTML reports from Python: the pages of intervals and of a model, and what they need."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import lazyknife as lk
from rows import simulated

FAST = {"network": lk.wide("laplace", 0.5), "random_state": 0}


def text_of(page: str) -> str:
    """What a reader sees, without figures."""
    page = re.sub(r"<(style|script|svg).*?</\1>", " ", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.fixture(scope="module")
def fitted():
    X, y = simulated(3, 0, 120)
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=[f"row {k}" for k in range(120)])
    y = pd.Series(y, index=frame.index, name="price in $")
    model = lk.LazyJackknifeRegressor(**FAST).fit(frame[:60], y[:60])
    return model, frame[60:], y[60:]


def test_a_model_reports_what_the_command_does(fitted, tmp_path):
    model, X, y = fitted
    page = model.report(X, y, tmp_path / "out.html", alpha=[0.1, 0.3])
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == page
    text = text_of(page)
    assert model.certify(alpha=0.1).scope in text
    assert str(model.self_check()) in text.replace("&#39;", "'")
    assert "training rows 60" in text
    assert "new rows 60" in text
    assert "Measured: " in text
    assert "random_state 0" in text
    assert "fit_intercept" not in text  # as by default
    assert "row 119" in text
    assert page.count("<svg") == 3  # two figures, and the icon of the verdict
    assert 'src="http' not in page
    far = text_of(model.report(X + 50, path=None))
    assert "do not look" in far


def test_intervals_report_themselves(fitted, tmp_path, monkeypatch):
    model, X, y = fitted
    result = model.predict_interval(X)
    text = text_of(result.to_html(str(tmp_path / "a.html"), y))
    assert "Guaranteed: at least" in text
    assert "price in $" in text
    assert "training rows 60" not in text
    assert "Measured: " in text
    assert "Measured: " not in text_of(result.to_html())
    with pytest.raises(ValueError, match=r"a\.txt: give a name that ends in \.html, \.htm"):
        result.to_html(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="at least one row"):
        result[:0].to_html()
    with pytest.raises(ValueError, match="intervals with a certificate"):
        lk.Intervals(np.zeros(1), np.zeros(1), np.ones(1), 0.1).to_html()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2: pip install 'lazyknife\[cli\]'"):
        result.to_html()


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_rows_of_any_kind_are_reported(kind):
    X, y = simulated(3, 0, 60)
    model = lk.LazyJackknifeRegressor(**FAST).fit(kind(X[:40]), kind(y[:40]))
    text = text_of(model.report(kind(X[40:]), kind(y[40:])))
    assert "features 3" in text
    with pytest.raises(TypeError, match="X=<generator"):
        model.report(batch for batch in [X])


def test_the_name_of_y_is_on_plots_and_in_saved_models(fitted, tmp_path):
    model, X, y = fitted
    plt = pytest.importorskip("matplotlib.pyplot")
    result = model.predict_interval(X)
    assert result.name == "price in $"
    assert result.plot(ax=plt.figure().subplots()).get_ylabel() == r"price in \$"
    assert result.plot(y.rename("other"), plt.figure().subplots()).get_ylabel() == "other"
    assert result[:3].name == "price in $"
    model.save(tmp_path / "m.lk")
    loaded = lk.LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert loaded.predict_interval(X).name == "price in $"
    array = lk.LazyJackknifeRegressor(**FAST).fit(X, y.to_numpy()).predict_interval(X)
    assert array.name is None
    assert array.plot(ax=plt.figure().subplots()).get_ylabel() == "y"
    plt.close("all")
