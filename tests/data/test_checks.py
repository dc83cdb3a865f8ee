"""Checks of settings: each names the argument, whatever the value is."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lazyknife.data import checks

ODD = [
    *(None, "no", b"auto", 1j, [], {}, (), [0.1], np.array([0.1, 0.2]), np.array([]), object()),
    *(torch.tensor(0.3), torch.ones(2), pd.NA, int, np.array(0.3), True),
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(type(value)))
@pytest.mark.parametrize(
    "check",
    [
        checks.check_real,
        checks.check_positive,
        checks.check_reasonable,
        checks.check_not_negative,
        checks.check_fraction,
        checks.check_level,
        checks.check_positive_int,
        lambda name, value: checks.check_between(name, value, (0, 1), "reason"),
    ],
)
def test_what_is_no_number_is_refused(check, value):
    with pytest.raises(TypeError, match=r"^size=.*: give a (whole )?number"):
        check("size", value)


@pytest.mark.parametrize(
    "check",
    [
        checks.check_real,
        checks.check_positive_int,
        checks.check_flag,
        lambda name, value: checks.check_choice(name, value, ["a"]),
    ],
)
def test_values_of_several_lines_are_shown_in_one(check):
    with pytest.raises((TypeError, ValueError)) as caught:
        check("size", np.zeros((3, 2)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [v for v in ODD if not isinstance(v, str)], ids=lambda v: str(type(v))
)
def test_a_choice_is_one_of_the_strings(value):
    with pytest.raises(ValueError, match=r"kind=.*choose from 'a', 'b'"):
        checks.check_choice("kind", value, ["a", "b"])
    checks.check_choice("kind", np.str_("a"), ["a", "b"])


REASONABLE = r"from 1e-100 to 1e\+100"
OUTSIDE = {
    checks.check_real: ([math.inf, -math.inf, math.nan, 10**400, -(10**400)], "finite"),
    checks.check_reasonable: ([5e-324, 1e-101, 1e101, 1.7e308], REASONABLE),  # squares overflow
    checks.check_positive_int: ([0, -3, 2**53 + 1, 10**400], "whole number of at"),
    checks.check_level: ([0.0, 1.0, 1e-16, 1e-320], ""),  # no number of rows reaches those
}


@pytest.mark.parametrize(
    ("check", "value", "words"),
    [(check, value, words) for check, (values, words) in OUTSIDE.items() for value in values],
)
def test_numbers_out_of_range_are_refused(check, value, words):
    with pytest.raises(ValueError, match=rf"size=.*{words}"):
        check("size", value)


def test_numbers_in_range_are_returned():
    assert checks.check_reasonable("size", 1e-99) == 1e-99
    assert checks.check_positive_int("rows", np.int64(7)) == 7
    assert checks.check_flag("flag", np.True_)
    assert not checks.check_flag("flag", False)


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, np.array([True]), []])
def test_only_true_and_false_are_flags(value):
    with pytest.raises(TypeError, match=r"flag=.*True or False"):
        checks.check_flag("flag", value)
