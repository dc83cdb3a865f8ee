"""Tables between the marks of a page, and the gallery."""

from __future__ import annotations

import ast

import pandas as pd
import pytest
from research import messages
from research.commands.pages import filled
from research.experiments import diabetes, gallery
from research.pages import DOCS, RESULTS, ROOT, fill, fill_file, markdown, marked

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


def test_the_table_of_the_comparison_is_that_of_the_committed_rows(tmp_path):
    rows = pd.read_csv(DOCS / "demo/demo.csv")
    assert list(dict.fromkeys(rows["method"])) == list(diabetes.METHODS)
    page = (DOCS / "comparison.md").read_text(encoding="utf-8")
    check_same_page(fill(page, {"demo": diabetes.table(rows)}), page)
    save_figure(diabetes.draw(rows), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_demo_compares_methods_on_the_diabetes_data():
    methods = {name: diabetes.METHODS[name] for name in ("naive", "lazyknife")}
    found = lk.compare_methods(*diabetes.data(), methods, train_rows=60, jobs=1)
    lines = diabetes.table(found).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| naive", "| lazyknife"]
    assert lines[2].endswith("| 1.0 | none |")


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", DOCS / "troubleshooting.md", DOCS / "trade.md"],
    ids=lambda path: path.stem,
)
def test_a_page_is_what_its_command_fills(path):
    page = path.read_text(encoding="utf-8")
    assert marked(page)
    check_same_page(filled(page, RESULTS), page)  # if not: python -m research pages NAME


SOURCE = """
TEXT = "{count} rows" + " are too few"
class Odd(ValueError):
    def __init__(self, k):
        super().__init__(f"{k} is odd")
def f(rows, names):
    warnings.warn(TEXT.format(count=3), stacklevel=2)
    if rows:
        raise TypeError(f"{len(names)} names: give a {rows.kind!r}, not *")
    message = f"rows={rows!r}: " "give some"
    raise table.error("a", message) from None
def g(rows):
    message = "no rows" if rows else "no columns"
    raise _wrong(message)
def _wrong(message):
    return ValueError(f"wrong, {message}: " + _hint())
def _hint():
    return "look"
def h():
    raise KeyError("k")
    raise
"""


def test_messages_are_read_off_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "SOURCE", tmp_path)
    sentences = "SHORT = 'x'\nLONG = 'one {n:g} sentence'\nMORE = {'b': 'a b'}, 'c d'\n"
    (tmp_path / "sentences.py").write_text(sentences)
    (tmp_path / "data.py").write_text(SOURCE)
    assert {m.text: m.kind for m in messages.all_messages()} == {
        "⟨count⟩ rows are too few": "warning",
        "⟨k⟩ is odd": "error",
        "⟨names⟩ names: give a ⟨kind⟩, not *": "TypeError",
        "rows=⟨rows⟩: give some": "TableError",
        "no rows": "error",
        "no columns": "error",
        "wrong, ⟨message⟩: look": "ValueError",
    }
    listed = messages.sentences_table().splitlines()[2:]
    assert listed == ["| one ⟨n⟩ sentence |", "| a b |", "| c d |"]
    assert "not \\*" in messages.messages_table()


def test_every_text_that_the_package_raises_is_listed():
    listed = " ".join(message.text for message in messages.all_messages())
    for path in messages.SOURCE.rglob("*.py"):
        for function in messages.functions(messages.parsed(path)):
            for _, call in messages.raised(function):
                found = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant)]
                for text in (t.strip() for t in found if isinstance(t, str) and " " in t.strip()):
                    assert " ".join(text.split()) in listed, f"{path.name}: {text}"
