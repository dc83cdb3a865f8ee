"""The README and the pages: their snippets run and their numbers come from committed results."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest

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


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    monkeypatch.chdir(tmp_path)
    text = (ROOT / f"docs/{page}.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    run(snippet)
    assert (tmp_path / made).stat().st_size > 1000


@pytest.mark.slow
def test_the_gallery_is_what_its_script_draws(tmp_path):
    gallery = load(ROOT / "examples/gallery.py")
    drawn = {draw.__name__ for draw in gallery.GALLERY}
    assert drawn == {path.stem for path in (ROOT / "docs/gallery").glob("*.svg")}
    for draw in (gallery.sorted_intervals, gallery.band, gallery.comparison):
        gallery.save_figure(draw(), tmp_path / "figure.svg")
        assert (tmp_path / "figure.svg").stat().st_size > 5000


def test_the_tables_on_speed_are_those_of_the_measured_files():
    report = load(ROOT / "benchmarks/report.py")
    check_same_page(report.tables(SPEED), SPEED)
    assert SPEED.count("\n| ") > 30


def test_the_first_snippet_prints_the_certificate_as_shown():
    shown = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)[0]
    check_same_page(run(SNIPPETS[0]), shown)


def test_the_table_is_the_demos():
    between = README.split("<!-- demo table -->\n")[1].split("<!-- end of demo table -->")[0]
    assert between == (ROOT / "docs/demo/table.md").read_text()


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
