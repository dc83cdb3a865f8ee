"""Speed and size of the engine on a processor, as ratios measured in one run.

    python benchmarks/cpu.py            # writes benchmarks/results.json, prints the table

The two sides of a ratio are timed in turn, again and again; the median of their ratios counts.
Network 64-64, data of the paper's simulation, 4,900 new rows where nothing else is said.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import cpu_table
from torch import Tensor, nn

from lazyknife.base import DPSGD, Plain
from lazyknife.base.plain import train
from lazyknife.baselines import Refits
from lazyknife.intervals import kappa, plus
from lazyknife.lazy import LazyStep
from lazyknife.machine import Machine, steps
from lazyknife.networks import build, make
from lazyknife.records import LeaveOneOut
from lazyknife.refits import train_ensemble
from lazyknife.tangent import linearise

NEW_ROWS = 4900
WIDTHS = (64, 64)
BUDGET = 256 * 2**20
Job = Callable[[], Any]
Row = dict[str, Any]


def problem(n: int, features: int, m: int = NEW_ROWS) -> tuple[Tensor, Tensor, Tensor, nn.Module]:
    """Rows, targets, new rows and a network at its random start."""
    rng = np.random.default_rng(0)
    X = rng.normal(scale=math.sqrt(5), size=(n + m, features))
    signal = np.sqrt(np.abs(X @ rng.beta(1, 2.5, size=features)))
    y = signal + rng.normal(scale=math.sqrt(0.5), size=n + m)
    rows, targets = torch.from_numpy(X), torch.from_numpy(y)
    return rows[:n], targets[:n], rows[n:], build(None, rows, seed=0)


def seconds(job: Job) -> float:
    """Time one run."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def ratio(above: Job, below: Job, repeats: int) -> dict[str, float]:
    """Median and quartiles of the ratio of two jobs timed in turn, after a run of each."""
    above(), below()
    ratios = sorted(seconds(above) / seconds(below) for _ in range(repeats))
    quarter = len(ratios) // 4
    return {
        "ratio": statistics.median(ratios),
        "low": ratios[quarter],
        "high": ratios[-1 - quarter],
    }


def ends(loo: LeaveOneOut, new: Tensor) -> None:
    """Jackknife+ intervals at alpha = .1 for all new rows, in blocks."""
    with torch.no_grad():
        for part in steps(len(new), loo.rows_at_once):
            plus(loo, new[part], [kappa(0.1, len(loo.residuals))])


def lazy(
    X: Tensor, y: Tensor, new: Tensor, network: nn.Module, machine: Machine, **settings: Any
) -> Job:
    """Everything after the base: linearise, leave out, predict, select."""

    def job() -> None:
        tangent = linearise(network, X, machine=machine)
        ends(LazyStep(**{"ridge": 10.0, **settings}).models(tangent, X, y).loo, new)

    return job


def refits(X: Tensor, y: Tensor, new: Tensor, count: int) -> Job:
    """Batched jackknife+ with the networks that leave the first ``count`` rows out."""
    n = len(y)
    subsets = torch.tensor([[i for i in range(n) if i != j] for j in range(count)])

    def job() -> None:
        models = train_ensemble(
            lambda seed: make(None, X, seed), X, y, subsets, Plain(), center=True, seed=0
        )
        residuals = y[:count] - models.own_outputs(X[:count])
        ends(Refits(models, models, torch.arange(count), residuals, residuals), new)

    return job


def product(size: int = 2048) -> Job:
    """A large matrix product, to measure the machine's rate."""
    A = torch.randn(size, size, dtype=torch.float64)
    return lambda: A @ A


def operations(n: int, m: int, features: int) -> float:
    """Operations of the matrix products that the tangent readout cannot do without."""
    sizes = (features, *WIDTHS, 1)
    both = sum(a + 1 + b for a, b in itertools.pairwise(sizes))
    weights = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    kernels = n * n * both + 2 * m * n * both  # the first one is symmetric
    return kernels + n**3 + 2 * m * n * n + 4 * (n + m) * weights


