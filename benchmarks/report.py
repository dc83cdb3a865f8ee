"""Write the measured files into the docs: three tables and a figure.

python -m benchmarks.report
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from research.pages import DOCS, fill, markdown

HERE = Path(__file__).parent
PAGE = DOCS / "speed.md"
FIGURE = DOCS / "speed" / "speed.png"
Row = dict[str, Any]


def cpu_table(rows: list[Row]) -> str:
    """Ratios on a processor, as markdown."""
    lines = [(r["what"], r["setting"], f"{r['ratio']:g}") for r in rows if "what" in r]
    return markdown(("what", "setting", "ratio"), lines)


def sizes_table(rows: list[Row]) -> str:
    """The default at every size against split conformal around gradient boosting, as markdown."""
    columns = (
        *("training rows", "new rows", "default (s)", "split boosting (s)", "ratio", "exponent"),
        *("peak memory", "of split boosting", "interval score", "of split boosting"),
    )
    lines = []
    for r in (r for r in rows if "size" in r):
        sides = r["default"], r["boosting"]
        lines.append(
            (
                *(f"{r['size']:,}", f"{r['new']:,}", *(f"{side['seconds']:.2g}" for side in sides)),
                *(f"{r['ratio']:.2g}", "" if r["exponent"] is None else f"{r['exponent']:.2f}"),
                *(f"{side['peak_bytes'] / 1e9:.2f} GB" for side in sides),
                *(f"{side['score']:.2f}" for side in sides),
            )
        )
    return markdown(columns, lines)


def gpu_table(cases: list[Row]) -> str:
    """Seconds and bytes on a GPU, as markdown."""
    columns = (
        *("training rows", "new rows", "features"),
        *("solve (s)", "predict (s)", "all (s)", "peak memory", "rounding"),
    )
    lines = [
        (
            f"{case['n']:,}",
            f"{case['m']:,}",
            f"Sketch({case['dimension']})" if case["dimension"] else "exact",
            *(f"{case[name]:.2f}" for name in ("solve", "predict", "seconds")),
            f"{case['peak_bytes'] / 1e9:.1f} GB",
            "" if case["rounding"] is None else f"{case['rounding']:.0e}",
        )
        for case in cases
    ]
    return markdown(columns, lines)


def defaults_table(cases: list[Row]) -> str:
    """Seconds, bytes and scores of the default on a GPU, as markdown."""
    columns = (
        *("training rows × 50 features", "fit (s)", "100,000 intervals (s)", "peak memory"),
        *("interval score", "coverage", "certified"),
    )
    lines = [
        (
            f"{case['n']:,}",
            *(f"{case[name]:.2f}" for name in ("fit", "predict")),
            f"{case['peak_bytes'] / 1e9:.1f} GB",
            *(f"{case[name]:.3f}" for name in ("score", "coverage", "certified")),
        )
        for case in cases
    ]
    return markdown(columns, lines)


def tables(page: str) -> str:
    """Return the page with the tables of the measured files."""
    rows, gpu = measured("results")["rows"], measured("gpu")
    made = {
        "sizes": sizes_table(rows),
        "gpu": gpu_table(gpu["cases"]),
        "defaults": defaults_table(gpu["defaults"]),
    }
    return fill(page, made)


def measured(name: str) -> Row:
    """Return what a measured file says."""
    found: Row = json.loads((HERE / f"{name}.json").read_text())
    return found


def draw(growth: Row, gpu: Row) -> None:
    """Draw time against the number of training rows, on a processor and on a GPU."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_growth(left, growth)
    draw_gpu(right, gpu)
    for ax in (left, right):
        ax.set_xlabel("training rows n")
        ax.grid(alpha=0.3, which="both", lw=0.4)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)


def draw_growth(ax: Axes, growth: Row) -> None:
    """Times on a processor over that of the fewest rows, with two powers of n."""
    n, relative = growth["n"], growth["relative"]
    ax.loglog(n, relative, "o-", color="#08519c", label="measured")
    for power, style in ((2, ":"), (3, "--")):
        line = [(k / n[0]) ** power for k in n]
        ax.loglog(n, line, style, color="#525252", lw=1, label=f"$n^{power}$")
    ax.set_title(f"2 cores: exponent {growth['ratio']:.2f}")
    ax.set_ylabel("fit and 5,000 intervals ÷ n = 500")
    ax.legend(frameon=False)
    ax.set_xticks(n, [f"{k:,}" for k in n])
    ax.minorticks_off()


# Label, whether sketched, marker and colour.
LINES = (
    ("exact features", False, "o-", "#08519c"),
    ("Sketch(4096)", True, "^-", "#009e73"),
)


def draw_gpu(ax: Axes, gpu: Row) -> None:
    """Seconds on a GPU, a line for each kind of features."""
    for name, sketched, marker, colour in LINES:
        points = [
            (case["n"], case["seconds"])
            for case in gpu["cases"]
            if bool(case["dimension"]) == sketched
        ]
        if points:
            ax.loglog(*zip(*sorted(points), strict=True), marker, color=colour, label=name)
    ax.set_title(gpu["device"])
    ax.set_ylabel("fit and 100,000 intervals (s)\nsketch: 10,000 intervals")
    ax.legend(frameon=False, fontsize="small")


def main() -> None:
    """Rewrite the page's tables, draw the figure."""
    PAGE.write_text(tables(PAGE.read_text()))
    growth = next(row for row in measured("results")["rows"] if "relative" in row)
    draw(growth, measured("gpu"))


if __name__ == "__main__":
    main()
