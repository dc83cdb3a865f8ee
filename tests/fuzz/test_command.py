"""Drawn files and options of the command: results, or one line that says what is wrong."""

import tempfile
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from fuzzing import Defect, search
from lazyknife.cli.app import app

# What a column may contain, by a generator of random numbers; None is an empty field.
CELLS = {
    "number": lambda rng: f"{rng.normal():.3f}",
    "integer": lambda rng: str(rng.integers(-5, 2000)),
    "comma": lambda rng: f"{rng.normal():.2f}".replace(".", ","),
    "thousands": lambda rng: f"{rng.integers(1, 10**7):,}",
    "dollars": lambda rng: f"${rng.normal() * 1000:,.2f}",
    "euros": lambda rng: f"{rng.integers(0, 99)} €",
    "percent": lambda rng: f"{rng.integers(0, 100)} %",
    "gaps": lambda rng: rng.choice(["1.5", "?", "-", "NA", "", "2"]),
    "empty": lambda rng: "",
    "constant": lambda rng: "7",
    "boolean": lambda rng: rng.choice(["True", "False", ""]),
    "text": lambda rng: rng.choice(["u", "v", "w w", "é", "=1+1", "?"]),
    "names": lambda rng: f"r{rng.integers(10**9)}",
    "code": lambda rng: rng.choice(["01", "1", "b7"]),
    "iso": lambda rng: f"20{rng.integers(10, 30)}-0{rng.integers(1, 10)}-11T10:00Z",
    "slashes": lambda rng: f"{rng.integers(1, 13)}/{rng.integers(1, 29)}/2020",
    "dots": lambda rng: f"{rng.integers(13, 29)}.0{rng.integers(1, 10)}.2020",
    "odd": lambda rng: rng.choice(["1", "2", "3", "4", "x"]),
    "huge": lambda rng: rng.choice(["1e308", "-1e308", "1e-320", "inf", "nan"]),
    "quotes": lambda rng: rng.choice(['"', "a,b", "a\nb", ";", "'", "\\"]),
}
PLAIN = ["number", "integer", "dollars", "percent", "boolean", "code", "iso", "dots"]
OPTIONS = [
    *("--sep ;", "--sep ,", "--sep tab", "--sep xx", "--decimal ,", "--decimal .", "--decimal x"),
    *("--na ?", "--na 7", "--encoding utf-16", "--encoding cp1252", "--encoding x", "--sheet x"),
    *("--dates day-first", "--dates %d/%m/%y", "--dates x", "--id a", "--id nowhere", "--drop a"),
    *("--drop b", "--categorical a", "--categorical y", "--target a", "--alpha .5", "--alpha 2"),
    *("--alpha nan", "--unit 0", "--unit 1e300", "--unit 1e-300", "--nu -1", "--nu inf"),
    *("--ridge 0", "--ridge 1e-300", "--ridge x", "--ridge 1e300", "--construction full"),
    *("--construction cv+", "--construction minmax", "--construction x", "--folds 3"),
    *("--widths leverage", "--widths auto", "--loss huber", "--loss poisson", "--loss logistic"),
    *("--hidden 4", "--hidden 0", "--n-starts 2", "--scaling none", "--scaling symlog"),
    *("--scaling x", "--no-fit-intercept", "--base plain --epochs 1", "--base split --epochs 1"),
    *("--base dpsgd --epochs 1 --epsilon 1", "--base x", "--seed 3", "--seed -1"),
    *("--html page.html", "--figure f.svg", "--output out.parquet", "--output out.xlsx"),
    *("--output -", "--output nowhere/out.csv", "--output out.txt", "--output train.csv"),
    *("--feature-weights none", "--target-transform log", "--lower-bound 0", "--upper-bound -5"),
    *("--readout network", "--row a=1", "--verbose", "--clusters a", "--clusters y", "--classes"),
    *("--target y,b", "--groups a", "--side upper", "--quantiles .1,.9", "--weights estimate"),
]
ENCODINGS = ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"]


class Case(NamedTuple):
    seed: int
    kinds: tuple[str, ...]  # of the columns a, b, ...
    separator: str
    encoding: str
    rows: int
    damage: str  # a key of DAMAGES
    options: tuple[str, ...]


def flip(rng: np.random.Generator, data: bytes) -> bytes:
    content = bytearray(data)
    for place in rng.integers(max(len(content), 1), size=rng.integers(1, 6)):
        if content:
            content[place] = rng.integers(256)
    return bytes(content)


DAMAGES = {
    "none": lambda rng, data: data,
    "flip": flip,
    "cut": lambda rng, data: data[: rng.integers(len(data) + 1)],
    "insert": lambda rng, data: data.replace(b"\n", bytes(rng.choice(list(b'",;\0\xff'), 1)), 1),
    "twice": lambda rng, data: data + data,
    "blank": lambda rng, data: data.replace(b"\n", b"\n\n \n"),
    "quote": lambda rng, data: data.replace(b"1", b'"1', 1),
}
cases = st.builds(
    Case,
    seed=st.integers(0, 2**31),
    kinds=st.lists(st.sampled_from([*CELLS, *PLAIN * 4]), min_size=1, max_size=3).map(tuple),
    separator=st.sampled_from([",", ",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8"] * 4 + ENCODINGS),
    rows=st.sampled_from([12] * 4 + [0, 1, 2, 3, 25]),
    damage=st.sampled_from(["none"] * 12 + list(DAMAGES)),
    options=st.one_of(st.just(()), st.lists(st.sampled_from(OPTIONS), max_size=3).map(tuple)),
)


def table(case: Case, rng: np.random.Generator, rows: int, target: bool) -> bytes:
    """Return a file of drawn cells."""
    frame = pd.DataFrame(
        {"abc"[k]: [CELLS[kind](rng) for _ in range(rows)] for k, kind in enumerate(case.kinds)}
    )
    if target:
        frame["y"] = [f"{rng.normal():.4f}" for _ in range(rows)]
    text = frame.to_csv(index=False, sep=case.separator)
    return DAMAGES[case.damage](rng, text.encode(case.encoding, "replace"))


def run(case: Case) -> bool:
    rng = np.random.default_rng(case.seed)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("train.csv").write_bytes(table(case, rng, case.rows, target=True))
        Path("test.csv").write_bytes(table(case, rng, 3, target=bool(case.seed % 2)))
        options = [part for option in case.options for part in option.split()]
        arguments = ["predict", "train.csv", "test.csv", "--target", "y", "-o", "out.csv", *options]
        result = CliRunner().invoke(app, arguments)
        left = {path.name for path in Path().iterdir()}
    return check(result, left)


def check(result, left: set[str]) -> bool:
    """Whether there are results; a refusal must be one line, and leave no file behind."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    others = [line.partition(": ")[0] for line in result.stderr.splitlines()]
    if set(others) - {"error", "note", "warning"}:
        raise Defect(f"stderr has other lines: {result.stderr[-300:]}")
    if any(name.startswith(".") for name in left):
        raise Defect(f"temporary files are left: {left}")
    if result.exit_code == 0 and not errors:
        return True
    if (result.exit_code, len(errors)) != (2, 1):
        raise Defect(f"exit code {result.exit_code}: {result.stderr[-300:]}")
    return False


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_every_command_gives_intervals_or_one_line():
    tally = search(cases, run, quick=40)
    assert tally["fine"] > 0
    assert tally["refused"] > 0
