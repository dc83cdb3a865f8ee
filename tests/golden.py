"""Numbers of many settings, written before a change of structure and compared after it.

``python tests/golden.py write`` stores ends, points, certificates and choices in golden.json;
``python tests/golden.py check`` prints what differs by more than 1e-9 of the ends' spread.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lazyknife as lk

STORE = Path(__file__).with_suffix(".json")
TOLERANCE = 1e-9


def rows(n: int, seed: int) -> tuple[Any, Any]:
    """Five features, the last two without effect, and noise that grows with the first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    noise = (0.2 + 0.2 * np.abs(X[:, 0])) * rng.normal(size=n)
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + noise


def frame(X: Any) -> Any:
    """The same rows as a frame with a column of categories."""
    import pandas as pd

    found = pd.DataFrame(X, columns=list("abcde"))
    found["e"] = pd.cut(found["e"], [-9, -1, 0, 1, 9], labels=["w", "x", "y", "z"]).astype(str)
    return found


R = lk.LazyJackknifeRegressor
SMALL = lk.mlp((16,), skip=True)
SETTINGS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "default": (lambda: R(random_state=0), (60, 300, 1500)),
    "default constant": (lambda: R(random_state=0, widths="constant"), (60, 300, 1500)),
    "default minmax": (lambda: R(random_state=0, construction="minmax"), (60, 300, 1500)),
    "default cv+": (lambda: R(random_state=0, construction="cv+"), (60, 300)),
    "default full": (lambda: R(random_state=0, construction="full"), (60,)),
    "default fixed ridge": (lambda: R(random_state=0, ridge=0.1), (60, 300, 1500)),
    "one network": (lambda: R(network=SMALL, random_state=0), (60, 300, 1500)),
    "one network, ridge 1": (
        lambda: R(network=SMALL, ridge=1.0, widths="constant", random_state=0),
        (60, 300, 1500),
    ),
    "one network, full": (
        lambda: R(network=SMALL, ridge=1.0, construction="full", random_state=0),
        (60, 300),
    ),
    "one network, cv+": (
        lambda: R(network=SMALL, construction="cv+", random_state=0),
        (60, 300, 1500),
    ),
    "network readout": (
        lambda: R(network=SMALL, ridge=1.0, readout="network", random_state=0),
        (60,),
    ),
    "last layer": (lambda: R(network=SMALL, parameters="last", random_state=0), (60, 300, 1500)),
    "sketch": (lambda: R(network=SMALL, features=lk.Sketch(32), random_state=0), (60, 300, 1500)),
    "huber": (lambda: R(network=SMALL, loss="huber", ridge=1.0, random_state=0), (60,)),
    "list": (lambda: R(network=[SMALL, lk.wide("laplace")], random_state=0), (60, 300)),
    "private": (lambda: R(network=SMALL, base=lk.DPSGD(1.0, 0.001), random_state=0), (60, 300)),
    "split": (lambda: R(network=SMALL, base=lk.Split(), random_state=0), (60, 300)),
    "perturbed": (
        lambda: R(network=SMALL, base=lk.Perturbed(sensitivity=0.1, epsilon=1.0), random_state=0),
        (60,),
    ),
    "paper": (lambda: lk.DPLazyPI(random_state=0), (60, 300)),
    "jackknife refits": (lambda: lk.JackknifeRegressor(SMALL, epochs=2, random_state=0), (20,)),
    "split conformal": (lambda: lk.SplitConformalRegressor(random_state=0), (60, 300)),
}
FRAMES = ("default",)


def numbers(make: Any, n: int, framed: bool) -> dict[str, Any]:
    X, y = rows(n, n)
    new = rows(40, 1)[0]
    if framed:
        X, new = frame(X), frame(new)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(X, y)
        result = model.predict_interval(new)
    return {
        "point": result.point.tolist(),
        "lower": result.lower.tolist(),
        "upper": result.upper.tolist(),
        "coverage": model.certificate_.coverage,
        "choice": str(getattr(model, "choice_", "")),
    }


def compute() -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    found = {}
    for name, (make, sizes) in SETTINGS.items():
        for n in sizes:
            for framed in (False, True) if name in FRAMES else (False,):
                key = f"{name}{' of a frame' if framed else ''}, n = {n}"
                began = time.perf_counter()
                found[key] = numbers(make, n, framed)
                print(f"{time.perf_counter() - began:6.1f} s  {key}", file=sys.stderr, flush=True)
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found = []
    spread = np.ptp(np.array(old["point"]))
    for key in ("point", "lower", "upper"):
        a, b = (np.array(side[key], dtype=float) for side in (old, new))
        with np.errstate(invalid="ignore"):
            gap = np.where(a == b, 0.0, np.abs(a - b)).max() / spread
        if not gap <= TOLERANCE:
            found.append(f"{key} by {gap:.2g}")
    width = [np.mean(np.subtract(side["upper"], side["lower"])) for side in (old, new)]
    if found:
        found.append(f"mean width {width[0]:.4f} -> {width[1]:.4f}")
    found += [
        f"{key}: {old[key]} -> {new[key]}" for key in ("coverage", "choice") if old[key] != new[key]
    ]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "write":
        STORE.write_text(json.dumps(compute()))
    else:
        stored = json.loads(STORE.read_text())
        for name, new in compute().items():
            what = differences(stored[name], new) if name in stored else ["not stored"]
            print(f"{name}: {'; '.join(what) if what else 'equal'}")
