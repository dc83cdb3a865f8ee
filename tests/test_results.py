"""The record of intervals: its rows, its ends, how it prints, its frames."""

import pickle
import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from matplotlib.figure import Figure

import lazyknife as lk

POINT = np.arange(8.0)
ENDS = POINT[:, None] + np.array([1.0, 2.0])
ONE = lk.Intervals(POINT, POINT - 1, POINT + 1, 0.1, certificate=lk.certify(n=99, alpha=0.1))
CERTIFICATES = tuple(lk.certify(n=99, alpha=alpha) for alpha in (0.2, 0.1))
TWO = lk.Intervals(POINT, 2 * POINT[:, None] - ENDS, ENDS, (0.2, 0.1), certificate=CERTIFICATES)
PARTS = ("point", "lower", "upper")
TENSORS = replace(TWO, **{name: torch.from_numpy(getattr(TWO, name)) for name in PARTS})
LABELLED = replace(ONE, index=pd.Index(list("abcdefgh")), backend="pandas")
ALL = {"one": ONE, "two": TWO, "tensors": TENSORS, "labelled": LABELLED}


@pytest.mark.parametrize("result", ALL.values(), ids=ALL)
def test_the_ends_are_unpacked_and_parts_are_joined_in_their_order(result: Any) -> None:
    for part in (result, result[:2], result[:1]):
        lower, upper = part
        assert lower is part.lower
        assert upper is part.upper
        assert len(part) == len(lower)
        np.testing.assert_array_equal(np.asarray(part), part.to_numpy())
    joined = lk.Intervals.concat(result[rows] for rows in (slice(0, 3), 3, slice(4, None)))
    assert joined == result == lk.Intervals.concat([result])
    assert type(joined.lower) is type(result.lower)
    assert joined.backend == result.backend


