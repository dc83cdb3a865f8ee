"""Tables between the marks of a page, and the gallery."""

from __future__ import annotations

import pandas as pd
import pytest
from research.experiments import diabetes, gallery
from research.pages import DOCS, RESULTS, ROOT, fill, fill_file, markdown, marked
from research.study import fill as filled

import lazyknife as lk
from alike import check_same_page
from lazyknife.plots import save_figure

PAGE = """a
<!-- table: x -->
old
<!-- end of table -->
b
<!-- table: y -->
kept
<!-- end of table -->
c
"""


def test_a_markdown_table_has_a_head_and_lines():
    assert markdown(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |\n"


def test_filling_a_page_touches_nothing_else(tmp_path):
    assert marked(PAGE) == ["x", "y"]
    filled = fill(PAGE, {"x": "new\n"})
    assert filled == PAGE.replace("old", "new")
    assert fill(filled, {"x": "new\n"}) == filled
    (tmp_path / "page.md").write_text(PAGE)
    fill_file(tmp_path / "page.md", {"x": "new\n"})
    assert (tmp_path / "page.md").read_text() == filled
    with pytest.raises(ValueError, match="needs the mark <!-- table: z --> once"):
        fill(PAGE, {"z": ""})


@pytest.mark.slow
def test_the_gallery_is_what_its_script_draws(tmp_path):
    drawn = {draw.__name__ for draw in gallery.GALLERY}
    assert drawn == {path.stem for path in (DOCS / "gallery").glob("*.svg")}
    for draw in (gallery.sorted_intervals, gallery.band, gallery.comparison):
        save_figure(draw(), tmp_path / "figure.svg")
        assert (tmp_path / "figure.svg").stat().st_size > 5000


def test_the_figure_of_the_comparison_is_drawn_from_the_committed_rows(tmp_path):
    rows = pd.read_csv(DOCS / "demo/demo.csv")
    assert list(dict.fromkeys(rows["method"])) == list(diabetes.METHODS)
    save_figure(diabetes.draw(rows), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_demo_compares_methods_on_the_diabetes_data():
    methods = {name: diabetes.METHODS[name] for name in ("naive", "lazyknife")}
    found = lk.compare_methods(*diabetes.data(), methods, train_rows=60, jobs=1)
    assert list(dict.fromkeys(found["method"])) == ["naive", "lazyknife"]
    assert found.groupby("method")["certified"].count().to_dict() == {"lazyknife": 5, "naive": 0}


def test_the_readme_is_what_its_command_fills():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert marked(page)
    check_same_page(filled(page, RESULTS), page)  # if not: python -m research pages ../README.md
