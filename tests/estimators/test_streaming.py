"""Rows in batches, and rows as tensors: the same intervals in the caller's own container."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import lazyknife as lk
from reference import Array
from rows import linear

X, Y = linear(40)
NEW, NEW_Y = linear(10, seed=1)
SETTINGS: dict[str, Any] = {"network": lk.mlp((8,)), "alpha": 0.2, "random_state": 0}
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "default": lambda: lk.LazyJackknifeRegressor(alpha=0.2, random_state=0),
    "lazy": lambda: lk.LazyJackknifeRegressor(**SETTINGS, ridge=1.0),
    "split": lambda: lk.SplitConformalRegressor(**SETTINGS),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def model(request: pytest.FixtureRequest) -> Any:
    return ESTIMATORS[request.param]().fit(X, Y)


def in_fours(rows: Any) -> Iterator[Any]:
    return (rows[start : start + 4] for start in range(0, len(rows), 4))


def tensors(*arrays: Array) -> list[Tensor]:
    return [torch.from_numpy(array) for array in arrays]


LABELLED = pd.DataFrame(NEW, index=list("abcdefghij"))
STREAMS: dict[str, Callable[[], Any]] = {
    "generator of arrays": lambda: in_fours(NEW),
    "generator of tensors": lambda: in_fours(torch.from_numpy(NEW)),
    "generator of lists of lists": lambda: in_fours(NEW.tolist()),
    "generator of frames": lambda: in_fours(LABELLED),
    "generator of rows and targets": lambda: ((rows, NEW_Y[:4]) for rows in in_fours(NEW)),
    "iterator over a list": lambda: iter(list(in_fours(NEW))),
    "loader of rows": lambda: DataLoader(TensorDataset(*tensors(NEW)), batch_size=4),
    "loader of pairs": lambda: DataLoader(TensorDataset(*tensors(NEW, NEW_Y)), batch_size=4),
    "loader of arrays": lambda: DataLoader(NEW, batch_size=4),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("alpha", [None, 0.3, [0.1, 0.4]])
@pytest.mark.parametrize("name", STREAMS)
def test_batches_give_the_whole_answer_piece_by_piece(model: Any, name: str, alpha: Any) -> None:
    whole = model.predict_interval(NEW, alpha)
    answer = model.predict_interval(STREAMS[name](), alpha)
    assert isinstance(answer, Iterator)
    parts = list(answer)
    assert [len(part) for part in parts] == [4, 4, 2]
    assert all(part.alpha == whole.alpha for part in parts)
    for end in ("point", "lower", "upper"):
        joined = np.concatenate([np.asarray(getattr(part, end)) for part in parts])
        # The baseline of them predicts in float32, whose last digits depend on the batch.
        np.testing.assert_allclose(joined, getattr(whole, end), rtol=1e-6, atol=1e-6)


def test_a_stream_is_read_batch_by_batch_when_it_is_asked_for(model: Any) -> None:
    read: list[int] = []

    class Counted(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, ...]:
            read.append(index)
            return super().__getitem__(index)

    loader = DataLoader(Counted(*tensors(NEW)), batch_size=4)
    for stream in (lambda: loader, lambda: iter(loader)):
        read.clear()
        answer = model.predict_interval(stream())
        assert read == []
        next(answer)
        assert read == [0, 1, 2, 3]
        assert len(list(answer)) == 2
    assert list(model.predict_interval(iter([]))) == []


def unread() -> Iterator[Array]:
    pytest.fail("a batch was read")
    yield NEW


def test_what_is_wrong_is_said_before_a_batch_is_read_or_when_it_is(model: Any) -> None:
    for alpha in (0.0, 1.5, [0.1, -1.0], [], "0.1"):
        with pytest.raises((ValueError, TypeError), match="alpha="):
            model.predict_interval(unread(), alpha)
    with pytest.warns(UserWarning, match="rows are too few"):
        model.predict_interval(unread(), 1e-3)
    with pytest.raises(ValueError, match="not fitted"):
        ESTIMATORS["lazy"]().predict_interval(unread())
    with pytest.raises(TypeError, match=r"dict with keys \['rows', 'targets'\]"):
        next(model.predict_interval(iter([{"rows": NEW, "targets": NEW_Y}])))
    answer = model.predict_interval(iter([NEW, NEW[:, :2]]))
    assert len(next(answer)) == 10
    with pytest.raises(ValueError, match="2 features"):
        next(answer)


def test_frames_keep_their_labels_and_lists_are_arrays(model: Any) -> None:
    labels = [list(part.to_frame().index) for part in model.predict_interval(in_fours(LABELLED))]
    assert labels == [list("abcd"), list("efgh"), list("ij")]
    whole = model.predict_interval(LABELLED).with_arrays()
    assert list(whole.to_frame().index) == list("abcdefghij")
    listed = model.predict_interval(NEW.tolist()).lower
    assert isinstance(listed, np.ndarray)
    np.testing.assert_array_equal(listed, whole.lower)


@pytest.mark.parametrize("alpha", [0.2, [0.1, 0.4]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors_are_answered_by_tensors(model: Any, dtype: torch.dtype, alpha: Any) -> None:
    rows = torch.from_numpy(NEW).to(dtype).requires_grad_()
    array = rows.detach().numpy()
    arrays, result = model.predict_interval(array, alpha), model.predict_interval(rows, alpha)
    pairs = [(getattr(result, n), getattr(arrays, n)) for n in ("point", "lower", "upper", "width")]
    for values, wanted in (*pairs, (model.predict(rows), model.predict(array))):
        assert isinstance(values, Tensor)
        assert isinstance(wanted, np.ndarray)
        assert (values.dtype, values.device.type) == (torch.float64, "cpu")
        assert not values.requires_grad
        np.testing.assert_array_equal(values.numpy(), wanted)
    wild = 3 * NEW_Y
    truth = torch.from_numpy(wild)
    for y in (wild, truth, wild.tolist()):
        np.testing.assert_array_equal(result.covers(y), arrays.covers(y))
    assert 0 < arrays.covers(wild).mean() < 1  # there is something to agree on
    pd.testing.assert_frame_equal(result.to_frame(), arrays.to_frame())
    assert result.with_arrays() == arrays
    for metric in (lk.coverage, lk.interval_score, lambda _, found: lk.mean_width(found)):
        np.testing.assert_array_equal(metric(truth, result), metric(wild, arrays))
    if alpha == 0.2:
        for by, taken in (("width", "width"), (array[:, 0], rows[:, 0])):
            wanted = lk.coverage_by_bin(wild, arrays, by, bins=3)
            for one, other in zip(wanted, lk.coverage_by_bin(truth, result, taken, 3), strict=True):
                np.testing.assert_array_equal(one, other)
    weights = np.linspace(0, 1, 10)
    expected, weighted = model.score(array, wild), model.score(array, wild, weights)
    assert weighted != expected
    for pair in ((rows, truth), (rows, wild), (array, truth.clone().requires_grad_())):
        assert model.score(*pair) == pytest.approx(expected, rel=1e-12)
        assert model.score(*pair, weights) == pytest.approx(weighted, rel=1e-12)
