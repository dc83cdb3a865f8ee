"""Speed and size of the library on a processor, as ratios measured in one run.

    python -m benchmarks.cpu                    # writes benchmarks/results.json, prints the tables
    python -m benchmarks.cpu --only training    # measures one part again, and keeps the others

The two sides of a ratio are timed in turn, again and again; the median of their ratios counts.
Data of the paper's simulation. Where nothing else is said: the paper's network, 64-64 without a
linear part, jackknife+ with constant widths and λ = 10, a fit and 4,900 intervals.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.report import cpu_table, sizes_table
from benchmarks.sizes import sizes as sizes_of_the_default
from benchmarks.threads import threads
from lazyknife import DPSGD, CVPlusRegressor, JackknifeRegressor, LazyJackknifeRegressor, Plain, mlp
from lazyknife.networks import build

NEW_ROWS = 4900
WIDTHS = (64, 64)
BUDGET = 256 * 2**20
Job = Callable[[], Any]
Row = dict[str, Any]


class Problem(NamedTuple):
    """Rows, targets and new rows of the paper's simulation, and a network at its random start."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    new: NDArray[np.float64]
    network: nn.Module


def problem(n: int, features: int, m: int = NEW_ROWS) -> Problem:
    """Draw n training rows and m new ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(scale=math.sqrt(5), size=(n + m, features))
    signal = np.sqrt(np.abs(X @ rng.beta(1, 2.5, size=features)))
    y = signal + rng.normal(scale=math.sqrt(0.5), size=n + m)
    return Problem(X[:n], y[:n], X[n:], build(mlp(WIDTHS), torch.from_numpy(X), seed=0))


def seconds(job: Job) -> float:
    """Time one run."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def ratio(above: Job, below: Job, repeats: int) -> dict[str, float]:
    """Median and quartiles of the ratio of two jobs timed in turn, after a run of each."""
    above(), below()
    return spread([seconds(above) / seconds(below) for _ in range(repeats)])


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    ordered = sorted(ratios)
    quarter = len(ordered) // 4
    return {
        "ratio": statistics.median(ordered),
        "low": ordered[quarter],
        "high": ordered[-1 - quarter],
    }


def lazy(given: Problem, **settings: Any) -> Job:
    """A fit around the network as it is, and intervals for all new rows."""
    shared = {"ridge": 10.0, "widths": "constant", "scaling": None, "random_state": 0}
    model = LazyJackknifeRegressor(given.network, **shared | settings)
    return fit_and_predict(model, given)


def fit_and_predict(model: Any, given: Problem) -> Job:
    """A fit and all intervals."""
    return lambda: model.fit(given.X, given.y).predict_interval(given.new)


def training(base: Any, given: Problem) -> Job:
    """One training of the network, 10 epochs with batches of 10."""
    X, y = torch.from_numpy(given.X), torch.from_numpy(given.y)
    return lambda: base.fit(given.network, X, y, seed=0)


def product(size: int = 2048) -> Job:
    """A large matrix product, to measure the machine's rate."""
    A = torch.randn(size, size, dtype=torch.float64)
    return lambda: A @ A


def operations(n: int, m: int, features: int) -> float:
    """Operations of the matrix products that the tangent readout cannot do without."""
    layers = [(a + 1, b) for a, b in itertools.pairwise((features, *WIDTHS, 1))]
    units, weights = sum(a + b for a, b in layers), sum(a * b for a, b in layers)
    kernels = n * n * units + 2 * m * n * units  # the first one is symmetric
    return kernels + n**3 + 2 * m * n * n + 4 * (n + m) * weights


