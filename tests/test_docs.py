"""The README and the pages: their snippets run and their numbers come from committed results."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pandas as pd
import pytest
import torch
from benchmarks import report

from alike import check_same_page
from snippets import blocks, run_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SPEED = (ROOT / "docs/speed.md").read_text()
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Each takes more than three seconds: fits of a few hundred rows, private training, commands.
SLOW = {"command-line", "comparison", "default", "guarantee", "mapie", "pretrained", "settings"}


def marked(path: Path) -> object:
    marks = [pytest.mark.slow] if path.stem in SLOW else []
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [marked(path) for path in PAGES if any(blocks(path.read_text()))])
def test_the_blocks_of_a_page_run_and_print_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a page writes where it is run
    with torch.random.fork_rng():
        assert run_page(path) >= 1


def test_what_a_page_shows_is_what_runs():
    page = (
        "```python\nprint(6 * 7)\n```\n\n```text\n42\n```\n"
        "<!-- not run: it never ends -->\n```sh\nsleep inf\n```\n"
        "```python\nprint(1)\n```\nand\n```text\n2\n```\n"
    )
    first, second = blocks(page)
    assert (first.language, first.output, first.line) == ("python", "42\n", 2)
    assert (second.code, second.output) == ("print(1)\n", None)
    assert not any(blocks("```text\nx\n```\n"))


def test_a_page_that_shows_something_else_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n```python\nprint(x)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)
    page.write_text("```ruby\nputs 1\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:2: 'ruby' is neither run nor marked"):
        run_page(page)
    page.write_text("```sh\nls nothing\n```\n")
    with pytest.raises(AssertionError, match="nothing"):
        run_page(page)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
