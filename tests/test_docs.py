"""The README and the pages: their snippets run and their numbers come from committed results."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from benchmarks import report

import lazyknife
import lazyknife.plots
from alike import check_same_page
from docs_site import bring_in, broken
from lazyknife.cli.app import TITLE
from snippets import blocks, run_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SPEED = (ROOT / "docs/speed.md").read_text()
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# The README and a few short pages run in `make test`, all others in `make test-all`.
QUICK = {"README", "gallery", "large-data", "saving", "tutorial"}


def marked(path: Path) -> object:
    marks = [] if path.stem in QUICK else [pytest.mark.slow]
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [marked(path) for path in PAGES if any(blocks(path.read_text()))])
def test_the_blocks_of_a_page_run_and_print_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a page writes where it is run
    with torch.random.fork_rng():
        assert run_page(path) >= 1


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
    assert "Guaranteed: at least " in capsys.readouterr().out
    written = {file.suffix: file for file in tmp_path.iterdir()}
    if ".csv" in written:
        table = pd.read_csv(tmp_path / "intervals.csv")
        assert len(table) == {"quickstart": 242, "own_csv": 20}[path.stem]
        assert (table["lower"] <= table["upper"]).all()
    assert (".png" in written) == (path.stem == "quickstart")


def test_the_tables_on_speed_are_those_of_the_measured_files():
    check_same_page(report.tables(SPEED), SPEED)
    assert SPEED.count("\n| ") > 20


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKED = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])


def test_a_source_distribution_has_what_make_needs():
    needed = {"src", "tests", "research", "results", "docs", "Makefile", "constraints.txt"}
    assert needed <= PACKED
    assert all((ROOT / name).exists() for name in PACKED)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_to_files_of_the_source_distribution(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            found = (page.parent / target).resolve()
            assert found.exists(), target
            assert found.relative_to(ROOT).parts[0] in PACKED, target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_modules_and_tests_that_a_page_names_exist(page):
    for name in re.findall(r"`([\w/]+/\w+\.py)", page.read_text()):
        folders = ("", "src/lazyknife", "tests")
        assert any((ROOT / folder / name).exists() for folder in folders), name


SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def in_order(nav: list) -> list[str]:
    """The pages of the site, in the order of its navigation."""
    entries = [value for entry in nav for value in entry.values()]
    return [page for e in entries for page in (in_order(e) if isinstance(e, list) else [e])]


def test_every_page_is_in_the_navigation_once():
    assert sorted(in_order(SITE["nav"])) == sorted(p.name for p in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("module", [lazyknife, lazyknife.plots], ids=lambda module: module.__name__)
def test_every_public_name_has_an_entry_in_the_reference(module):
    listed = re.findall(
        rf"^::: {module.__name__}\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M
    )
    assert sorted(listed) == sorted(module.__all__)


def test_addresses_are_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    urls = PROJECT["project"]["urls"]
    assert cited["version"] == PROJECT["project"]["version"] == lazyknife.__version__
    assert SITE["site_url"].rstrip("/") == urls["Documentation"] == cited["url"]
    assert SITE["extra"]["social"][0]["link"] == urls["Source"] == cited["repository-code"]
    assert {"cff-version", "message", "title", "authors"} <= {*cited}


def test_releases_and_tests_know_the_same_versions():
    project, flows = PROJECT["project"], ROOT / ".github/workflows"
    names = [re.fullmatch(r".* :: (3\.\d+)", name) for name in project["classifiers"]]
    tested = yaml.safe_load((flows / "tests.yml").read_text())["jobs"]["quick"]["strategy"][
        "matrix"
    ]
    assert tested["python"] == [name[1] for name in names if name]
    assert project["requires-python"] == f">={tested['python'][0]}"
    recipe = (ROOT / "recipe/meta.yaml").read_text()
    assert f'version = "{project["version"]}"' in recipe
    assert project["description"] in recipe
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cli"][1:]]
    listed = dict(re.findall(r"^    - ([\w-]+) (>=[\d.]+)$", recipe, re.M))
    others = {"torch": "pytorch"}
    for name, least in (re.fullmatch(r"([\w-]+)(>=[\d.]+)", line).groups() for line in wanted):
        assert listed[others.get(name, name)] == least, name
    for path in [*flows.glob("*.yml"), *(ROOT / ".github").rglob("*.yml")]:
        assert yaml.safe_load(path.read_text()), path


def test_one_sentence_says_everywhere_what_this_is():
    said = PROJECT["project"]["description"]
    assert f"**{said}**" in README
    assert said == SITE["site_description"] == TITLE
    assert said in (ROOT / "docs/index.md").read_text()


def test_what_pages_link_to_outside_is_brought_into_the_site(tmp_path):
    site, page = tmp_path / "site", tmp_path / "site/a/index.html"
    page.parent.mkdir(parents=True)
    (tmp_path / "rows.csv").write_text("x")
    (tmp_path / "code.py").write_text("x")
    page.write_text(
        '<a href="../../rows.csv"></a><a href="../../code.py"></a><a id="here" href="#here"></a>'
        '<img src="../../none.png"><a href="#gone"></a><a href="https://x.org/y"></a>'
    )
    bring_in(site, tmp_path, "https://code.org/x")
    assert (site / "rows.csv").exists()
    assert 'href="../rows.csv"' in page.read_text()
    assert 'href="https://code.org/x/blob/main/code.py"' in page.read_text()
    assert sorted(broken(site)) == [
        "a/index.html: #gone has no such anchor",
        "a/index.html: ../../none.png does not exist",
    ]
