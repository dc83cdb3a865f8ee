"""The experiment on rows without labels: its rows, its page, and a run on a small sample."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from research.experiments import autoencoding, unlabelled
from research.pages import DOCS
from torch import nn

import lazyknife as lk
from descents import adam, squared_error, weights
from lazyknife.networks import seeded
from lazyknife.records import INDEPENDENT
from rows import linear

PAGE = DOCS / "unlabelled.md"
ROWS = DOCS / "unlabelled/rows.csv"


def test_the_rows_are_all_there():
    rows = pd.read_csv(ROWS)
    seeds = range(unlabelled.FIRST, unlabelled.FIRST + unlabelled.SPLITS)
    wanted = itertools.product((case.title for case in unlabelled.CASES), unlabelled.METHODS, seeds)
    found = list(zip(rows["data"], rows["method"], rows["split"], strict=True))
    assert sorted(found) == sorted(wanted)
    assert (rows["certified"] > 0.8).all()
    blog = rows[rows["data"] == "BlogFeedback"]
    assert set(blog["unlabelled"]) == {50_000}


def test_scores_are_compared_split_by_split():
    scores = {"random start": (2.0, 4.0), "autoencode": (1.0, 3.0)}
    measured = dict.fromkeys(unlabelled.MEASURES, 0.0)
    rows = pd.DataFrame(
        {"data": "d", "method": method, "split": split, "unlabelled": 5, **measured, "score": score}
        for method, both in scores.items()
        for split, score in enumerate(both)
    )
    summary = unlabelled.summarise(rows).set_index("method")
    assert summary.loc["random start", ["gain", "gain_se"]].tolist() == [0.0, 0.0]
    gains = [100 * (1 - 1 / 2), 100 * (1 - 3 / 4)]
    assert summary.loc["autoencode", "gain"] == pytest.approx(np.mean(gains))
    assert summary.loc["autoencode", "gain_se"] == pytest.approx(np.std(gains, ddof=1) / 2**0.5)
    assert summary.loc["autoencode", "score"] == 2.0


def test_the_figure_shows_every_gain():
    figure = unlabelled.draw(pd.read_csv(ROWS))
    texts = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert len(texts) == len(unlabelled.CASES) * (len(unlabelled.METHODS) - 1)
    assert not [text for text in texts if "→" in text]  # not drawn to scale


@pytest.mark.parametrize("skip", [False, True])
def test_autoencoding_is_adam_on_the_reconstruction_of_rows_without_labels(skip):
    start = lk.mlp((5, 4), "tanh", skip=skip)(3).double()
    X = torch.from_numpy(linear(30)[0])
    base, labels = autoencoding.Autoencoded(epochs=3, batch_size=8, lr=3e-3), torch.zeros(6)
    found = base.fit(start, X[:6], labels, seed=2, covariates=X)
    other = base.fit(start, X[:6], labels + 9, seed=2, covariates=X)
    module = copy.deepcopy(start)
    *layers, _ = getattr(module, "body", module)
    body = nn.Sequential(*layers)
    with seeded(2):
        decoder = nn.Linear(4, 3).double()
        orders = [torch.randperm(30) for _ in range(3)]
    adam(
        lambda b: squared_error(decoder(body(X[b])), X[b]),
        [*body.parameters(), *decoder.parameters()],
        [batch for order in orders for batch in order.split(8)],
        3e-3,
    )
    torch.testing.assert_close(weights(found.module), weights(module), rtol=1e-9, atol=1e-12)
    assert torch.equal(weights(found.module), weights(other.module))
    assert not torch.equal(weights(found.module), weights(start))
    assert not any(part._forward_pre_hooks for part in found.module.modules())
    assert found.dependence == INDEPENDENT
    with pytest.raises(ValueError, match="X_pool or X_unlabeled"):
        base.fit(start, X[:6], labels, seed=2)


@pytest.mark.slow
def test_the_study_runs_on_a_small_sample(tmp_path):
    X, y = linear(240, 4)
    cases = [unlabelled.Case(f"new={new}", lambda: (X, y), new) for new in (60, None)]
    for case in cases:
        parts = case.split(0)
        assert sorted(np.concatenate(parts)) == list(range(240))
        assert [len(part) for part in parts] == ([100, 60, 80] if case.new else [100, 140, 0])
    rows = unlabelled.run(cases, 2)
    assert len(rows) == 2 * 2 * len(unlabelled.METHODS)
    assert rows["coverage"].between(0.5, 1).all()
    assert set(rows["unlabelled"]) == {80, 140}
    score = rows.set_index(["data", "split", "method"])["score"]
    assert (score.loc[:, :, "autoencode"] != score.loc[:, :, "random start"]).all()
    unlabelled.write(rows, tmp_path)
    assert (tmp_path / "unlabelled/score.svg").stat().st_size > 5000
