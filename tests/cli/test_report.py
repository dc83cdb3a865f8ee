"""The HTML report, read as text and, where there is a Chromium, opened in it."""

from __future__ import annotations

import base64
import html
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lazyknife import Intervals, Plain, Public, certify, check_exchangeable
from lazyknife.certificate import Certificate
from lazyknife.cli.rows import Rows
from lazyknife.plots import figure_svg
from lazyknife.report.outcome import Outcome, Sample, draw, make_report
from lazyknife.report.page import Figure, Report, Table, Verdict, render

NO_BROWSER = (
    "no Chromium found: install Debian's chromium package to run the report's browser tests"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"viewport": {"width": 360, "height": 740}}
INF, NAN = float("inf"), float("nan")

CERTIFIED = certify(n=100, alpha=0.1, base=Public())
REFUSED = certify(n=100, alpha=0.1, base=Plain())
VACUOUS = certify(n=100, alpha=0.6, base=Public())
NASTY = "<script>alert(1)</script>"
COMMAND = "lazyknife predict 'my data.csv' \\\n  --alpha 0.1 --html <out>.html"
SQUARE = '<svg width="100%" viewBox="0 0 40 30"><circle cx="9" cy="9" r="5"/></svg>'

MIXED = Table(
    "Methods",
    ("number", "text", "group", "mixed", NASTY),
    (
        (3, "fold 10", "b", "text", 1.0),
        (None, "beta", "a", 2.0, 2.0),
        (INF, "Alpha", "b", None, 3.0),
        (-1.5, None, "a", 10, 4.0),
        (0.123449, "émile", "b", -INF, 5.0),
        (NAN, "zeta", "a", "Text", 6.0),
        (-INF, "fold 2", "b", 1e300, 7.0),
        (0.123441, "", "a", None, 8.0),
    ),
    note="Sorted by nothing.",
)
LONG = Table(
    "Predictions of y",
    ("row", "y"),
    tuple((f"id-{i}", i / 7) for i in range(1000)),
    csv="row,y\nid-0,0.0\né,0.5\n",
)
REPORT = Report(
    title="Intervals for diabetes.csv",
    lead="242 new rows.",
    verdict=Verdict("What to expect", "About 90 %.", ("On average.",), "certified"),
    certificate=CERTIFIED,
    figures=(Figure("Intervals", SQUARE, "Sorted."), Figure("Coverage", SQUARE)),
    tables=(MIXED, Table("Predictions", ("row",), ((1,), (2,)))),
    settings={"alpha": 0.123456, "hidden": (64, None), "fast": True, "base": NASTY},
    command=COMMAND,
    notes=("3 rows were dropped.",),
    versions={"lazyknife": "0.1.0"},
)


class Page(HTMLParser):
    """The page's start tags with their attributes, and the text inside each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.text[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def cells(*values: object) -> list[tuple[str, dict[str, str | None]]]:
    """Text and attributes of a table's cells, one row each."""
    table = Table("t", ("c",), tuple((value,) for value in values))
    page = Page(render(replace(REPORT, tables=(table,))))
    return list(zip(page.text["td"], page.attributes("td"), strict=True))


# ---------------------------------------------------------------- the page as text


