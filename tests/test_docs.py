"""The README and the pages: their snippets run and their numbers come from committed results."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import report

from alike import check_same_page
from rows import linear

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SPEED = (ROOT / "docs/speed.md").read_text()
SNIPPETS, SPEED_SNIPPETS = (
    re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) for page in (README, SPEED)
)


def run(snippet: str, n: int = 100) -> str:
    X, y = linear(n)
    names = {"X": X, "y": y, "X_new": linear(20, seed=1)[0], "np": np}
    exec("from lazyknife import LazyJackknifeRegressor", names)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(snippet, names)
    return printed.getvalue()


# To plan ε is to account for many mechanisms.
PLANNED = [[pytest.mark.slow] if "plan(" in snippet else [] for snippet in SNIPPETS]


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=marks) for number, marks in enumerate(PLANNED)]
)
def test_the_readmes_snippets_run(number):
    run(SNIPPETS[number])


def test_the_snippets_on_speed_run_one_after_the_other():
    assert len(SPEED_SNIPPETS) == 2
    assert float(run("".join(SPEED_SNIPPETS))) > 0


@pytest.mark.parametrize(("page", "made"), [("gallery", "intervals.pdf"), ("studies", "mine.csv")])
def test_the_snippet_of_a_page_runs(page, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a snippet writes where it is run
    text = (ROOT / f"docs/{page}.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    run(snippet)
    assert (tmp_path / made).stat().st_size > 1000


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_four_short_examples():
    names = [path.stem for path in EXAMPLES]
    assert names == ["own_csv", "plan", "pretrained_network", "quickstart"]
    assert all(len(path.read_text().splitlines()) <= 60 for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_show_a_certificate(path, tmp_path, capsys):
    main = runpy.run_path(str(path))["main"]
    with torch.random.fork_rng():
        main(*[tmp_path][: main.__code__.co_argcount])
    assert " probability at least 0." in capsys.readouterr().out


def test_what_the_examples_write_can_be_read(tmp_path):
    for name, rows in (("quickstart", 242), ("own_csv", 20)):
        runpy.run_path(str(ROOT / f"examples/{name}.py"))["main"](tmp_path)
        table = pd.read_csv(tmp_path / "intervals.csv")
        assert len(table) == rows
        assert (table["lower"] <= table["upper"]).all()
    assert (tmp_path / "intervals.png").stat().st_size > 5000


def test_the_tables_on_speed_are_those_of_the_measured_files():
    check_same_page(report.tables(SPEED), SPEED)
    assert SPEED.count("\n| ") > 30


def test_the_first_snippet_prints_the_certificate_as_shown():
    shown = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)[0]
    check_same_page(run(SNIPPETS[0]), shown)


PAGES = [
    "README.md",
    "CHANGELOG.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
