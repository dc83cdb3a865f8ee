"""Speed and size of the engine on a processor, as ratios measured in one run.

    python -m benchmarks.cpu                    # writes benchmarks/results.json, prints the tables
    python -m benchmarks.cpu --only options     # measures one part again, and keeps the others

The two sides of a ratio are timed in turn, again and again; the median of their ratios counts.
Data of the paper's simulation. Where nothing else is said: the paper's network, 64-64 without a
linear part, jackknife+ with errors as they are (widths="constant"), 4,900 new rows.
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
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.report import cpu_table, options_table, sizes_table
from benchmarks.sizes import sizes as sizes_of_the_default
from benchmarks.threads import threads
from lazyknife.base import DPSGD, Plain, Public
from lazyknife.compute import Machine, steps
from lazyknife.estimators.baselines import Refits, train_ensemble
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.estimators.lazy import LazyJackknifeRegressor
from lazyknife.intervals import CONSTRUCTIONS, Construction, kappa
from lazyknife.intervals.constructions import plus
from lazyknife.intervals.window import BoundedReadout
from lazyknife.networks import build, make, mlp
from lazyknife.records import LeaveOneOut
from lazyknife.ridge.leave_one_out import leave_rows
from lazyknife.ridge.problem import GRID_POINTS, Problem
from lazyknife.ridge.readout import READOUTS, Read, TangentReadout
from lazyknife.ridge.rounding import GAMMA
from lazyknife.tangent import Sketch, linearise

NEW_ROWS = 4900
WIDTHS = (64, 64)
BUDGET = 256 * 2**20
# Of the options: features, new rows, folds, random starts, and rows without labels.
FEATURES, OPTION_ROWS, FOLDS, STARTS = 16, 2000, 10, 8
Job = Callable[[], Any]
Row = dict[str, Any]


def problem(n: int, features: int, m: int = NEW_ROWS) -> tuple[Tensor, Tensor, Tensor, nn.Module]:
    """Rows, targets, new rows and a network at its random start."""
    rng = np.random.default_rng(0)
    X = rng.normal(scale=math.sqrt(5), size=(n + m, features))
    signal = np.sqrt(np.abs(X @ rng.beta(1, 2.5, size=features)))
    y = signal + rng.normal(scale=math.sqrt(0.5), size=n + m)
    rows, targets = torch.from_numpy(X), torch.from_numpy(y)
    return rows[:n], targets[:n], rows[n:], build(mlp(WIDTHS), rows, seed=0)


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
        ends(LazyStep(**{"ridge": 10.0, **settings}).models(tangent, X, y), new)

    return job


def refits(X: Tensor, y: Tensor, new: Tensor, count: int) -> Job:
    """Batched jackknife+ with the networks that leave the first ``count`` rows out."""
    n = len(y)
    subsets = torch.tensor([[i for i in range(n) if i != j] for j in range(count)])

    def job() -> None:
        models = train_ensemble(
            lambda seed: make(mlp(WIDTHS), X, seed), X, y, subsets, Plain(), center=True, seed=0
        )
        residuals = y[:count] - models.own_outputs(X[:count], torch.arange(count))
        ends(Refits(models, models, torch.arange(count), residuals, residuals), new)

    return job


def product(size: int = 2048) -> Job:
    """A large matrix product, to measure the machine's rate."""
    A = torch.randn(size, size, dtype=torch.float64)
    return lambda: A @ A


def operations(n: int, m: int, features: int) -> float:
    """Operations of the matrix products that the tangent readout cannot do without."""
    units, weights = sizes(features)
    kernels = n * n * units + 2 * m * n * units  # the first one is symmetric
    return kernels + n**3 + 2 * m * n * n + 4 * (n + m) * weights


def sizes(features: int, skip: bool = False) -> tuple[int, int]:
    """Units that go into the network's layers and come out of them, and weights, all summed."""
    layers = [(a + 1, b) for a, b in itertools.pairwise((features, *WIDTHS, 1))]
    layers += [(features, 1)] * skip
    return sum(a + b for a, b in layers), sum(a * b for a, b in layers)


def against_training(repeats: int) -> list[Row]:
    """Both readouts, DP-SGD and batched jackknife+ against one plain training, n = 100."""
    rows = []
    for p in (16, 100):
        X, y, new, network = problem(100, p)
        once: Job = lambda: Plain().fit(network, X, y, seed=0)  # noqa: B023, E731
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


def guard(repeats: int) -> list[Row]:
    """Fits around one network, with and without their bounds and checks of rounding."""
    rows = []
    for n in (100, 400):
        X, y, _, _ = problem(n, FEATURES, 1)
        model = LazyJackknifeRegressor(mlp(WIDTHS, skip=True), random_state=0)
        fit: Job = partial(model.fit, X.numpy(), y.numpy())
        unguarded = partial(without_checks, fit)
        found = ratio(fit, unguarded, repeats)
        rows.append(
            row("one network's fit ÷ without its checks of rounding", f"n = {n:,}", 1.1, found)
        )
    return rows


