"""Make the tables of pages anew from the rows in results/: ``python docs/fill.py PAGE.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from research.study import fill

from lazyknife.files import write_whole

DOCS = Path(__file__).parent

if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_whole(DOCS / name, fill((DOCS / name).read_text(), DOCS.parent / "results"))
