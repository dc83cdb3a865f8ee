"""Order statistics across parts are those of all numbers together, ties and infinities included."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lazyknife.dask.selection import bracket, inside, outline, pick, places_for

NUMBERS = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-1e3, 1e3), st.sampled_from([math.inf, -math.inf])
)
PARTS = st.lists(st.lists(NUMBERS, min_size=1, max_size=30), min_size=1, max_size=6)


def selected(parts: list[torch.Tensor], rank: int, places: int) -> float:
    low, high = bracket([outline(part, places) for part in parts], rank)
    return pick([inside(part, low, high) for part in parts], low, high, rank)


@given(PARTS, st.integers(2, 12))
def test_the_selected_number_is_that_of_all_parts_together(
    parts: list[list[float]], places: int
) -> None:
    tensors = [torch.tensor(part, dtype=torch.float64) for part in parts]
    ordered = torch.cat(tensors).sort(descending=True).values.tolist()
    for rank in range(1, len(ordered) + 1):
        assert selected(tensors, rank, places) == ordered[rank - 1]


@pytest.mark.parametrize("rank", [1, 2, 999, 20_000, 59_999, 60_000])
def test_few_numbers_are_moved(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(n, generator=generator) + k for k, n in enumerate((10_000, 30_000, 20_000))
    ]
    places = places_for(60_000, len(parts))
    low, high = bracket([outline(part, places) for part in parts], rank)
    moved = sum(len(inside(part, low, high).between) for part in parts)
    assert moved <= 2 * 60_000 / (places - 1)
    assert selected(parts, rank, places) == torch.cat(parts).sort(descending=True).values[rank - 1]