def test_every_tag_is_closed_and_headings_come_in_order():
    page = Page(render(REPORT))
    assert page.open == []
    assert page.attributes("html") == [{"lang": "en"}]
    assert page.text["title"] == page.text["h1"] == ["Intervals for diabetes.csv"]
    headings = [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings == ["h1"] + ["h2"] * 9
    titles = ["What to expect", "Intervals", "Coverage", "Methods", "Predictions"]
    assert page.text["h2"] == [*titles, "Notes", "Settings", "Reproduce", "Versions"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_points_outside():
    page = Page(render(REPORT))
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    policy = next(m["content"] for m in page.attributes("meta") if "http-equiv" in m)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["img-src"] == "data:"
    assert "unsafe" not in directives["script-src"]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?:", render(REPORT))


def test_text_is_escaped_everywhere():
    report = Report(
        title=NASTY,
        lead=NASTY,
        verdict=Verdict(NASTY, NASTY, (NASTY,)),
        certificate=Certificate(0.9, {}, (NASTY,), NASTY, NASTY, (), (NASTY,)),
        figures=(Figure(NASTY, SQUARE, NASTY),),
        tables=(Table(NASTY, (NASTY,), ((NASTY,),), NASTY),),
        settings={NASTY: NASTY},
        glossary={NASTY: NASTY},
        command=NASTY,
        notes=(NASTY,),
        versions={NASTY: NASTY},
    )
    text = render(report)
    assert NASTY not in text
    assert len(Page(text).attributes("script")) == 1
    # Two of title, settings, glossary and versions each, four of certificate and table, three of
    # the verdict, and five others.
    assert text.count(html.escape(NASTY)) == 4 * 2 + 2 * 4 + 3 + 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456, "0.1235"),
        (0.9, "0.9000"),
        (-2.0, "-2.000"),
        (1234.5678, "1235"),
        (9999.7, "10000"),
        (452312.4, "452312"),
        (-1.5e12, "-1.500e+12"),
        (1.23456e-7, "1.235e-07"),
        (0.0, "0"),
        (-0.0, "0"),
        (INF, "∞"),
        (-INF, "-∞"),
        (1234567, "1234567"),
        (np.float32(0.5), "0.5000"),
        (np.int64(7), "7"),
    ],
)
def test_numbers_are_shown_short_and_kept_whole(value, shown):
    [(text, attributes)] = cells(value)
    assert text == shown
    assert float(attributes["data-value"]) == float(value)
    assert "Inf" not in attributes["data-value"] or "Infinity" in attributes["data-value"]
    assert attributes["class"] == "number"
    assert "data-missing" not in attributes


def test_other_cells_are_text_or_missing():
    assert cells("0.5", True, np.False_, None, NAN) == [
        ("0.5", {}),
        ("yes", {}),
        ("no", {}),
        ("–", {"data-missing": None}),
        ("–", {"data-missing": None}),
    ]


def test_a_column_is_numeric_if_all_that_it_has_are_numbers():
    assert [attributes.get("class") for _, attributes in cells(None, 1, 2.5)] == ["number"] * 3
    assert [attributes.get("class") for _, attributes in cells("a", 1)] == [None] * 2
    assert [attributes.get("class") for _, attributes in cells(None, NAN)] == [None] * 2


def test_settings_are_shown_in_full():
    page = Page(render(REPORT))
    assert page.text["dt"] == ["alpha", "hidden", "fast", "base", "lazyknife"]
    assert page.text["dd"] == ["0.123456", "64, none", "yes", NASTY, "0.1.0"]
    assert page.text["code"] == [COMMAND]


def test_parts_without_content_are_left_out():
    empty = Report("t", "", None, (), (), {}, "")
    page = Page(render(empty))
    assert page.open == []
    assert not {"h2", "p", "section", "dl", "pre", "button", "table", "figure"} & set(page.text)


def outcome_of(certificate=CERTIFIED, unlike=False):
    """Intervals of 30 new rows."""
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]), 1e6 * rng.normal(size=60)
    found = Intervals(y[30:] + 1, y[30:] - 2e6, y[30:] + 2e6, 0.1)
    sample = Sample(1)
    sample.add(found, Rows(X[30:], y[30:], None, None, []))
    shift = check_exchangeable(X[:30], X[30:] + 9 * unlike)
    names = {"n_features_in_": 2, "row_shape_": (2,), "n_samples_fit_": 30}
    names |= {"self_check": lambda alpha: f"checked at {alpha}"}
    model = SimpleNamespace(**names, loo_=SimpleNamespace(residuals=y[:30]))
    return Outcome(sample, [certificate], shift, model, ["price"], [])


def judged(certificate, unlike=False):
    """The report of intervals with a certificate."""
    origin = {"settings": {}, "command": COMMAND, "versions": {}}
    report = make_report(outcome_of(certificate, unlike), {}, "a → b", origin)
    return replace(report, figures=REPORT.figures, tables=REPORT.tables)


def folded_in(report):
    """The lines below the heading of the part that is folded."""
    part = re.search(r"<details.*?</summary>(.*?)</details>", render(report), re.DOTALL)[1]
    lines = re.split(r"</p>|</li>", html.unescape(part))
    return [" ".join(re.sub(r"<[^>]+>", "", line).split()) for line in lines if line.strip()]


