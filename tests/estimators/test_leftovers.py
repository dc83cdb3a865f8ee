"""Many fits keep no memory."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import lazyknife as lk

STATUS = Path("/proc/self/statm")
rng = np.random.default_rng(0)
X = rng.normal(size=(20, 2))
y = X[:, 0] + 0.1 * rng.normal(size=20)

MODELS = [
    lk.LazyJackknifeRegressor(network=lk.mlp((8,)), random_state=0),
    lk.LazyJackknifeRegressor(network=lk.mlp((8,)), base=lk.Plain(epochs=1), widths="leverage"),
    lk.LazyJackknifeRegressor(network=lk.wide("laplace"), construction="full"),
    lk.LazyJackknifeRegressor(network=lk.wide("laplace"), feature_weights=None),
    lk.SplitConformalRegressor(network=lk.mlp((8,)), epochs=1),
    lk.CVPlusRegressor(network=lk.mlp((8,)), epochs=1, folds=4),
]


def resident() -> int:
    gc.collect()
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_three_hundred_fits_keep_no_memory() -> None:
    def fits(count: int) -> None:
        for k in range(count):
            MODELS[k % len(MODELS)].set_params(alpha=0.2).fit(X, y).predict_interval(X)

    fits(60)  # caches and pools of memory fill
    before = resident()
    fits(240)
    assert resident() - before < 16 * 2**20  # 70 kB a fit; a kept model alone is more
