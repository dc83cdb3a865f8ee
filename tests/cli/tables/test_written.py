"""Parts of a file must be written alike."""

from __future__ import annotations

import pytest

from lazyknife.cli.tables.numerals import Style
from lazyknife.cli.tables.written import Written, agreed, notes_of
from tabular import refused

NUMBER = Written("number", "")


def test_what_one_part_leaves_open_the_other_says():
    commas = Written("number", "", Style(","), marks={"?": 2}, notes=("of one",))
    groups = Written("number", "", Style(",", "."), marks={"?": 1, "-": 4}, notes=("of two",))
    found = agreed("f", {"a": commas}, {"a": groups})["a"]
    assert found.style == Style(",", ".")
    assert found.marks == {"?": 3, "-": 4}
    assert found.notes == ("of one", "of two")
    for parts in ((Written(), commas), (commas, Written())):
        assert agreed("f", *({"a": part} for part in parts))["a"] == commas
    assert agreed("f", {"a": NUMBER}, {"a": commas})["a"].decimal == ","


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (NUMBER, Written("boolean"), "types (numbers and booleans)"),
        (Written("text"), NUMBER, "types (text and numbers)"),
        (NUMBER, Written("number", "%"), "units (none and %)"),
        (Written("number", "€"), Written("number", "$"), "units (€ and $)"),
        (Written("number", "", Style(".")), Written("number", "", Style(",")), "styles (. and ,)"),
        (Written("date", order="dmy"), Written("date", order="mdy"), "dates (dmy and mdy)"),
    ],
)
def test_what_differs_is_refused(one, other, words):
    for pair in ((one, other), (other, one)):
        refused(lambda pair=pair: agreed("f.csv", *({"a": part} for part in pair)), "f.csv", "'a'")
    refused(lambda: agreed("f.csv", {"a": one}, {"a": other}), words, "--categorical a")


def test_types_without_a_name_agree_with_themselves():
    assert agreed("f", {"a": Written("bytes")}, {"a": Written("bytes")})["a"].kind == "bytes"


def test_marks_of_decimals_are_the_same_in_all_columns():
    point, comma = Written("number", "", Style(".")), Written("number", "", Style(","))
    before, here = {"a": point, "b": NUMBER}, {"a": NUMBER, "b": comma}
    refused(lambda: agreed("f.csv", before, here), "decimal commas", "--decimal")


def test_notes_are_by_style_and_then_by_column():
    comma = Written("number", "", Style(","))
    marked = Written("number", "", Style("."), marks={"?": 1}, notes=("x.",))
    assert notes_of({"a": comma, "b": marked, "c": comma}) == [
        "'a', 'c': numbers with decimal commas (--decimal, --thousands).",
        "b: 1 value '?' read as missing (--na).",
        "b: x.",
    ]
