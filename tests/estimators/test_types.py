"""What a type checker tells of the estimators: names of settings, and what methods return."""

from typing import get_args, get_type_hints

import pytest

import lazyknife as lk
from lazyknife.choosing.record import ChosenSettings
from lazyknife.data.scaling import TRANSFORMS
from lazyknife.data.targets import TARGETS
from lazyknife.estimators import base
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.widths import WIDTHS


def names(annotation: object) -> set[str]:
    """All names in a literal, or in the literals of a union."""
    found = get_args(annotation)
    return {name for each in found for name in ({each} if isinstance(each, str) else names(each))}


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        ("construction", CONSTRUCTIONS),
        ("readout", READOUTS),
        ("widths", WIDTHS),
        ("loss", LOSSES),
        ("scaling", {name for name in TRANSFORMS if name is not None}),
        ("target_transform", {*TARGETS, "auto"}),
    ],
)
def test_literals_are_the_keys_of_the_dicts_of_variants(setting: str, known: object) -> None:
    assert names(get_type_hints(lk.LazyJackknifeRegressor)[setting]) == set(known)


def test_refits_take_the_constructions_of_any_models() -> None:
    allowed = {name for name, kind in CONSTRUCTIONS.items() if kind.any_models}
    assert names(get_type_hints(lk.JackknifeRegressor)["construction"]) == allowed


def test_intervals_and_choices_are_typed() -> None:
    assert get_type_hints(lk.LazyJackknifeRegressor)["choice_"] is ChosenSettings
    assert lk.Intervals in get_args(
        get_type_hints(base.IntervalRegressor.predict_interval)["return"]
    )
