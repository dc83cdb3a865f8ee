"""Write the measured files into the docs: three tables and a figure.

python benchmarks/report.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "speed.md"
FIGURE = HERE.parent / "docs" / "speed" / "speed.png"
Row = dict[str, Any]


def cpu_table(rows: list[Row]) -> str:
    """Ratios on a processor, as markdown."""
    lines = ["| what | setting | ratio | quartiles | aim |", "| --- | --- | --- | --- | --- |"]
    for r in (r for r in rows if "what" in r):
        spread = f"{r['low']:g} to {r['high']:g}" if "low" in r else ""
        aim = "reported" if r["aim"] is None else r["aim"] + ("" if r["reached"] else ", missed")
        lines.append(f"| {r['what']} | {r['setting']} | {r['ratio']:g} | {spread} | {aim} |")
    return "\n".join(lines)


def options_table(rows: list[Row]) -> str:
    """Options against the plain jackknife+, as markdown: measured, and by formula in brackets."""
    sizes = sorted({r["n"] for r in rows if "option" in r})
    steps = [(step, n) for step in ("fit", "predict") for n in sizes]
    names = ["option", "ridge", *(f"{step}, n = {n:,}" for step, n in steps)]
    lines = [" | ".join(names), " | ".join(["---"] * len(names))]
    found: dict[tuple[str, str], dict[tuple[str, int], str]] = {}
    for r in (r for r in rows if "option" in r):
        ridge = "auto" if r["ridge"] == "auto" else "fixed"
        cells = found.setdefault((r["option"], ridge), {})
        for step in ("fit", "predict"):
            cells[step, r["n"]] = f"{r[step]['ratio']:.2g} ({r[step]['formula']:.2g})"
    for (option, ridge), cells in sorted(found.items(), key=lambda item: item[0][1], reverse=True):
        row = [f"`{option}`", ridge, *(cells.get(step, "") for step in steps)]
        lines.append(" | ".join(row))
    return "\n".join(f"| {line} |" for line in lines)


def gpu_table(cases: list[Row]) -> str:
    """Seconds and bytes on a GPU, as markdown."""
    lines = [
        "| training rows | new rows | precision | features | solve (s) | predict (s) | all (s) | "
        "peak memory | rounding |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in cases:
        features = f"Sketch({case['dimension']})" if case["dimension"] else "exact"
        rounding = "" if case["rounding"] is None else f"{case['rounding']:.0e}"
        lines.append(
            f"| {case['n']:,} | {case['m']:,} | {case['precision']} | {features} | "
            f"{case['solve']:.2f} | {case['predict']:.2f} | {case['seconds']:.2f} | "
            f"{case['peak_bytes'] / 1e9:.1f} GB | {rounding} |"
        )
    return "\n".join(lines)


def filled(page: str, name: str, content: str) -> str:
    """Put content between the page's markers of that name."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.split(start)
    return before + start + content + "\n" + end + rest.split(end)[1]


def tables(page: str) -> str:
    """Return the page with the tables of the measured files."""
    measured = {
        name: json.loads((HERE / f"{name}.json").read_text()) for name in ("results", "gpu")
    }
    for name, table in (("cpu table", cpu_table), ("options table", options_table)):
        page = filled(page, name, table(measured["results"]["rows"]))
    return filled(page, "gpu table", gpu_table(measured["gpu"]["cases"]))


def draw(growth: Row, gpu: dict[str, Any]) -> None:
    """Draw time against the number of training rows, on a processor and on a GPU."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    n, relative = growth["n"], growth["relative"]
    left.loglog(n, relative, "o-", color="#08519c", label="measured")
    for power, style in ((2, ":"), (3, "--")):
        line = [(k / n[0]) ** power for k in n]
        left.loglog(n, line, style, color="#525252", lw=1, label=f"$n^{power}$")
    left.set(
        title=f"2 cores: exponent {growth['ratio']:.2f}",
        xlabel="training rows n",
        ylabel="fit and 5,000 intervals ÷ n = 500",
    )
    left.legend(frameon=False)
    left.set_xticks(n, [f"{k:,}" for k in n])
    left.minorticks_off()
    for name, precision, sketched, marker, colour in (
        ("float64", "float64", False, "o-", "#08519c"),
        ("float32", "float32", False, "s-", "#d55e00"),
        ("tf32", "tf32", False, "D-", "#cc79a7"),
        ("Sketch(4096), float64", "float64", True, "^-", "#009e73"),
        ("Sketch(4096), float32", "float32", True, "v-", "#56b4e9"),
    ):
        points = [
            (case["n"], case["seconds"])
            for case in gpu["cases"]
            if case["precision"] == precision and bool(case["dimension"]) == sketched
        ]
        if points:
            right.loglog(*zip(*sorted(points), strict=True), marker, color=colour, label=name)
    right.set(
        title=gpu["device"],
        xlabel="training rows n",
        ylabel="fit and 100,000 intervals (s)\nsketch: 10,000 intervals",
    )
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.grid(alpha=0.3, which="both", lw=0.4)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Rewrite the page's tables, draw the figure."""
    PAGE.write_text(tables(PAGE.read_text()))
    results = json.loads((HERE / "results.json").read_text())
    growth = next(row for row in results["rows"] if "relative" in row)
    draw(growth, json.loads((HERE / "gpu.json").read_text()))


if __name__ == "__main__":
    main()
