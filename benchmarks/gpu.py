"""Absolute times of the engine on a GPU, with torch and numpy alone.

    python benchmarks/gpu.py --output benchmarks/gpu.json

From rows in the host's memory to intervals there: linearise, solve all leave-one-out models,
predict, select. Network: three hidden layers, ReLU; the base is its random start.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from lazyknife.compute import machine_for, steps
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.intervals import kappa
from lazyknife.intervals.constructions import plus
from lazyknife.intervals.models import rounding_share
from lazyknife.networks import mlp, seeded
from lazyknife.tangent import EXACT, Sketch, linearise


@dataclass(frozen=True)
class Case:
    """One problem: training rows, new rows, and how the features are taken."""

    n: int
    m: int
    dimension: int | None = None
    budget: int | None = None


CASES = (
    Case(1_000, 100_000),
    Case(2_000, 100_000),
    Case(5_000, 100_000),
    Case(10_000, 100_000),
    Case(20_000, 100_000),
    Case(30_000, 100_000),
    Case(100_000, 100_000, budget=14 * 2**30),
    Case(1_000_000, 10_000, 4096),
)

# Rows of the default, which chooses everything, with 50 features of which six matter.
DEFAULTS = (4_000, 30_000, 200_000, 1_000_000)


class Clock:
    """Seconds of each stage, the device's queue emptied in between."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}
        self.mark = self._now()

    def stage(self, name: str) -> None:
        """Note the seconds since the last stage."""
        now = self._now()
        self.seconds[name] = round(now - self.mark, 4)
        self.mark = now

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def data(n: int, m: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, a smooth target with noise, new rows."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n + m, features, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return X[:n], X[:n, 0].sin() + X[:n, 1] + 0.5 * noise, X[n:]


def run(case: Case, widths: tuple[int, ...], features: int, device: str) -> dict[str, Any]:
    """Time one case, after a small one has warmed everything up."""
    machine = machine_for(device, case.budget)
    mapped = EXACT if case.dimension is None else Sketch(case.dimension)
    X, y, new = data(case.n, case.m, features)
    with seeded(0):
        network = mlp(widths)(features)
    ranks = [kappa(0.1, case.n)]
    if machine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = Clock(machine.device)
    tangent = linearise(network, X, machine=machine)
    clock.stage("linearise")
    models = LazyStep(10.0, features=mapped).models(tangent, X, y)
    clock.stage("solve")
    with torch.no_grad():
        ends = [plus(models, new[part], ranks) for part in steps(case.m, models.rows_at_once)]
    lower, upper = (torch.cat([end[k] for end in ends]).cpu() for k in (1, 2))
    clock.stage("predict")
    assert torch.isfinite(lower).all()
    assert (lower < upper).all()
    peak = torch.cuda.max_memory_allocated() if machine.device.type == "cuda" else None
    return {
        **vars(case),
        **clock.seconds,
        "seconds": round(sum(clock.seconds.values()), 4),
        "peak_bytes": peak,
        "rounding": rounding_share(models, 0.1, float(y.abs().max())),
        "mean_width": float((upper - lower).mean()),
    }


def run_default(n: int, m: int, device: str) -> dict[str, Any]:
    """Time the default with n rows and m new ones, and its interval score."""
    from lazyknife import LazyJackknifeRegressor, interval_score

    X, y = table(n, seed=0)
    new, truth = table(m, seed=1)
    torch.cuda.reset_peak_memory_stats()
    clock = Clock(torch.device(device))
    model = LazyJackknifeRegressor(device=device, random_state=0).fit(X, y)
    clock.stage("fit")
    found = model.predict_interval(new)
    clock.stage("predict")
    return {
        "n": n,
        "m": m,
        **clock.seconds,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "score": float(interval_score(truth, found)),
        "coverage": float(found.covers(truth).mean()),
        "certified": model.certificate_.coverage,
        "choice": str(model.choice_),
    }


def table(n: int, seed: int) -> tuple[Any, Any]:
    """Standard normal features, of which six matter, and a target whose noise varies."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 50))
    mean = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.5 * X[:, 3] * (X[:, 4] > 0)
    return X, mean + (0.3 + 0.3 * (X[:, 5] > 0)) * rng.standard_normal(n)


def rate(device: torch.device, size: int = 8192) -> float:
    """Operations a second of a large matrix product."""
    A = torch.randn(size, size, dtype=torch.float64, device=device)
    seconds = []
    for _ in range(4):
        clock = Clock(device)
        A @ A
        clock.stage("product")
        seconds.append(clock.seconds["product"])
    return 2 * size**3 / min(seconds)


def main() -> None:
    """Run the cases and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/gpu.json"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the cases to run")
    parser.add_argument("--repeats", type=int, default=3, help="for cases under five seconds")
    options = parser.parse_args()
    widths, features = (256, 256, 256), 100
    chosen = [case for k, case in enumerate(CASES) if options.only is None or k in options.only]
    device = torch.device(options.device)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "widths": widths,
        "features": features,
        "rate": rate(device),
        "cases": [],
        "defaults": [],
    }
    print(f"{result['rate'] / 1e12:.1f} TFLOP/s")
    for dimension in (None, 64):
        run(Case(500, 500, dimension), widths, features, options.device)
    for case in chosen:
        repeats = [run(case, widths, features, options.device)]
        while repeats[0]["seconds"] < 5 and len(repeats) < options.repeats:
            repeats.append(run(case, widths, features, options.device))
        row = sorted(repeats, key=lambda r: r["seconds"])[len(repeats) // 2]
        result["cases"].append(row)
        print(row, flush=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    run_default(2_000, 100, options.device)
    for n in DEFAULTS:
        row = run_default(n, 100_000, options.device)
        result["defaults"].append(row)
        print(row, flush=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
