"""Make the tables of the pages anew from the rows in results/."""

from __future__ import annotations

from pathlib import Path

from lazyknife.files import write_whole
from lazyknife.study import fill

DOCS = Path(__file__).parent
PAGES = ("reproduction.md", "studies.md")

if __name__ == "__main__":
    for name in PAGES:
        write_whole(DOCS / name, fill((DOCS / name).read_text(), DOCS.parent / "results"))
