"""One record of what was chosen, by every model or for all of them."""

from dataclasses import replace

import numpy as np

from lazyknife.choosing.record import ChosenSettings

EACH = ChosenSettings(
    networks=("gaussian", "laplace"),
    each_network=np.array([1, 0, 1, 1]),
    each_weights=np.array([[0.5, np.nan]] * 4),
    each_ridge=np.array([1.0, 2.0, 1.0, 4.0]),
    each_widths=("leverage", "leverage × level (+1)", "leverage"),
    each_gap=np.array([[1.0, 0.0], [0.0, 9.0], [3.0, 0.0], [50.0, 0.0]]),
    rows=3,
    evaluated=7,
    searched=3,
)
SHARED = replace(
    EACH,
    each_network=np.array([1]),
    each_weights=np.array([[0.5, 0.0]]),
    each_ridge=np.array([2.0]),
    each_widths=("learnt",),
    each_gap=np.array([[1.0, 0.0]]),
    searched=1500,
    landmarks=12,
)


def test_attributes_have_the_same_shapes_whether_settings_are_stored_once_or_for_each() -> None:
    for choice in (EACH, SHARED):
        assert choice.network.shape == choice.ridge.shape == (4,)
        assert choice.weights.shape == choice.log_likelihood_gap.shape == (4, 2)
        assert len(choice.widths) == sum(choice.counts.values()) == 3
    many = replace(SHARED, rows=10**9)  # arrays of this size do not fit
    assert many.weights.shape == (10**9 + 1, 2)
    assert many.ridge[10**8] == 2.0


def test_both_print_the_same_table() -> None:
    each, shared = (
        [" ".join(line.split()) for line in str(c).splitlines()] for c in (EACH, SHARED)
    )
    names = ["network models behind", "gaussian 1 1.0", "laplace 2 0.0", ""]
    assert each == [*names, "widths rows", "leverage 2", "leverage × level (+1) 1"]
    names = ["network models behind", "gaussian 0 1.0", "laplace 3 0.0", ""]
    assert shared[:-1] == [*names, "widths rows", "learnt 3", ""]
    assert "on 1,500 rows set aside; 12 landmark features" in shared[-1]


def test_records_are_compared_by_their_numbers() -> None:
    assert replace(EACH, each_weights=EACH.each_weights.copy()) == EACH
    assert EACH != SHARED
    assert replace(EACH, each_ridge=EACH.ridge * (1 + 1e-9)) != EACH
    assert EACH != "another type"
