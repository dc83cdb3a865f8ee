"""Settings of bases, losses and feature maps, as scikit-learn lists, copies and sets them."""

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, get_args, get_type_hints

import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import lazyknife as lk
from lazyknife.choosing.record import ChosenSettings
from lazyknife.data.scaling import TRANSFORMS
from lazyknife.data.targets import TARGETS
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.widths import WIDTHS
from lazyknife.settings import with_settings

OBJECTS = [
    *(lk.Public(), lk.DPSGD(epsilon=0.5, lr=0.1), lk.Split(0.3, lk.Plain(epochs=2)), lk.Plain()),
    *(lk.Perturbed(sensitivity=1.0, epsilon=0.1), lk.Sketch(64), lk.Huber(2.0), lk.Squared()),
]


@pytest.mark.parametrize("held", OBJECTS, ids=repr)
def test_settings_are_listed_and_make_the_same_object(held: Any) -> None:
    assert type(held)(**held.get_params(deep=False)) == held
    assert clone(held, safe=False) == held
    assert with_settings(held, {}, "base") == held
    for name in held.get_params(deep=False):
        with pytest.raises(FrozenInstanceError):
            setattr(held, name, 1.0)


def test_nested_settings_have_nested_names() -> None:
    params = lk.Split(0.3, lk.Plain(epochs=2)).get_params()
    assert params["training"] == lk.Plain(epochs=2)
    assert params["training__epochs"] == 2
    assert "training__epochs" not in lk.Split().get_params(deep=False)
    model = lk.LazyJackknifeRegressor(base=lk.Split(0.3), features=lk.Sketch(64))
    assert model.get_params()["base__training__lr"] == 1e-3
    assert model.get_params()["features__dimension"] == 64


def test_estimators_replace_what_they_hold() -> None:
    base = lk.Split(0.3)
    one, other = (lk.LazyJackknifeRegressor(base=base) for _ in range(2))
    assert one.set_params(base__training__lr=0.1, base__fraction=0.4, ridge=2.0) is one
    assert one.base == lk.Split(0.4, lk.Plain(lr=0.1))
    assert one.ridge == 2.0
    assert other.base is base == lk.Split(0.3)
    one.set_params(base__epsilon=0.1, base=lk.DPSGD())  # the object first, as in scikit-learn
    assert one.base == lk.DPSGD(epsilon=0.1)
    one.set_params(base__training=lk.Plain(), base=lk.Split(), base__training__epochs=4)
    assert one.base == lk.Split(training=lk.Plain(epochs=4))
    one.set_params(loss=lk.Huber(), loss__delta=3.0)
    assert one.loss == lk.Huber(3.0)
    one.set_params(scaling=(shared := StandardScaler()), scaling__with_mean=False)
    assert (one.scaling.with_mean, shared.with_mean) == (False, True)


BAD = {
    "base__epsilon": (None, r"base__epsilon: base=None has no settings of its own"),
    "base__epsilom": (lk.DPSGD(), r"DPSGD has no setting 'epsilom'; it has 'epsilon', 'delta'"),
    "base__lr__x": (lk.DPSGD(), r"base__lr__x: base__lr=None has no settings"),
    "base__training__x": (lk.Split(), r"base__training__x: Plain has no setting 'x'"),
    "base__x": (lk.Public(), r"Public has no setting 'x'; it has none"),
    "basis__x": (None, r"Invalid parameter 'basis'"),
    "base__delta": (lk.DPSGD(), r"delta=0: give a number strictly between 0 and 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_names_and_values_are_refused(name: str) -> None:
    base, message = BAD[name]
    model = lk.LazyJackknifeRegressor(base=base)
    with pytest.raises(ValueError, match=message):
        model.set_params(**{name: 0})
    assert model.base is base


class Own(lk.Public):
    """A base of a user's, whose settings are not those of a dataclass."""

    def __init__(self, strength: float) -> None:
        object.__setattr__(self, "strength", strength)


@dataclass
class Mutable(lk.BaseMethod):
    """A base of a user's that is not frozen."""

    strength: float = 1.0

    def dependence(self, n: int, n_parameters: int | None = None) -> None:
        return None

    def learn(self, task: Any) -> Any:
        raise NotImplementedError


def test_a_base_of_ones_own_is_copied_whole() -> None:
    assert clone(lk.LazyJackknifeRegressor(base=Own(3.0))).base.strength == 3.0
    model = lk.LazyJackknifeRegressor(base=Mutable())
    again = clone(model).set_params(base__strength=2.0)
    assert (again.base.strength, model.base.strength) == (2.0, 1.0)


# What a type checker tells: names of settings, and what methods return.


def names(annotation: object) -> set[str]:
    """All names in a literal, or in the literals of a union."""
    found = get_args(annotation)
    return {name for each in found for name in ({each} if isinstance(each, str) else names(each))}


def test_literals_are_the_keys_of_the_dicts_of_variants() -> None:
    typed = get_type_hints(lk.LazyJackknifeRegressor)
    for setting, known in (
        ("construction", CONSTRUCTIONS.keys() | {"auto"}),
        ("readout", READOUTS),
        ("widths", WIDTHS),
        ("loss", LOSSES),
        ("scaling", TRANSFORMS.keys() - {None}),
        ("target_transform", TARGETS.keys() | {"auto"}),
    ):
        assert names(typed[setting]) == set(known), setting
    allowed = {name for name, kind in CONSTRUCTIONS.items() if kind.any_models}
    assert names(get_type_hints(lk.JackknifeRegressor)["construction"]) == allowed
    assert typed["choice_"] is ChosenSettings
    asked = get_type_hints(lk.LazyJackknifeRegressor.predict_interval)
    assert lk.Intervals in get_args(asked["return"])
