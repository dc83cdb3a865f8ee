"""Plan a fit on a cluster from measured rates, with a simulation of what its machines send.

python -m benchmarks.plan            # the page, from benchmarks/plan.json
python -m benchmarks.plan --measure  # measures the rates first, on one core
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from research.pages import DOCS, fill_file, markdown

from lazyknife import LazyJackknifeRegressor
from lazyknife.choosing.shape import NoiseModel
from lazyknife.cluster.tasks import Block, left_of, sums_of
from lazyknife.compute import Machine
from lazyknife.data.own_scaling import unscaled
from lazyknife.estimators.fit_input import prepare
from lazyknife.intervals.streamed import Passes
from lazyknife.networks import wide
from lazyknife.tangent import Landmarks, WideTangent

FILE, PAGE = Path(__file__).parent / "plan.json", DOCS / "hundred-million.md"
TOGETHER = 8  # sums that one task adds
POINTS = 2000  # rows that σ is learnt from
REPEATS = 3


@dataclass(frozen=True)
class Rates:
    """Rows a second on one core, and seconds to add two sums."""

    d: int
    first: float
    second: float
    adding: float


@dataclass(frozen=True)
class Machines:
    """A cluster; ``overhead`` is Dask's own time for a task."""

    machines: int = 16
    cores: int = 16
    memory: float = 64e9
    bandwidth: float = 1.25e9  # bytes a second into a machine: 10 Gbit/s
    latency: float = 1e-3
    overhead: float = 1e-3
    price: float = 0.80  # of a machine for an hour


def measure(d: int, p: int, rows: int) -> Rates:
    """Rates of both passes, σ included, at rows of standard normal features."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(max(rows, POINTS), p, dtype=torch.float64, generator=generator)
    y = X[:, 0].sin()
    weights = torch.full((p,), p**-0.5, dtype=torch.float64)
    tangent = WideTangent(wide("laplace"), weights, unscaled(1, p)[0]).on(Machine(budget=2**30))
    points, zero = tangent.features(X[:POINTS]), torch.zeros((), dtype=torch.float64)
    amount = NoiseModel(tangent, points, torch.zeros(POINTS, dtype=torch.float64), zero)
    passes = Passes(Landmarks.of(tangent, X[:d]), 1.0, True, 0.0, amount)
    block = Block(X[:rows], y[:rows], torch.arange(rows))
    sums = sums_of(block, passes)
    solved = passes.solve(sums)
    first = seconds(lambda: sums_of(block, passes))
    second = seconds(lambda: left_of(block, passes, solved))
    return Rates(d, rows / first, rows / second, seconds(lambda: sums + sums))


def measure_choices(rows: int = 4000, p: int = 100) -> float:
    """Seconds to choose on the part of a fit of 100 million rows."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, p, dtype=torch.float64, generator=generator)
    y = (2 * X[:, 0]).sin() * X[:, 1] + torch.randn(rows, dtype=torch.float64, generator=generator)
    model = LazyJackknifeRegressor(random_state=0)
    step = model._cluster_step(prepare(model, X.numpy(), y.numpy(), None, None), 10**8)
    start = time.perf_counter()
    step.chosen(X, y, 10**8)
    return time.perf_counter() - start