class Unchecked(Construction):
    """Neither measures nor bounds rounding, but for what the solution of the equations counts."""

    def fit(self, problem: Problem, readout: str) -> Read:
        """Solve the models and read them out."""
        solved, system = leave_rows(problem), problem.system
        scales = problem.widths.scales(system, solved, GAMMA)
        return READOUTS[readout].of(problem.basis, problem.X, problem.y, solved, scales)


def without_checks(job: Job) -> None:
    """Run a job that does not check rounding."""
    with patch.dict(CONSTRUCTIONS, plus=Unchecked(**vars(CONSTRUCTIONS["plus"]))):
        job()


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


def windows(repeats: int, n: int = 200_000, dimension: int = 512) -> list[Row]:
    """Ends for one new row from all models of a sketch, and from the few that can be them."""
    X, y, new, network = problem(n, 16, 2000)
    step = LazyStep(ridge=10.0, features=Sketch(dimension))
    few = step.models(linearise(network, X), X, y)
    assert isinstance(few, BoundedReadout)
    every = TangentReadout(*(getattr(few, each.name) for each in fields(TangentReadout)))
    some = new[: max(1, len(new) // 40)]
    found = ratio(lambda: ends(every, some), lambda: ends(few, new), repeats)
    scaled = {name: len(new) / len(some) * value for name, value in found.items()}
    what = f"a new row's interval from all models ÷ from a window of them, Sketch({dimension})"
    return [row(what, f"n = {n:,}, p = 16", -20, scaled)]


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
        command = [sys.executable, "-m", "benchmarks.cpu", "--peak", ridge]
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
        for kind, options, limit in (
            ("plain", ["--widths", "constant"], 3.0),
            ("private", ["--base", "dpsgd", "--widths", "constant"], 3.0),
            ("private", ["--base", "dpsgd"], None),
        ):
            above, below = [*whole, *options], ["-m", "benchmarks.cpu", "--train", kind, *files]
            name = " ".join(["lazyknife predict", *options])
            what = f"`{name}` ÷ reading the files and one {kind} training"
            setting = "n = 2,000, 50,000 new rows, p = 280, whole processes"
            jobs = (lambda a=above: process(a)), (lambda b=below: process(b))
            found.append(row(what, setting, limit, ratio(*jobs, repeats)))
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


def row(what: str, setting: str, limit: float | None, found: dict[str, float]) -> Row:
    """One line of the table; a negative limit is one to reach from above."""
    reached = limit is None or (found["ratio"] >= -limit if limit < 0 else found["ratio"] <= limit)
    return {
        "what": what,
        "setting": setting,
        **rounded(found),
        "aim": None if limit is None else f"≥ {-limit:g}" if limit < 0 else f"≤ {limit:g}",
        "reached": reached,
    }


@dataclass(frozen=True)
class Counts:
    """How many λ a fit went through.

    Attributes
    ----------
    grid
        That were tried.
    chosen
        That some leave-one-out model has.

    """

    grid: int
    chosen: int


@dataclass(frozen=True)
class Option:
    """A setting, and what its formula says that it costs; by default as much as jackknife+.

    Attributes
    ----------
    settings
        Of the estimator.
    fit
        n×n×n operations of a fit, a product counting 2; None where they are counted as they run.
    predict
        The same for m×n×n operations of predictions, given n too.
    kernels
        How many kernels are summed.
    counts
        Whether y is made a count.
    largest
        The largest n that it is measured at.

    """

    settings: dict[str, Any] = field(default_factory=dict)
    fit: Callable[[Counts], float] | None = lambda k: k.grid
    predict: Callable[[Counts, int], float] = lambda k, n: 2
    kernels: int = 1
    counts: bool = False
    largest: int = 1000

    def fit_operations(self, n: int, k: Counts) -> float:
        """Operations of a fit, those of the kernel among them."""
        assert self.fit is not None
        units, weights = sizes(FEATURES, skip=True)
        passes = 4 * n * self.kernels
        return n * n * units * self.kernels + n**3 * self.fit(k) + passes * weights

    def predict_operations(self, n: int, k: Counts) -> float:
        """Operations for each new row."""
        units, weights = sizes(FEATURES, skip=True)
        return (2 * n * units + 4 * weights) * self.kernels + n**2 * self.predict(k, n)


# A triangular solve with n columns takes 1, a Cholesky factor or the diagonal of its inverse 1/3,
# an inverse 1, a product 2.
OPTIONS = {
    'widths="leverage"': Option(
        {"widths": "leverage"}, lambda k: k.grid + 2 / 3 * k.chosen, lambda k, n: 2 + 2 * k.chosen
    ),
    'construction="minmax"': Option({"construction": "minmax"}),
    'construction="full"': Option(
        {"construction": "full", "widths": None}, lambda k: 2 / 3 * k.grid, lambda k, n: 2 * k.grid
    ),
    f'construction="cv+", folds={FOLDS}': Option(
        {"construction": "cv+", "folds": FOLDS},
        lambda k: (1 + 2 / FOLDS) * k.grid,
        lambda k, n: 2 * FOLDS / n,
    ),
    f"n_starts={STARTS}": Option({"n_starts": STARTS}, kernels=STARTS),
    'loss="huber"': Option({"loss": "huber"}, fit=None, largest=400),
    'loss="poisson"': Option({"loss": "poisson"}, fit=None, counts=True, largest=400),
}
PLAIN = Option()


def options(repeats: int) -> list[Row]:
    """Each option against jackknife+ with the same n, ridge and network, and its formula."""
    cases = itertools.product((400, 1000), (10.0, "auto"))
    return [row for n, ridge in cases for row in options_at(n, ridge, repeats * 1000 // n)]


def options_at(n: int, ridge: float | str, repeats: int) -> list[Row]:
    """All options at one n and one ridge, timed one after the other in each round."""
    X, y, new, _ = problem(n, FEATURES, OPTION_ROWS)
    every = {"": PLAIN, **{name: o for name, o in OPTIONS.items() if n <= o.largest}}
    models, fits, predicts, counts = {}, {}, {}, {}
    for name, option in every.items():
        model = models[name] = LazyJackknifeRegressor(**settings_of(option, ridge))
        target = y.clamp(min=0).round() if option.counts else y
        fits[name] = lambda m=model, y=target: m.fit(X, y)
        predicts[name] = lambda m=model: m.predict_interval(new)
        counts[name] = counted_ridges(fits[name], model)
        predicts[name]()
    fitted, predicted = rounds(fits, repeats), rounds(predicts, repeats)
    found = []
    for name, option in list(every.items())[1:]:
        if option.fit is None:
            fit_formula = products(fits[name]) / products(fits[""])
        else:
            plain = PLAIN.fit_operations(n, counts[""])
            fit_formula = option.fit_operations(n, counts[name]) / plain
        predict_formula = option.predict_operations(n, counts[name])
        predict_formula /= PLAIN.predict_operations(n, counts[""])
        found.append(
            {
                "option": name,
                "n": n,
                "ridge": ridge,
                "fit": {**fitted[name], "formula": fit_formula},
                "predict": {**predicted[name], "formula": predict_formula},
            }
        )
    return [rounded(row) for row in found]


def settings_of(option: Option, ridge: float | str) -> dict[str, Any]:
    """Settings of the estimator."""
    return {
        "network": mlp(WIDTHS, skip=True),
        "base": Public(),
        "ridge": ridge,
        "widths": "constant",
        "device": "cpu",
        "random_state": 0,
        **option.settings,
    }


def counted_ridges(fit: Job, model: LazyJackknifeRegressor) -> Counts:
    """Fit, and count the λ that were tried and chosen."""
    fit()
    grid = GRID_POINTS if model.ridge == "auto" else 1
    return Counts(grid, chosen=len(np.unique(model.ridge_[:-1])))


def products(job: Job) -> float:
    """Operations of the matrix products, solutions and inverses that a job runs."""
    aten = torch.ops.aten
    others = {
        aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1],
        aten.linalg_solve_triangular: lambda a, b, **_: a[0] ** 2 * b[1],
        aten._linalg_solve_ex: lambda a, b, **_: 2 / 3 * a[0] ** 3 + 2 * a[0] ** 2 * b[1],
        aten.linalg_inv_ex: lambda a, **_: 2 * a[0] ** 3,
    }
    with FlopCounterMode(display=False, custom_mapping=others) as counter:
        job()
    return float(counter.get_total_flops())


def rounds(jobs: dict[str, Job], repeats: int) -> dict[str, dict[str, float]]:
    """Ratio of each job to the first one of the same round."""
    times = [{name: seconds(job) for name, job in jobs.items()} for _ in range(repeats)]
    first = next(iter(jobs))
    return {name: spread([each[name] / each[first] for each in times]) for name in jobs}


def rounded(found: Any) -> Any:
    """Numbers to three digits, in whatever holds them."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    return float(f"{found:.3g}") if isinstance(found, float) else found


PARTS = {
    "training": (against_training, 9),
    "thousand": (at_a_thousand, 3),
    "ridge": (chosen_ridge, 5),
    "guard": (guard, 9),
    "products": (against_products, 5),
    "growth": (growth, 3),
    "windows": (windows, 3),
    "convolutions": (convolutions, 7),
    "memory": (peak_memory, 1),
    "command": (command_line, 3),
    "options": (options, 3),
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
    print(cpu_table(rows), options_table(rows), sizes_table(rows), sep="\n\n")


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
