"""Tables in Markdown, and the pages that hold them between marks.

A table named x stands between ``<!-- table: x -->`` and ``<!-- end of table -->``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lazyknife.files import replacing

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "results"
END = "<!-- end of table -->"


def write_whole(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def markdown(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    rows = [columns, ["---"] * len(columns), *lines]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def marked(page: str) -> list[str]:
    """Return the names of a page's tables."""
    return re.findall(r"<!-- table: (\S+) -->", page)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables between the marks of their names."""
    for name, table in tables.items():
        start = f"<!-- table: {name} -->\n"
        if page.count(start) != 1:
            raise ValueError(f"the page needs the mark {start.strip()} once: add it")
        before, rest = page.split(start)
        page = before + start + table + END + rest.split(END, maxsplit=1)[1]
    return page


def fill_file(path: Path, tables: Mapping[str, str]) -> None:
    """Fill a page in place."""
    write_whole(path, fill(path.read_text(encoding="utf-8"), tables))