def seconds(call: Callable[[], Any]) -> float:
    """The median time of a call."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def pass_seconds(parts: int, each: float, workers: int, overhead: float) -> list[tuple[float, int]]:
    """When each partition's task ends, and on which worker; tasks are dealt out in turn."""
    return [((k // workers + 1) * (each + overhead), k % workers) for k in range(parts)]


def tree_seconds(
    ready: Sequence[tuple[float, int]], size: float, adding: float, cluster: Machines
) -> tuple[float, float]:
    """Simulate the tree of sums: when it is done, and how many bytes went between machines.

    A task runs where its first summand is. What comes from another machine waits until the link
    into that machine is free; adding starts when everything is there and the worker is free.
    """
    level, moved = list(ready), 0.0
    free, link = dict[int, float](), dict[int, float]()
    for end, worker in level:
        free[worker] = max(free.get(worker, 0.0), end)
    while len(level) > 1:
        groups = [level[k : k + TOGETHER] for k in range(0, len(level), TOGETHER)]
        level = []
        for group in groups:
            worker = group[0][1]
            machine, there = worker // cluster.cores, group[0][0]
            for end, other in group[1:]:
                if other == worker:
                    there = max(there, end)
                    continue
                wire = size / cluster.bandwidth + cluster.latency
                start = max(end, link.get(machine, 0.0))
                link[machine] = start + wire
                moved += size
                there = max(there, link[machine])
            start = max(there, free.get(worker, 0.0))
            free[worker] = start + (len(group) - 1) * adding + cluster.overhead
            level.append((free[worker], worker))
    return level[0][0], moved


def plan(
    n: int, p: int, rates: Rates, cluster: Machines, choices: float, rows: int = 100_000
) -> dict[str, Any]:
    """Time, memory, traffic and cost of a fit of n rows by p features."""
    parts, workers = math.ceil(n / rows), cluster.machines * cluster.cores
    q = rates.d + 1
    size = 8.0 * q * q
    ready = pass_seconds(parts, rows / rates.first, workers, cluster.overhead)
    alone = max(end for end, _ in ready)
    first, summed = tree_seconds(ready, size, rates.adding, cluster)
    sent = (2 * size + 8 * p * (rates.d + POINTS)) * cluster.machines  # features, σ, solution
    share = sent / cluster.machines / cluster.bandwidth * math.ceil(math.log2(cluster.machines + 1))
    second = max(end for end, _ in pass_seconds(parts, rows / rates.second, workers, 1e-3))
    places = min(max(math.isqrt(rows), 64), 4096)
    chosen = 4 * (8.0 * places * parts + 16.0 * n / places)  # four order statistics
    level = 8.0 * q * 4 * q  # moves of about 4·d models
    selection = 6 * parts * cluster.overhead + (chosen + level) / cluster.bandwidth
    total = choices + first + share + second + selection
    kept = 8.0 * n * (p + 1 + 4)  # rows, targets and four numbers of each model
    work = cluster.cores * 2.0**30
    return {
        "d": rates.d,
        "cores": workers,
        "first": first,
        "tree": first - alone,
        "second": second,
        "selection": selection,
        "hours": total / 3600,
        "memory": (2 * kept / cluster.machines + work) / 1e9,
        "traffic": (summed + sent + chosen + level) / 1e9,
        "cost": total / 3600 * cluster.machines * cluster.price,
    }


def measure_cluster(n: int = 40_000, p: int = 20, d: int = 256) -> dict[str, float]:
    """The first pass and its tree on two processes here, beside what the simulation says."""
    from distributed import Client, LocalCluster

    from lazyknife.cluster import tasks as on
    from lazyknife.cluster.partitions import kept, reduced, sent, tasks

    parts, generator = 40, torch.Generator().manual_seed(0)
    X = torch.randn(n, p, dtype=torch.float64, generator=generator)
    weights = torch.full((p,), p**-0.5, dtype=torch.float64)
    tangent = WideTangent(wide("laplace"), weights, unscaled(1, p)[0]).on(Machine(budget=2**30))
    passes = Passes(Landmarks.of(tangent, X[:d]), 1.0, True, 0.0, None)
    pieces = [Block(x, x[:, 0].sin(), torch.arange(len(x))) for x in X.split(n // parts)]
    each = seconds(lambda: on.sums_of(pieces[0], passes))
    sums = on.sums_of(pieces[0], passes)
    adding, size = seconds(lambda: sums + sums), 8.0 * (d + 1) ** 2
    own = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**own) as local, Client(local):
        blocks, chosen = kept(tasks(_same, [sent(piece) for piece in pieces])), sent(passes)
        reduced(on.added, tasks(on.sums_of, blocks, same=[chosen]))  # starts the workers
        measured = seconds(lambda: reduced(on.added, tasks(on.sums_of, blocks, same=[chosen])))
    cluster = Machines(machines=2, cores=1, overhead=5e-3)
    ready = pass_seconds(parts, each, 2, cluster.overhead)
    simulated, moved = tree_seconds(ready, size, adding, cluster)
    terms = {"rows": n, "features": p, "d": d, "partitions": parts, "task_seconds": each}
    return terms | {"measured": measured, "simulated": simulated, "bytes": moved}


def _same(block: Block) -> Block:
    return block


def write_page(found: dict[str, Any]) -> None:
    """Fill the tables of the page."""
    rates = [Rates(**rate) for rate in found["rates"]]
    lines = [
        (f"{r.d:,}", f"{r.first:,.0f}", f"{r.second:,.0f}", f"{1e3 * r.adding:.1f} ms")
        for r in rates
    ]
    heads = ("landmarks d", "first pass, rows/s", "second pass, rows/s", "adding two sums")
    tables = {"rates": markdown(heads, lines)}
    plans = [
        (cluster, plan(10**8, 100, rate, cluster, found["choices"]))
        for rate in rates
        for cluster in (Machines(4), Machines(16), Machines(64))
    ]
    heads = (
        *("d", "machines", "first pass", "of which tree", "second pass", "order statistics"),
        *("in all", "memory each", "sent", "cost"),
    )
    tables["plan"] = markdown(heads, [_line(cluster, each) for cluster, each in plans])
    c = found["cluster"]
    off = c["simulated"] / c["measured"]
    tables["simulation"] = (
        f"{c['rows']:,} rows by {c['features']} features, d = {c['d']}, {c['partitions']} "
        f"partitions on two processes of one machine: {c['measured']:.2f} s measured, "
        f"{c['simulated']:.2f} s simulated (a ratio of {off:.2f}), {c['bytes'] / 1e6:.0f} MB "
        "between the processes by the simulation.\n"
    )
    tables["choices"] = (
        f"Choosing on 4,000 rows of 100 features took {found['choices']:.0f} s on one core; the "
        "scheduler's machine does it once, and the plan counts it.\n"
    )
    fill_file(PAGE, tables)


def _line(cluster: Machines, found: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{found['d']:,}",
        f"{cluster.machines} × {cluster.cores} cores",
        f"{found['first'] / 60:.1f} min",
        f"{found['tree']:.2f} s",
        f"{found['second'] / 60:.1f} min",
        f"{found['selection']:.0f} s",
        f"{60 * found['hours']:.0f} min",
        f"{found['memory']:.0f} GB",
        f"{found['traffic']:.1f} GB",
        f"{found['cost']:.2f}",
    )


def main(arguments: Sequence[str]) -> None:
    """Measure if asked to, and write the page."""
    if "--measure" in arguments:
        torch.set_num_threads(1)
        rates = [asdict(measure(d, 100, 4000)) for d in (512, 1000)]
        found = {"rates": rates, "cluster": measure_cluster(), "choices": measure_choices()}
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(json.loads(FILE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])
