"""What a source distribution holds: links of its pages lead to files inside it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def included() -> set[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        build = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["sdist"]
    return set(build["include"])


def test_a_source_distribution_holds_what_make_needs() -> None:
    needed = {"src", "tests", "research", "results", "docs", "Makefile", "constraints.txt"}
    assert needed <= included()
    assert all((ROOT / name).exists() for name in included())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_source_distribution(page: Path) -> None:
    targets = [t for t in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in t]
    for target in targets:
        found = (page.parent / target).resolve()
        assert found.exists(), target
        assert found.relative_to(ROOT).parts[0] in included(), target