def against_training(repeats: int) -> list[Row]:
    """Both readouts, DP-SGD and batched jackknife+ against one plain training, n = 100."""
    rows = []
    for p in (16, 100):
        X, y, new, network = problem(100, p)
        once: Job = lambda: train(network, X, y, Plain(), 0)  # noqa: B023, E731
        tangent = lazy(X, y, new, network, Machine())
        moved = lazy(X, y, new, network, Machine(), readout="network")
        private: Job = lambda: DPSGD().fit(network, X, y, seed=0)  # noqa: B023, E731
        for what, job, other, limit, count in (
            ("tangent readout ÷ one plain training", tangent, once, 0.25, 5 * repeats),
            ("network readout ÷ one plain training", moved, once, 2.5, repeats),
            ("DP-SGD ÷ one plain training", private, once, 3.0, repeats),
        ):
            rows.append(row(what, f"n = 100, p = {p}", limit, ratio(job, other, count)))
        jackknife = refits(X, y, new, 100)
        found = ratio(jackknife, tangent, max(3, repeats // 3))
        rows.append(row("batched jackknife+ ÷ tangent", f"n = 100, p = {p}", -15, found))
    return rows


def at_a_thousand(repeats: int) -> list[Row]:
    """Batched jackknife+ at n = 1,000, from 25 of its 1,000 networks, times 40."""
    rows = []
    for p in (16, 100):
        X, y, new, network = problem(1000, p)
        found = ratio(refits(X, y, new, 25), lazy(X, y, new, network, Machine()), repeats)
        scaled = {name: 40 * value for name, value in found.items()}
        what = "batched jackknife+ (25 of its networks, times 40) ÷ tangent"
        rows.append(row(what, f"n = 1,000, p = {p}", -60, scaled))
    return rows


def chosen_ridge(repeats: int) -> list[Row]:
    """ridge="auto" with its 20 grid points against a fixed ridge."""
    rows = []
    for n in (100, 1000):
        for p in (16, 100):
            X, y, new, network = problem(n, p)
            auto = lazy(X, y, new, network, Machine(), ridge="auto")
            found = ratio(auto, lazy(X, y, new, network, Machine()), repeats)
            rows.append(row('ridge="auto" ÷ fixed ridge', f"n = {n:,}, p = {p}", 3.0, found))
    return rows


def against_products(repeats: int) -> list[Row]:
    """The tangent readout at n = 2,000, 10,000 new rows, against its products alone."""
    rows = []
    for p in (16, 100):
        X, y, new, network = problem(2000, p, 10_000)
        found = ratio(lazy(X, y, new, network, Machine()), product(), repeats)
        share = 2 * 2048**3 / operations(2000, 10_000, p)
        scaled = {name: share * value for name, value in found.items()}
        what = "tangent, 10,000 new rows ÷ its matrix products alone"
        rows.append(row(what, f"n = 2,000, p = {p}", 1.7, scaled))
    return rows


def growth(repeats: int) -> list[Row]:
    """Exponent of fit and 5,000 predictions over n = 500 … 4,000, and times relative to n = 500."""
    sizes = (500, 1000, 2000, 4000)
    jobs = []
    for n in sizes:
        X, y, new, network = problem(n, 16, 5000)
        jobs.append(lazy(X, y, new, network, Machine()))
    rounds = [[seconds(job) for job in jobs] for _ in range(repeats)]
    times = np.median(rounds, axis=0)
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    found = row("growth exponent", "n = 500 … 4,000, p = 16", 2.6, {"ratio": exponent})
    return [{**found, "n": sizes, "relative": (times / times[0]).tolist()}]


def convolutions(repeats: int) -> list[Row]:
    """Kernels of 28×28 images against one forward and backward pass over them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 49, 1),
    )
    images = torch.randn(1500, 1, 28, 28, dtype=torch.float64)
    tangent = linearise(network, images, machine=Machine(budget=2**30))

    def kernels() -> None:
        features = tangent.features(images[:500])
        tangent.gram(features)
        tangent.kernel(tangent.features(images[500:]), features)

    def passes() -> None:
        tangent.module(images).sum().backward()

    found = ratio(kernels, passes, repeats)
    what = "kernels of 500 and 1,000 images, 28×28 ÷ one forward-backward pass"
    return [row(what, "Conv 8-16, 3×3", None, found)]


def peak_memory(_: int) -> list[Row]:
    """Peak beyond the data, n = 5,000 and 50,000 new rows, in a process of its own."""
    rows = []
    for ridge, matrices in (("10.0", 2.5), ("auto", 2.5)):
        command = [sys.executable, __file__, "--peak", ridge]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        allowed = matrices * 5000**2 * 8 + BUDGET
        found = {"ratio": int(finished.stdout) / allowed}
        what = f"peak memory, 50,000 new rows, ridge={ridge} ÷ (2.5·n²·8 bytes + budget of 256 MiB)"
        rows.append(row(what, "n = 5,000, p = 16", 1.0, found))
    return rows


def peak(ridge: str) -> int:
    """Bytes by which a fit and its predictions raise the peak of this process."""
    X, y, new, network = problem(5000, 16, 50_000)
    machine = Machine(budget=BUDGET)
    lazy(X[:50], y[:50], new[:50], network, machine)()  # libraries and their buffers
    before = peak_bytes()
    lazy(X, y, new, network, machine, ridge=ridge if ridge == "auto" else float(ridge))()
    return peak_bytes() - before


def peak_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
    )


def command_line(repeats: int) -> list[Row]:
    """``lazyknife predict`` against a script that reads the same files and trains once."""
    from lazyknife.datasets import DataNotFound, blog_feedback

    try:
        data = blog_feedback()
    except DataNotFound as error:
        print(f"passed over: {error}", file=sys.stderr)
        return []
    rows = np.random.default_rng(0).permutation(len(data))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("train", rows[:2000]), ("new", rows[2000:52_000])):
            columns = np.column_stack([data.X[part], data.y[part]])
            header = ",".join([*data.feature_names, "y"])
            np.savetxt(f"{folder}/{name}.csv", columns, "%.9g", ",", header=header, comments="")
        files = [f"{folder}/train.csv", f"{folder}/new.csv"]
        whole = ["-m", "lazyknife.cli", "predict", *files, "--target", "y"]
        whole += ["--output", f"{folder}/out.csv"]
        for kind in ("plain", "private"):
            alone = [__file__, "--train", kind, *files]
            what = f"`lazyknife predict` ÷ reading the files and one {kind} training"
            setting = "n = 2,000, 50,000 new rows, p = 280, whole processes"
            jobs = (lambda: process(whole)), (lambda alone=alone: process(alone))
            found.append(row(what, setting, 3.0, ratio(*jobs, repeats)))
    return found


def process(arguments: list[str]) -> None:
    """Run Python with these arguments."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def read_and_train(kind: str, files: list[str]) -> None:
    """Read the files and train one network, as a script would."""
    import pandas as pd

    rows, _ = (pd.read_csv(file) for file in files)
    values = torch.from_numpy(rows.to_numpy(copy=True))
    X, y = values[:, :-1], values[:, -1]
    X = (X - X.mean(dim=0)) / X.std(dim=0).clamp(min=1e-12)
    base = Plain() if kind == "plain" else DPSGD()
    base.fit(build(None, X, seed=0), X, y, seed=0)


def row(what: str, setting: str, limit: float | None, found: dict[str, float]) -> Row:
    """One line of the table; a negative limit is one to reach from above."""
    reached = limit is None or (found["ratio"] >= -limit if limit < 0 else found["ratio"] <= limit)
    return {
        "what": what,
        "setting": setting,
        **{name: float(f"{value:.3g}") for name, value in found.items()},
        "aim": None if limit is None else f"≥ {-limit:g}" if limit < 0 else f"≤ {limit:g}",
        "reached": reached,
    }


PARTS = {
    "training": (against_training, 9),
    "thousand": (at_a_thousand, 3),
    "ridge": (chosen_ridge, 5),
    "products": (against_products, 5),
    "growth": (growth, 3),
    "convolutions": (convolutions, 7),
    "memory": (peak_memory, 1),
    "command": (command_line, 3),
}


def main() -> None:
    """Run the parts, write the file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results.json"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--peak", metavar="RIDGE", help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.train:
        read_and_train(options.train[0], options.train[1:])
        return
    if options.peak:
        print(peak(options.peak))
        return
    rows: list[Row] = []
    for name in options.only:
        measure, repeats = PARTS[name]
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += measure(repeats)
    result = {
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "torch": torch.__version__,
        "rows": rows,
    }
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(cpu_table(rows))


if __name__ == "__main__":
    main()
