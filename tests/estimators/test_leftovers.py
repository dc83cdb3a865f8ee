"""Many fits keep no memory, and a fit that is ended leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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


ENDLESS = """
import numpy as np, lazyknife as lk
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
print("fitting", flush=True)
while True:
    lk.LazyJackknifeRegressor(random_state=0).fit(X, X[:, 0]).predict_interval(X)
    lk.JackknifeRegressor(network=lk.mlp((8,)), epochs=1).fit(X, X[:, 0])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_a_fit_that_is_ended_leaves_no_files(tmp_path: Path, name: str) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "fitting\n"
        time.sleep(1.0)  # into a fit
        running.send_signal(end := signal.Signals[name])
        _, errors = running.communicate(timeout=120)
    assert running.returncode == -end
    assert ("KeyboardInterrupt" in errors) == (name == "SIGINT")
    assert sorted(tmp_path.rglob("*")) == []
