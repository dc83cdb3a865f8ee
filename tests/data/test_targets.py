import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lazyknife.data.targets import TARGETS, find_target

INSIDE = {
    "log": st.floats(1e-300, 1e300),
    "log1p": st.floats(-1 + 1e-15, 1e300),
    "logit": st.floats(5e-324, 1 - 2**-53),
    "symlog": st.floats(-1e300, 1e300),
}


def ends(target, lower, upper):
    found = target.ends(torch.tensor([lower]), torch.tensor([upper]))
    return tuple(float(end) for end in found)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_a_target_at_the_end_of_an_interval_is_not_lost_by_rounding(name, data):
    """An interval whose end is the rounded image of y contains y when it is transformed back."""
    y = np.sort(data.draw(st.lists(INSIDE[name], min_size=2, max_size=2)))
    target = find_target(name, None).check(y)
    z = torch.from_numpy(target.forward(y))
    lower, upper = (float(end) for end in target.ends(z[0], z[1]))
    assert lower <= y[0]
    assert y[1] <= upper
    inner = float(target.point(z[0]))
    assert math.isclose(inner, y[0], rel_tol=1e-9, abs_tol=1e-12 * max(1.0, abs(y[0])))


def test_infinite_ends_become_the_limits_of_the_inverse():
    limits = {"log": (0, math.inf), "log1p": (-1, math.inf), "logit": (0, 1)}
    for name in TARGETS:
        for end in (math.inf, 2000.0):
            found = ends(find_target(name, None), -end, end)
            assert found == limits.get(name, (-math.inf, math.inf))


def test_bounds_move_ends_and_points():
    target = find_target(None, (0, 10))
    assert ends(target, -13.7, 4.0) == (0.0, 4.0)
    assert ends(target, 11.0, math.inf) == (10.0, 10.0)
    assert float(target.point(torch.tensor(-2.0))) == 0.0
    assert target.check(np.array([0.0, 10.0])) == target
    with pytest.raises(ValueError, match=r"bounds=\(0.0, 10.0\), but y has -3.0 in row 1"):
        target.check(np.array([1.0, -3.0]))


Y = np.array([4.0, 1.0, 9.0, 2.0])


@pytest.mark.parametrize(
    ("pair", "z", "y"),
    [
        ((np.reciprocal, np.reciprocal), (0.25, 0.5), (2.0, 4.0)),  # falls: the ends are swapped
        ((np.sqrt, lambda z: z**2 + 1e-6), (1.0, 2.0), (1.0, 4.0)),  # inexact
        ((lambda y: y - 5, lambda z: z + 5), (-5.0, -5.0), (0.0, 0.0)),  # no step is relative to 0
    ],
)
def test_ends_of_a_pair_are_rounded_outwards(pair, z, y):
    lower, upper = ends(find_target(pair, None).check(Y), *z)
    assert lower < y[0]
    assert upper > y[1]
    np.testing.assert_allclose([lower, upper], y, rtol=1e-5, atol=1e-12)


def test_ends_that_a_pair_cannot_reach_become_infinite_or_the_bounds():
    """The square of −1 is 1, but no y has a root of −1: the interval reaches down to any y."""
    target = find_target((np.sqrt, np.square), None).check(Y)
    assert ends(target, -1.0, 2.0)[0] == -math.inf
    assert ends(find_target((np.sqrt, np.square), (0, None)).check(Y), -1.0, 2.0)[0] == 0.0
    falling = find_target((lambda y: -np.sqrt(y), np.square), None).check(Y)
    assert ends(falling, -2.0, 1.0)[0] == -math.inf
    assert ends(falling, -2.0, math.inf)[0] == -math.inf
    assert math.isclose(ends(falling, -2.0, -1.0)[1], 4.0)
    assert float(target.point(torch.tensor(-1.0))) == 1.0  # of the smallest training target
    lower, upper = ends(find_target((np.log, np.exp), None).check(Y), -math.inf, math.inf)
    assert -1e-12 < lower <= 0  # rounded outwards
    assert upper == math.inf


def test_a_falling_function_exchanges_the_sides():
    rising, falling = (
        find_target(pair, None).check(Y)
        for pair in ((np.sqrt, np.square), (np.reciprocal, np.reciprocal))
    )
    for side, other in (("both", "both"), ("lower", "upper"), ("upper", "lower")):
        assert (rising.side(side), falling.side(side)) == (side, other)


