"""The experiment on what certificates cost: its rows and its page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from research.experiments import constructions
from research.pages import DOCS, fill

from alike import check_same_page


def test_the_table_is_that_of_the_committed_rows(tmp_path: Path) -> None:
    committed = pd.read_csv(DOCS / "trade/constructions.csv")
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    check_same_page(fill(page, {"constructions": constructions.table(committed)}), page)
    shuffled = committed.sample(frac=1, random_state=0)
    assert constructions.table(shuffled) == constructions.table(committed)
    (tmp_path / "settings.md").write_text(page, encoding="utf-8")
    constructions.write(committed, tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "trade/constructions.csv"), committed)


def test_the_committed_rows_are_those_of_the_settings() -> None:
    committed = pd.read_csv(DOCS / "trade/constructions.csv")
    key = ["data", "n", "draw", "method"]
    found = committed[key].itertuples(index=False, name=None)
    assert sorted(found) == sorted(constructions.cells())