def against_training(repeats: int) -> list[Row]:
    """Both readouts, DP-SGD and jackknife+ of retrained networks against one plain training."""
    rows = []
    for p in (16, 100):
        given = problem(100, p)
        once, tangent = training(Plain(), given), lazy(given)
        jackknife = fit_and_predict(JackknifeRegressor(mlp(WIDTHS), random_state=0), given)
        moved, private = lazy(given, readout="network"), training(DPSGD(), given)
        for what, job, other, count in (
            ("tangent readout ÷ one plain training", tangent, once, 5 * repeats),
            ("network readout ÷ one plain training", moved, once, repeats),
            ("DP-SGD ÷ one plain training", private, once, repeats),
            ("batched jackknife+ ÷ tangent", jackknife, tangent, max(3, repeats // 3)),
        ):
            rows.append(row(what, f"n = 100, p = {p}", ratio(job, other, count)))
    return rows


def at_a_thousand(repeats: int) -> list[Row]:
    """Batched jackknife+ at n = 1,000, from CV+ with 25 networks, times 40."""
    given = problem(1000, 16)
    folds = CVPlusRegressor(mlp(WIDTHS), folds=25, random_state=0)
    found = ratio(fit_and_predict(folds, given), lazy(given), repeats)
    scaled = {name: 40 * value for name, value in found.items()}
    return [row("25 networks of CV+, times 40 ÷ tangent", "n = 1,000, p = 16", scaled)]


def chosen_ridge(repeats: int) -> list[Row]:
    """ridge="auto" against a fixed ridge."""
    rows = []
    for n in (100, 1000):
        given = problem(n, 16)
        found = ratio(lazy(given, ridge="auto"), lazy(given), repeats)
        rows.append(row('ridge="auto" ÷ fixed ridge', f"n = {n:,}, p = 16", found))
    return rows


def against_products(repeats: int) -> list[Row]:
    """The tangent readout at n = 2,000, 10,000 new rows, against its products alone."""
    given = problem(2000, 16, 10_000)
    found = ratio(lazy(given), product(), repeats)
    share = 2 * 2048**3 / operations(2000, 10_000, 16)
    scaled = {name: share * value for name, value in found.items()}
    what = "tangent, 10,000 new rows ÷ its matrix products alone"
    return [row(what, "n = 2,000, p = 16", scaled)]


def growth(repeats: int) -> list[Row]:
    """Exponent of fit and 5,000 predictions over n = 500 … 4,000, and times relative to n = 500."""
    sizes = (500, 1000, 2000, 4000)
    jobs = [lazy(problem(n, 16, 5000)) for n in sizes]
    rounds = [[seconds(job) for job in jobs] for _ in range(repeats)]
    times = np.median(rounds, axis=0)
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    found = row("growth exponent", "n = 500 … 4,000, p = 16", {"ratio": exponent})
    return [{**found, "n": sizes, "relative": (times / times[0]).tolist()}]


def peak_memory(_: int) -> list[Row]:
    """Peak beyond the data, n = 5,000 and 50,000 new rows, in a process of its own."""
    rows = []
    for ridge, matrices in (("10.0", 2.5), ("auto", 2.5)):
        command = [sys.executable, "-m", "benchmarks.cpu", "--peak", ridge]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        allowed = matrices * 5000**2 * 8 + BUDGET
        found = {"ratio": int(finished.stdout) / allowed}
        what = f"peak memory, 50,000 new rows, ridge={ridge} ÷ (2.5·n²·8 bytes + budget of 256 MiB)"
        rows.append(row(what, "n = 5,000, p = 16", found))
    return rows


def peak(ridge: str) -> int:
    """Bytes by which a fit and its predictions raise the peak of this process."""
    given = problem(5000, 16, 50_000)
    lazy(Problem(given.X[:50], given.y[:50], given.new[:50], given.network))()  # libraries
    before = peak_bytes()
    chosen = ridge if ridge == "auto" else float(ridge)
    lazy(given, ridge=chosen, memory_budget=BUDGET)()
    return peak_bytes() - before


def peak_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
    )


def command_line(repeats: int) -> list[Row]:
    """``lazyknife predict`` against a script that reads the same files and trains once.

    The network is the command's own, with a linear part. The last row has all of the command's
    defaults.
    """
    from research.datasets import DataNotFound, load

    try:
        data = load("blog_feedback")
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
        for kind, options in (
            ("plain", ["--widths", "constant"]),
            ("private", ["--base", "dpsgd", "--widths", "constant"]),
            ("private", ["--base", "dpsgd"]),
        ):
            above, below = [*whole, *options], ["-m", "benchmarks.cpu", "--train", kind, *files]
            name = " ".join(["lazyknife predict", *options])
            what = f"`{name}` ÷ reading the files and one {kind} training"
            setting = "n = 2,000, 50,000 new rows, p = 280, whole processes"
            jobs = (lambda a=above: process(a)), (lambda b=below: process(b))
            found.append(row(what, setting, ratio(*jobs, repeats)))
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
    base.fit(build(mlp(WIDTHS, skip=True), X, seed=0), X, y, seed=0)  # as the command's own


def row(what: str, setting: str, found: dict[str, float]) -> Row:
    """One line of the table."""
    return {"what": what, "setting": setting, **rounded(found)}


def rounded(found: Any) -> Any:
    """Numbers to three digits, in whatever holds them."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    return float(f"{found:.3g}") if isinstance(found, float) else found


PARTS = {
    "training": (against_training, 9),
    "thousand": (at_a_thousand, 3),
    "ridge": (chosen_ridge, 5),
    "products": (against_products, 5),
    "growth": (growth, 3),
    "memory": (peak_memory, 1),
    "command": (command_line, 3),
    "threads": (threads, 3),
    "sizes": (lambda repeats: [rounded(row) for row in sizes_of_the_default(repeats)], 3),
}


def main() -> None:
    """Run the parts, write the file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results.json"))
    parser.add_argument("--only", nargs="+", choices=PARTS, help="the others keep their rows")
    parser.add_argument("--peak", metavar="RIDGE", help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.train:
        read_and_train(asked.train[0], asked.train[1:])
        return
    if asked.peak:
        print(peak(asked.peak))
        return
    machine = {
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "torch": torch.__version__,
    }
    only = list(PARTS) if asked.only is None else asked.only
    kept = others_than(only, asked.output, machine)
    measured: list[Row] = []
    for name in only:
        measure, repeats = PARTS[name]
        print(f"{name} …", file=sys.stderr, flush=True)
        measured += [{"part": name, **row} for row in measure(repeats)]
    rows = sorted([*kept, *measured], key=lambda row: list(PARTS).index(row["part"]))
    result = {**machine, "rows": rows}
    asked.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(cpu_table(rows), sizes_table(rows), sep="\n\n")


def others_than(names: Sequence[str], file: Path, machine: dict[str, Any]) -> list[Row]:
    """Rows of the file's other parts; those of another machine are refused."""
    if set(names) == set(PARTS) or not file.exists():
        return []
    before = json.loads(file.read_text())
    rows = before.pop("rows")
    if before != machine or not all("part" in row for row in rows):
        raise SystemExit(
            f"--only: {file.name} has other parts from {before}, and this is {machine}, or its "
            "rows do not name their parts: measure all of them, or give another --output"
        )
    return [row for row in rows if row["part"] not in names]


if __name__ == "__main__":
    main()
