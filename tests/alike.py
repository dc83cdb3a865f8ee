"""Whether drawings and pages say the same; their numbers may differ in the last digits.

Processors round differently: a figure or a table that is made again from the same rows has the
same parts and words, but not the same bytes.
"""

import re
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

# Neither within a word ("fig2a") nor in a colour ("#0072b2").
NUMBER = re.compile(r"(?<![#\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
UNIT = 1e-3  # in the coordinates of a drawing, 1/72 of an inch each
# Matplotlib ends the names of markers and clips in a hash of their coordinates, to the last bit.
HASHED = re.compile(r"[0-9a-f]{10}$")


def check_same_drawing(made: Path, kept: Path) -> None:
    """Check that two SVG files have the same elements, words and colours, in the same places."""
    (lines, places), (other_lines, other_places) = map(_read, (made, kept))
    for line, other in zip(lines, other_lines, strict=False):
        assert line == other, f"{made}: {line!r}; {kept}: {other!r}"
    assert len(lines) == len(other_lines), f"{made} and {kept} have other numbers of elements"
    gaps = np.abs(np.subtract(places, other_places))
    assert gaps.max() <= UNIT, f"{made} and {kept} differ by {gaps.max()} in a coordinate"


def _read(path: Path) -> tuple[list[str], list[float]]:
    """Every tag, attribute and text, with the numbers taken out; and these numbers."""
    elements = list(ElementTree.parse(path).iter())
    names = [name for e in elements if HASHED.search(name := e.get("id", ""))]
    places = {name: f"name {place}" for place, name in enumerate(names)}
    lines = []
    for element in elements:
        lines.append(f"{element.tag}: {(element.text or '').strip()}")
        for attribute, value in element.attrib.items():
            name = value.removeprefix("url(").removeprefix("#").removesuffix(")")
            lines.append(f"{attribute}={places.get(name, value)}")
    return [NUMBER.sub("·", line) for line in lines], [
        float(number) for line in lines for number in NUMBER.findall(line)
    ]


def check_same_page(made: str, kept: str) -> None:
    """Check that two texts have the same words and, up to how they were rounded, numbers.

    Whole numbers are counts, and equal; others may differ by one unit in their last digit.
    """
    lines, others = (NUMBER.sub("·", text).splitlines() for text in (made, kept))
    for number, (line, other) in enumerate(zip(lines, others, strict=False), start=1):
        assert line == other, f"line {number}: {line!r}, {other!r}"
    assert len(lines) == len(others), f"{len(lines)} lines, {len(others)} lines"
    for pair in zip(NUMBER.findall(made), NUMBER.findall(kept), strict=True):
        first, second = map(Decimal, pair)
        digits = [number.as_tuple().exponent for number in (first, second)]
        unit = 0 if digits == [0, 0] else Decimal(1).scaleb(min(digits))
        assert abs(first - second) <= unit, pair