ROWS = {
    "number": (3, [3]),
    "numpy number": (np.int64(2), [2]),
    "from the end": (-1, [7]),
    "slice": (slice(2, 6, 2), [2, 4]),
    "mask": (POINT > 5, [6, 7]),
    "list": ([4, 0, 4], [4, 0, 4]),
    "tensor mask": (torch.from_numpy(POINT) < 1, [0]),
    "series": (pd.Series(POINT == 3), [3]),
    "nothing": ([], []),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("result", ALL.values(), ids=ALL)
def test_rows_are_chosen_with_everything_that_belongs_to_them(result: Any, rows: str) -> None:
    asked, expected = ROWS[rows]
    part = result[asked]
    assert isinstance(part, lk.Intervals)
    for name in (*PARTS, "width"):
        kept, whole = getattr(part, name), getattr(result, name)
        assert type(kept) is type(whole)
        np.testing.assert_array_equal(kept, whole[expected])
    for name in ("alpha", "certificate", "backend"):
        assert getattr(part, name) == getattr(result, name)
    if result.index is not None:
        assert list(part.index) == [result.index[k] for k in expected]


def test_what_is_no_row_is_refused() -> None:
    for wrong in ("lower", None, (0, 1), [[0]], 1.5, True):
        with pytest.raises((TypeError, IndexError)):
            ONE[wrong]
    with pytest.raises(TypeError, match=r"the ends are result\.lower"):
        ONE["lower"]
    for outside in (8, -9, [8], np.ones(7, bool)):
        with pytest.raises(IndexError):
            ONE[outside]


def test_what_the_parts_do_not_share_is_not_kept_or_refused() -> None:
    other = replace(ONE, certificate=None)
    assert lk.Intervals.concat([ONE, other]).certificate is None
    mixed = lk.Intervals.concat([LABELLED, ONE])
    assert (mixed.index, mixed.backend) == (None, None)
    both = lk.Intervals.concat([TWO, TENSORS])
    assert isinstance(both.lower, np.ndarray)
    assert len(both) == 16
    with pytest.raises(ValueError, match="parts is empty"):
        lk.Intervals.concat([])
    with pytest.raises(ValueError, match=r"different levels, alpha=\[0\.1, \(0\.2, 0\.1\)\]"):
        lk.Intervals.concat([ONE, TWO])
    with pytest.raises(TypeError, match="Intervals only"):
        lk.Intervals.concat([ONE, (POINT, POINT)])  # type: ignore[list-item]


def test_equality_is_of_numbers_levels_labels_and_certificates() -> None:
    assert TENSORS == TWO
    assert pickle.loads(pickle.dumps(LABELLED)) == LABELLED
    changes = ({"alpha": 0.2}, {"lower": POINT - 2}, {"certificate": None})
    for other in (*(replace(ONE, **one) for one in changes), LABELLED, ONE[:4], TWO, "intervals"):
        assert other != ONE
    with pytest.raises(TypeError, match="unhashable"):
        hash(ONE)
    with pytest.raises(FrozenInstanceError):
        ONE.alpha = 0.5  # type: ignore[misc]


# How they print.


def test_the_repr_is_short_and_says_what_matters() -> None:
    lines = repr(lk.Intervals.concat([ONE] * 1000)).splitlines()
    assert lines[0] == "8,000 intervals: alpha = 0.1, mean width 2, guaranteed coverage 0.8100"
    assert lines[1].split() == ["point", "lower", "upper", "width"]
    assert lines[2].split() == ["0", "0", "-1", "1", "2"]
    assert lines[-1] == "… and 7,995 more rows"
    assert len(lines) == 8
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert "alpha = 0.2, 0.1, mean width 2, 4, guaranteed coverage 0.6" in repr(TENSORS)
    assert repr(LABELLED[-1]).splitlines()[2].split() == ["h", "7", "6", "8", "2"]
    assert repr(LABELLED[:6]).endswith("… and 1 more row")
    assert repr(ONE[:0]).startswith("0 intervals: alpha = 0.1, guaranteed")
    uncertain = replace(ONE, certificate=lk.certify(n=9, alpha=0.1, base=lk.Plain()))
    assert "mean width 2, guaranteed coverage none" in repr(uncertain)


def test_html_and_plots_show_the_same() -> None:
    labelled = replace(ONE, index=pd.Index(["<b>", *"bcdefgh"]), backend="pandas")
    page = labelled._repr_html_()
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert re.findall(r"<th[^>]*>(\w+)</th>", page) == ["point", "lower", "upper", "width"]
    assert cells[:5] == ["&lt;b&gt;", "0", "-1", "1", "2"]
    assert len(cells) == 25
    assert repr(ONE).splitlines()[0] in page
    assert "… and 3 more rows" in page
    ax = Figure().add_subplot()
    assert ONE.plot(POINT + 3, ax=ax) is ax
    assert "y, missed" in [text.get_text() for text in ax.get_legend().get_texts()]
    with pytest.raises(ValueError, match="several levels"):
        TWO.plot(ax=ax)


# Frames.

FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, [f"row {k}" for k in range(len(X))], ["a", "b"]),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b"]),
    "pyarrow": lambda X: pa.table({"a": X[:, 0], "b": X[:, 1]}),
}
X = np.random.default_rng(0).normal(size=(30, 2))
SETTINGS: dict[str, Any] = {"network": lk.mlp((4,)), "ridge": 1.0, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(**SETTINGS).fit(X, X[:, 0])


def columns(frame: Any) -> list[str]:
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


@pytest.mark.parametrize("backend", FRAMES)
def test_frames_come_back_in_the_callers_library(backend: str) -> None:
    given = FRAMES[backend](X)
    model = lk.LazyJackknifeRegressor(**SETTINGS).fit(given, X[:, 0])
    result = model.predict_interval(given)
    frame = result.to_frame()
    assert type(frame) is type(given)
    assert columns(frame) == ["point", "lower", "upper", "width"]
    np.testing.assert_array_equal(np.asarray(frame["width"]), result.width)
    if backend == "pandas":
        assert frame.index.equals(given.index)
        assert list(result[[5, 2]].to_frame().index) == ["row 5", "row 2"]
    streamed = model.predict_interval(given[k : k + 7] for k in range(0, 30, 7))
    joined = lk.Intervals.concat(streamed)
    assert type(joined.to_frame()) is type(given)
    np.testing.assert_allclose(joined.lower, result.lower, rtol=1e-9)


@pytest.mark.parametrize("backend", FRAMES)
def test_levels_that_are_nearly_equal_have_columns_of_their_own(model: Any, backend: str) -> None:
    for rows in (X, torch.from_numpy(X), X.tolist()):  # which are no frames
        frame = model.predict_interval(rows).to_frame()
        assert isinstance(frame, pd.DataFrame)
        assert list(frame.index) == list(range(30))
    with pytest.raises(ImportError, match="to_frame needs modin: install it, or use to_numpy"):
        replace(ONE, backend="modin").to_frame()
    found = model.predict_interval(X, alpha=[0.3, 0.3000000001, np.float32(0.25)])
    assert columns(replace(found, backend=backend).to_frame()) == ["point"] + [
        f"{name}_{level}"
        for level in ("0.3", "0.3000000001", "0.25")
        for name in ("lower", "upper", "width")
    ]


# The certificate.


def test_the_certificate_is_on_the_result(model: Any) -> None:
    assert model.predict_interval(X).certificate is model.certificate_
    several = model.predict_interval(X, alpha=[0.05, 0.1])
    assert several.certificate == (model.certify(0.05), model.certify(0.1))
    parts = list(model.predict_interval(X[k : k + 10] for k in (0, 10)))
    assert [part.certificate for part in parts] == [model.certificate_] * 2