@pytest.mark.parametrize("sign", [1, -1])
def test_ends_on_another_branch_of_the_inverse_become_infinite(sign):
    """1/y of y > 0 never reaches −0.1, but the inverse of −0.1 is −10, below the other end."""
    target = find_target((lambda y: sign / y, lambda z: sign / z), None).check(Y)
    z = sorted((sign * -0.1, sign / Y.max()))
    lower, upper = ends(target, *z)
    assert lower == pytest.approx(Y.max())
    assert upper == math.inf
    inside = target.point(torch.tensor([sign * -0.1], dtype=torch.float64))
    assert float(inside) == pytest.approx(Y.max())


@pytest.mark.parametrize(
    ("function", "inverse"),
    [
        (np.log, np.exp),
        (np.reciprocal, np.reciprocal),
        (lambda y: -y / 3, lambda z: -3 * z),
        (lambda y: (y**0.01 - 1) / 0.01, lambda z: (1 + 0.01 * z) ** 100),  # loses digits
        (lambda y: np.float32(y) ** 0.5, np.square),  # flat: many y have the same value
    ],
)
def test_ends_of_a_pair_contain_values_that_training_never_saw(function, inverse):
    """Also those beyond the training targets, where the inverse may round more."""
    rng = np.random.default_rng(0)
    y, new = np.exp(rng.normal(size=60)), np.exp(3 * rng.normal(size=4000))
    target = find_target((function, inverse), None).check(y)
    z = torch.from_numpy(target.forward(new))
    lower, upper = (end.numpy() for end in target.ends(z, z))
    assert (lower <= new).all()
    assert (new <= upper).all()
    np.testing.assert_allclose(lower, upper, rtol=1e-6)


LISTED = "'log', 'log1p', 'logit', 'symlog', or give a pair"
BAD = [
    (5, None, TypeError, "give a pair such as"),
    ((1, 2, 3), None, TypeError, "give a pair such as"),
    ((2, 1), None, ValueError, "lower end below"),
    ((0, "one"), None, TypeError, "give a number"),
    ((0, math.nan), None, ValueError, "finite"),
    (None, "sqrt", ValueError, LISTED),
    (None, np.log, TypeError, LISTED),
    (None, (np.log, 2), TypeError, LISTED),
    (None, 3.0, TypeError, LISTED),
]


@pytest.mark.parametrize(("bounds", "target", "error", "words"), BAD)
def test_settings_that_mean_nothing_are_refused(bounds, target, error, words):
    with pytest.raises(error, match=words):
        find_target(target, bounds)


OUTSIDE = [
    ("log", 0.0, "requires y above 0, but y has 0.0 in row 1: use 'log1p' if y can be 0"),
    ("log1p", -1.0, "requires y above -1, but y has -1.0 in row 1: use 'symlog'"),
    ("logit", 1.0, "requires y above 0 and below 1, but y has 1.0 in row 1: use bounds=(0, 1)"),
]


@pytest.mark.parametrize(("name", "bad", "words"), OUTSIDE)
def test_values_outside_the_domain_are_named(name, bad, words):
    with pytest.raises(ValueError, match=re.escape(f"target_transform={name!r} {words}")):
        find_target(name, None).check(np.array([0.5, bad]))


SHAPES = r"the function of target_transform returns shape \(\) for shape \(4,\)"
PAIRS = [
    ((lambda y: y - 1, np.exp), Y, "target_transform must undo its function, but y has 4.0"),
    ((lambda y: np.log(y - 1), np.exp), Y, "must give finite numbers, but y has 1.0 in row 1"),
    ((lambda y: np.abs(y - 3), lambda z: Y), Y, "not monotone"),
    ((np.mean, np.exp), Y, SHAPES),
    ((np.log, np.exp), np.full(3, 2.0), r"all y are 2\.0"),  # shows no direction
]


@pytest.mark.parametrize(("pair", "y", "words"), PAIRS)
def test_pairs_are_tried_on_the_training_targets(pair, y, words):
    with pytest.raises(ValueError, match=words):
        find_target(pair, None).check(y)
