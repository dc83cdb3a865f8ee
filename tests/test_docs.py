"""The README and the pages: their snippets run and their numbers come from committed results."""

import re
import runpy
import shutil
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


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


README, SPEED = read("README.md"), read("docs/speed.md")
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# The README and a few short pages run in `make test`, all others in `make test-all`.
QUICK = {"README", "gallery", "large-data", "saving", "tutorial"}


NEEDS_BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="this system has no bash")


def marked(path: Path) -> object:
    marks = [] if path.stem in QUICK else [pytest.mark.slow]
    marks += [NEEDS_BASH] * any(block.language == "sh" for block in blocks(read(path)))
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", [marked(path) for path in PAGES if any(blocks(read(path)))])
def test_the_blocks_of_a_page_run_and_print_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a page writes where it is run
    with torch.random.fork_rng():
        assert run_page(path) >= 1


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```python\nx = 1\n```\n```python\nprint(x)\n```\n\n```text\n3\n```\n", None),
        ("```ruby\nputs 1\n```\n", r"page.md:2: 'ruby' is neither run nor marked"),
        pytest.param("```sh\nls nothing\n```\n", "nothing", marks=NEEDS_BASH),
    ],
)
def test_a_page_that_shows_something_else_fails(page, words, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=words):
        run_page(tmp_path / "page.md")


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_four_short_examples():
    names = [path.stem for path in EXAMPLES]
    assert names == ["own_csv", "plan", "pretrained_network", "quickstart"]
    assert all(len(read(path).splitlines()) <= 60 for path in EXAMPLES)


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


PROJECT = tomllib.loads(read("pyproject.toml"))
PACKED = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])


def test_a_source_distribution_has_what_make_needs():
    needed = {"src", "tests", "research", "results", "docs", "Makefile", "constraints.txt"}
    assert needed <= PACKED
    assert all((ROOT / name).exists() for name in PACKED)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_to_files_of_the_source_distribution_and_modules_exist(page):
    text = read(page)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            found = (page.parent / target).resolve()
            assert found.exists(), target
            assert found.relative_to(ROOT).parts[0] in PACKED, target
    for name in re.findall(r"`([\w/]+/\w+\.py)", text):
        assert any((ROOT / folder / name).exists() for folder in ("", "src/lazyknife", "tests"))


SITE = yaml.safe_load(read("mkdocs.yml"))


def in_order(nav: list) -> list[str]:
    """The pages of the site, in the order of its navigation."""
    entries = [value for entry in nav for value in entry.values()]
    return [page for e in entries for page in (in_order(e) if isinstance(e, list) else [e])]


def test_every_page_is_in_the_navigation_once_and_every_public_name_in_the_reference():
    assert sorted(in_order(SITE["nav"])) == sorted(p.name for p in (ROOT / "docs").glob("*.md"))
    for module in (lazyknife, lazyknife.plots):
        listed = re.findall(rf"^::: {module.__name__}\.(\w+)$", read("docs/api.md"), re.M)
        assert sorted(listed) == sorted(module.__all__)


def test_addresses_and_what_this_is_are_said_alike_everywhere():
    cited, urls = yaml.safe_load(read("CITATION.cff")), PROJECT["project"]["urls"]
    assert cited["version"] == PROJECT["project"]["version"] == lazyknife.__version__
    assert SITE["site_url"].rstrip("/") == urls["Documentation"] == cited["url"]
    assert SITE["extra"]["social"][0]["link"] == urls["Source"] == cited["repository-code"]
    assert {"cff-version", "message", "title", "authors"} <= {*cited}
    said = PROJECT["project"]["description"]
    assert f"**{said}**" in README
    assert said == SITE["site_description"] == TITLE
    assert said in read("docs/index.md")


def test_releases_and_tests_know_the_same_versions():
    project, flows = PROJECT["project"], ROOT / ".github/workflows"
    names = [re.fullmatch(r".* :: (3\.\d+)", name) for name in project["classifiers"]]
    tested = yaml.safe_load(read(flows / "tests.yml"))["jobs"]["quick"]["strategy"]["matrix"]
    assert tested["python"] == [name[1] for name in names if name]
    assert project["requires-python"] == f">={tested['python'][0]}"
    recipe = read("recipe/meta.yaml")
    assert f'version = "{project["version"]}"' in recipe
    assert f'python_min = "{tested["python"][0]}"' in recipe
    assert project["description"] in recipe
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cli"][1:]]
    listed = dict(re.findall(r"^    - ([\w-]+) (>=[\d.]+)$", recipe, re.M))
    others = {"torch": "pytorch"}
    for name, least in (re.fullmatch(r"([\w-]+)(>=[\d.]+)", line).groups() for line in wanted):
        assert listed[others.get(name, name)] == least, name
    for path in [*flows.glob("*.yml"), *(ROOT / ".github").rglob("*.yml")]:
        assert yaml.safe_load(read(path)), path


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