@pytest.mark.parametrize("certificate", [CERTIFIED, REFUSED, VACUOUS])
def test_a_page_has_every_line_of_the_certificate_in_a_part_that_unfolds(certificate):
    lines = [line.strip().removeprefix("- ") for line in certificate.details.splitlines()]
    assert [line for line in folded_in(judged(certificate)) if line] == lines
    page = Page(render(judged(certificate)))
    opened = "open" in page.attributes("details")[0]
    assert opened == (not certificate.coverage)  # the reason why there is no guarantee


def test_a_page_says_first_what_to_expect_and_then_the_theorem():
    text = render(judged(CERTIFIED))
    places = [text.index(word) for word in ("Expect about", "<details>", "theorem", "It assumes")]
    assert places == sorted(places)
    assert "theorem" not in re.search(r'class="claim">(.*?)</p>', text)[1]


@pytest.mark.parametrize("certificate", [REFUSED, VACUOUS])
def test_a_certificate_that_certifies_nothing_warns(certificate):
    page = Page(render(judged(certificate)))
    assert "certificate warning" in {a.get("class") for a in page.attributes("section")}
    assert "Why nothing is guaranteed" in page.text["summary"]
    good = Page(render(judged(CERTIFIED)))
    assert "certificate certified" in {a.get("class") for a in good.attributes("section")}
    doubtful = Page(render(judged(CERTIFIED, unlike=True)))
    assert "certificate doubtful" in {a.get("class") for a in doubtful.attributes("section")}


def test_a_table_can_be_downloaded_without_scripts():
    page = Page(render(replace(REPORT, tables=(LONG, MIXED))))
    (link,) = page.attributes("a")
    assert link["download"] == "predictions-of-y.csv"
    head, _, data = link["href"].partition(",")
    assert head == "data:text/csv;charset=utf-8;base64"
    assert base64.b64decode(data).decode() == LONG.csv


def test_jinja2_is_asked_for_only_when_needed(monkeypatch):
    code = "import lazyknife.report.page, sys; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'lazyknife\[cli\]'"):
        render(REPORT)


# ---------------------------------------------------------------- the page in a browser


