"""Learning curves by their definition."""

import numpy as np
import pytest

import lazyknife as lk
from rows import linear


def test_widths_are_those_of_fits_to_blocks_at_the_rows_of_the_others():
    X, y = linear(80)
    terms = {"ridge": 0.3, "feature_weights": None, "random_state": 0}
    model = lk.LazyJackknifeRegressor(lk.wide("laplace", 0.5), **terms, alpha=0.2)
    found = model.plan(X, y).widths
    blocks = np.array_split(np.random.default_rng(0).permutation(80), 4)
    for size, first in np.ndindex(3, 4):
        turned = [*blocks[first:], *blocks[:first]]
        parts = turned[: size + 1], turned[size + 1 :]
        inside, outside = (np.sort(np.concatenate(part)) for part in parts)
        wanted = model.fit(X[inside], y[inside]).predict_interval(X[outside]).width.mean()
        assert found[size, first] == pytest.approx(wanted)