def chromium() -> str:
    """Path of a Chromium; without one, skip, or fail where LAZYKNIFE_NEED_CHROMIUM is set."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("LAZYKNIFE_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not found and os.environ.get("LAZYKNIFE_NEED_CHROMIUM"):
        pytest.fail(NO_BROWSER)
    if not found:
        pytest.skip(NO_BROWSER)
    return found


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a report; the page carries what it requested and what it wrote to the console."""
    contexts = []

    def open_report(report=REPORT, **options):
        context = browser.new_context(locale="en-US", **options)
        contexts.append(context)
        page = context.new_page()
        page.requests, page.messages = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        (tmp_path / "report.html").write_text(render(report), encoding="utf-8")
        page.goto((tmp_path / "report.html").as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()


def drawn(salt: str) -> str:
    """A drawing by matplotlib, ids and all."""
    mpl = pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Drawing

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure = Drawing(figsize=(6.4, 4.2))
        figure.subplots().plot([0, 1], [0, 1])
        figure.savefig(file, format="svg")
    text = file.getvalue()
    return text[text.index("<svg") :]


def test_it_shows_everything_and_asks_for_nothing(show):
    figures = (Figure("A", drawn("a")), Figure("B", SQUARE))
    page = show(replace(REPORT, figures=figures, tables=(MIXED, LONG)))
    assert page.locator(".claim").inner_text() == "About 90 %."
    assert not page.locator("details p").first.is_visible()
    page.locator("summary").click()
    assert page.locator("details p").first.inner_text() == str(CERTIFIED).splitlines()[0]
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    assert page.locator(".claim").evaluate(size) >= 1.4 * page.locator("body").evaluate(size)
    assert page.get_by_role("img", name="B").is_visible()
    assert page.get_by_role("img", name="A").locator("svg").bounding_box()["width"] > 300
    assert page.locator("figure").count() == page.get_by_role("table").count() == 2
    assert page.locator("tbody tr").count() == 1008
    box = page.locator(".scroll").nth(1).bounding_box()
    assert box["height"] < 700  # a long table scrolls in its own box
    page.locator("th button").first.click()
    assert page.messages == []
    assert page.requests == [page.url]


def test_nothing_in_a_figure_can_run_or_call_out(show):
    hostile = (
        "<svg viewBox='0 0 4 3' onload='hacked = 1'><script>hacked = 1</script>"
        "<style>@import url(http://127.0.0.1:9/a.css);</style>"
        "<image href='http://127.0.0.1:9/b.png' width='1' height='1'/></svg>"
    )
    page = show(replace(REPORT, figures=(Figure("F", hostile),)))
    assert page.evaluate("typeof hacked") == "undefined"
    blocked = "".join(m for m in page.messages if "Content Security Policy" in m)
    assert "a.css" in blocked
    assert "b.png" in blocked
    assert page.get_by_role("columnheader", name=NASTY).is_visible()


def column(page, place: int) -> list[str]:
    return page.locator("table").first.locator(f"tbody td:nth-child({place + 1})").all_inner_texts()


ASCENDING = {
    0: ["-∞", "-1.500", "0.1234", "0.1234", "3", "∞", "–", "–"],
    1: ["", "Alpha", "beta", "émile", "fold 2", "fold 10", "zeta", "–"],
    3: ["-∞", "2.000", "10", "1.000e+300", "text", "Text", "–", "–"],
}
DESCENDING = {
    0: ["∞", "3", "0.1234", "0.1234", "-1.500", "-∞", "–", "–"],
    1: ["zeta", "fold 10", "fold 2", "émile", "beta", "Alpha", "", "–"],
    3: ["Text", "text", "1.000e+300", "10", "2.000", "-∞", "–", "–"],
}


def test_a_click_sorts_by_value_and_another_turns_round(show):
    page = show()
    for place in ASCENDING:
        for expected in (ASCENDING, DESCENDING, ASCENDING):
            page.locator("th button").nth(place).click()
            assert column(page, place) == expected[place]


def test_equal_cells_keep_their_order(show):
    page = show()
    page.locator("th button").nth(2).click()
    assert column(page, 4) == [f"{i}.000" for i in (2, 4, 6, 8, 1, 3, 5, 7)]
    page.locator("th button").nth(2).click()
    assert column(page, 4) == [f"{i}.000" for i in (1, 3, 5, 7, 2, 4, 6, 8)]


def test_the_keyboard_sorts_and_the_order_is_announced(show):
    page = show()
    sorts = "[...document.querySelectorAll('th')].map(th => th.getAttribute('aria-sort'))"
    assert page.evaluate(sorts) == [None] * 6
    page.locator(".scroll").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate(sorts) == ["ascending", *[None] * 5]
    assert column(page, 0) == ASCENDING[0]
    page.keyboard.press("Space")
    assert page.evaluate(sorts) == ["descending", *[None] * 5]
    assert column(page, 0) == DESCENDING[0]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate(sorts) == [None, "ascending", *[None] * 4]
    assert column(page, 1) == ASCENDING[1]
    arrows = (
        "[...document.querySelectorAll('.arrow')].map(a => getComputedStyle(a, '::before').content)"
    )
    assert page.evaluate(arrows) == ['"↕"', '"↑"', *['"↕"'] * 4]


def test_it_fits_a_phone(show):
    long = "a_name_without_any_place_to_break_that_goes_on_and_on_and_on_and_on_and_on"
    report = replace(
        REPORT,
        title=long,
        lead=long,
        verdict=Verdict(long, long, (long,)),
        glossary={long: long},
        certificate=Certificate(0.9, {}, (long,), long, long, (), (long,)),
        figures=(Figure(long, drawn("c"), long), Figure("W", SQUARE)),
        tables=(Table(long, (long, "b", long), ((long, 1.0, long),), long),),
        settings={long: long},
        command=f"lazyknife --{long}",
        notes=(long,),
    )
    page = show(report, **PHONE)
    width = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert page.evaluate(width) == [360, 360]
    for drawing in page.locator(".drawing svg").all():
        box = drawing.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["width"] > 280
    sizes = "e => [e.scrollWidth > e.clientWidth, getComputedStyle(e).overflowX]"
    assert page.locator(".scroll").evaluate(sizes) == [True, "auto"]
    for selector in ("body", "td", "th button", "pre", "dd", "li"):
        size = page.locator(selector).first.evaluate(
            "e => parseFloat(getComputedStyle(e).fontSize)"
        )
        assert size >= 16, selector


# The least contrast of text against what is behind it, and the text.
CONTRAST = """() => {
  const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    const colour = rgba(getComputedStyle(e).backgroundColor);
    return colour[3] === 0 ? behind(e.parentElement) : colour;
  };
  const written = [...document.querySelectorAll("main *:not(svg *)")].filter((e) =>
    e.matches(".arrow, .icon") || [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  return written.map((e) => {
    const pair = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((a, b) => a - b);
    return [(pair[1] + 0.05) / (pair[0] + 0.05), e.outerHTML.slice(0, 80)];
  }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize(
    "report", [judged(CERTIFIED), judged(REFUSED), judged(CERTIFIED, unlike=True)]
)
def test_contrast_is_enough_by_day_and_by_night(show, report):
    page = show(replace(report, tables=(MIXED, LONG), glossary={"a": "b"}, warnings=("w",)))
    page.locator("details").evaluate("e => { e.open = true; }")
    page.locator("th button").first.click()
    background = "e => getComputedStyle(e).backgroundColor"
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        least, where = page.evaluate(CONTRAST)
        assert 4.5 <= least < 21, where
        backgrounds.add(page.locator("body").evaluate(background))
        assert page.locator(".drawing").first.evaluate(background) == "rgb(255, 255, 255)"
    assert len(backgrounds) == 2


def test_ids_break_between_words_alone_on_a_phone(show):
    ids = ("DE-HH-2024-000436", "split_conformal", "mapie_split_boosting")
    rows = tuple((name, 123456.789, 123456.789, 123456.789) for name in ids)
    table = Table("T", ("id", "point", "lower", "upper"), rows)
    page = show(replace(REPORT, tables=(table,)), **PHONE)
    lines = """e => {
      const range = document.createRange(); range.selectNodeContents(e);
      return new Set([...range.getClientRects()].map((box) => box.top)).size; }"""
    found = [cell.evaluate(lines) for cell in page.locator("td:first-child").all()]
    assert found == [1, 1, 1]


def test_letters_in_a_figure_can_be_read_on_a_phone(show):
    result = outcome_of()
    title, drawn = next(iter(draw(result).items()))
    page = show(
        replace(REPORT, figures=(Figure(title, figure_svg(drawn, title=title, id_prefix="f")),)),
        **PHONE,
    )
    width = page.locator(".drawing svg").bounding_box()["width"]
    sizes = [text.get_size() for text in drawn.axes[0].get_xticklabels()]
    assert min(sizes) * width / (72 * drawn.get_size_inches()[0]) >= 9.5
    assert drawn.axes[0].get_ylabel() == "price"


def test_a_search_hides_the_other_rows(show):
    page = show(replace(REPORT, tables=(MIXED, LONG)))
    assert page.locator("input[type=search]").count() == 1  # a short table needs none
    field = page.get_by_label("Search in Predictions of y")
    count = page.locator(".count").nth(1)
    field.fill("ID-99")
    assert page.locator("tbody").nth(1).locator("tr:visible").count() == 11
    assert count.inner_text() == "11 of 1,000 rows"
    field.fill("id-99 14.1")  # all words, in any column
    assert page.locator("tbody").nth(1).locator("tr:visible").all_inner_texts() == ["id-99\t14.14"]
    page.locator("th button").nth(5).click()
    assert count.inner_text() == "1 of 1,000 rows"
    field.fill("")
    assert count.inner_text() == "1,000 rows"
    assert page.locator("tbody").nth(1).locator("tr:visible").count() == 1000
    assert page.messages == []


def test_the_csv_is_downloaded_from_the_page_itself(show):
    page = show(replace(REPORT, tables=(LONG,)), accept_downloads=True)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download CSV").click()
    assert waiting.value.suggested_filename == "predictions-of-y.csv"
    with open(waiting.value.path(), encoding="utf-8") as file:
        assert file.read() == LONG.csv
    assert page.messages == []


def test_without_scripts_it_still_reads(show):
    page = show(replace(REPORT, tables=(LONG,)), java_script_enabled=False)
    assert page.locator(".claim").is_visible()
    assert not page.locator("input").is_visible()


def test_it_prints_white_and_whole(show):
    page = show(replace(REPORT, tables=(LONG,)), color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.locator(".scroll").bounding_box()["height"] > 10000
    assert not page.locator(".arrow").first.is_visible()
    assert page.evaluate(CONTRAST)[0] >= 4.5
