"""Saved models predict the same bits as the models that were saved."""

import copy
import importlib
import io
import json
import os
import pickle
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load, save, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, RobustScaler
from torch import nn

import lazyknife as lk
from fuzzing import patience
from lazyknife.compute import Machine
from lazyknife.estimators.saving import SCHEMA, _describe, _machine
from tangents import tied_table
from zoo import Draws, tied

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(30, 3)), RNG.normal(size=(12, 3))
y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=30)
COUNTS = np.round(np.abs(3 * y))
LEVELS = [0.1, 0.3]
SMALL = lk.mlp((4,), "tanh")


def plain_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def lazy(**settings):
    return lk.LazyJackknifeRegressor(**{"random_state": 0, "device": "cpu"} | settings)


def trained(kind, **settings):
    return kind(SMALL, epochs=1, random_state=0, **settings)


MODELS = {
    "default": lazy(),
    "default, one λ": lazy(ridge=1.0, feature_weights=None),
    "default, little memory": lazy(memory_budget=100_000),
    **{f"default, {c}": lazy(construction=c) for c in ("full", "cv+", "split")},
    "candidates": lazy(network=[plain_network(), SMALL, lk.wide("laplace", 0.5)]),
    "one network": lazy(network=SMALL),
    "module": lazy(network=plain_network()),
    "leverage": lazy(network=SMALL, widths="leverage"),
    **{c: lazy(network=SMALL, construction=c) for c in ("full", "cv+")},
    "sketch": lazy(network=SMALL, features=lk.Sketch(6)),
    "primal": lazy(network=lk.mlp(()), widths="constant"),
    "windows": lazy(network=lk.mlp(()), ridge=1.0, fit_intercept=False, widths="constant"),
    "network readout": lazy(network=SMALL, readout="network"),
    "starts": lazy(network=SMALL, n_starts=3),
    "last layer": lazy(network=SMALL, parameters="last"),
    "little memory": lazy(network=SMALL, memory_budget=30_000),
    "skip": lazy(network=lk.mlp((4,), skip=True), ridge=1.0, fit_intercept=False, nu=0.1),
    "dpsgd": lazy(network=SMALL, base=lk.DPSGD(0.5, 0.05, epochs=2)),
    "paper": lk.DPLazyPI(random_state=0),
    "split": lazy(network=SMALL, base=lk.Split(training=lk.Plain(epochs=1))),
    "perturbed": lazy(network=SMALL, base=lk.Perturbed(0.1, epsilon=1.0)),
    "log": lazy(network=SMALL, target_transform="symlog", bounds=(-9, None)),
    "huber": lazy(network=SMALL, loss=lk.Huber(delta=2.0)),
    "poisson": lazy(network=SMALL, loss="poisson"),
    "standardize": lazy(scaling="standardize"),
    "symlog": lazy(network=SMALL, scaling="symlog"),
    "robust": lazy(scaling=RobustScaler()),
    "seeded": lazy(network=SMALL, random_state=np.random.RandomState(3)),
    "refits": trained(lk.JackknifeRegressor),
    "refits, naive": trained(lk.JackknifeRegressor, construction="naive"),
    "refits, cv+": trained(lk.CVPlusRegressor, folds=4),
    "split conformal": trained(lk.SplitConformalRegressor),
}
POOLED = {"standardize", "robust"}
pytestmark = pytest.mark.filterwarnings("ignore")  # what models say of few rows is tested elsewhere


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Budgets that are small for 30 rows."""
    monkeypatch.setattr(lk.compute, "LEAST_BUDGET", 1)


def fitted(name):
    target = COUNTS if name == "poisson" else y
    pool = NEW if name in POOLED else None
    return clone(MODELS[name]).fit(X, target, X_pool=pool)


def assert_same(one, other, rows=NEW):
    """Equal bits of everything that a model tells."""
    assert np.array_equal(one.predict(rows), other.predict(rows))
    for levels in (None, LEVELS):
        first, second = (model.predict_interval(rows, alpha=levels) for model in (one, other))
        assert np.array_equal(first.point, second.point)
        assert np.array_equal(first.to_numpy(), second.to_numpy())
    assert one.certificate_ == other.certificate_
    assert repr(one.certify(alpha=0.25)) == repr(other.certify(alpha=0.25))


@pytest.fixture
def reloaded(tmp_path):
    """Save a model, and load it with what has to be passed again."""

    def load_again(model, **given):
        model.save(tmp_path / "m.lk")
        return type(model).load(tmp_path / "m.lk", **given)

    return load_again


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_predict_the_same_bits(name, reloaded):
    model = fitted(name)
    model.predict_interval(NEW)  # what a prediction keeps for later does not matter
    again = reloaded(model)
    assert_same(model, again)
    assert vars(again).keys() == vars(model).keys()
    assert _describe(again.get_params()) == _describe(model.get_params())
    assert _describe(clone(again).get_params()) == _describe(model.get_params())
    assert np.array_equal(again.loo_.residuals, model.loo_.residuals, equal_nan=True)
    if hasattr(model, "choice_"):
        assert str(again.choice_) == str(model.choice_)
    assert_same(model, reloaded(again))


# "\ud800" is half of a character, as in a name of a file that is not UTF-8.
FRAME = pandas.DataFrame(
    {
        "size": X[:, 0],
        "kind": pandas.Series(["a", "b", "\ud800"] * 10, dtype=object),
        "day": pandas.date_range("2024-01-01", periods=30),
        "gaps": np.where(X[:, 1] > 1, np.nan, X[:, 1]),
        "flag": X[:, 2] > 0,
    }
)
NUMBERS = pandas.DataFrame(X, columns=["a", "b", "c"])


@pytest.mark.parametrize("network", [None, SMALL], ids=["default", "one network"])
def test_frames_keep_their_columns_and_names(network, reloaded):
    model = lazy(network=network, encoding=lk.TableEncoder(categorical=["flag"])).fit(FRAME, y)
    again = reloaded(model)
    assert_same(model, again, FRAME)
    assert again.reader_ == model.reader_
    assert again.encoding.categorical == ["flag"]
    for scaling in (None, RobustScaler()):
        model = lazy(network=SMALL, scaling=scaling).fit(NUMBERS, y)
        again = reloaded(model)
        assert_same(model, again, NUMBERS)
        swapped = again.predict(NUMBERS[["b", "a", "c"]])
        np.testing.assert_array_equal(swapped, model.predict(NUMBERS))
        with pytest.raises(ValueError, match="no column 'c'"):
            again.predict(NUMBERS[["a", "b"]])


def test_settings_may_be_set_after_the_fit_and_a_pool_is_remembered(reloaded):
    model = fitted("one network").set_params(alpha=0.3, nu=0.5)
    again = reloaded(model)
    assert (again.alpha, again.nu) == (0.3, 0.5)
    assert_same(model, again)
    assert_same(clone(again).fit(X, y), model)  # and a clone of it fits the same
    later = clone(model).set_params(ridge=2.0).fit(X, y)
    assert_same(later, reloaded(later))
    with pytest.raises(NotFittedError, match="ridge=3"):
        reloaded(later.set_params(ridge=3.0))
    with pytest.warns(UserWarning, match="X_pool"):
        reloaded(fitted("standardize")).predict_interval(NEW + 1)


# Networks and functions of the user's own.


class Own(nn.Module):
    def __init__(self, width=4, factor=1.0):
        super().__init__()
        self.body, self.head = nn.Linear(3, width), nn.Linear(width, 1)
        self.factor = factor

    def forward(self, x):
        return self.head(torch.relu(self.factor * self.body(x)))


class OwnLoss(lk.Squared):
    pass


class OneSetting(lk.LazyJackknifeRegressor):
    def __init__(self, ridge, alpha=0.1):
        super().__init__(ridge=ridge, alpha=alpha, random_state=0)


def own_network(width=4, factor=1.0):
    torch.manual_seed(0)
    return Own(width, factor)


def kernel(left, right):
    return torch.exp(-torch.cdist(left, right))


def other_kernel(left, right):
    return torch.exp(-2 * torch.cdist(left, right))


def hooked_network():
    network = plain_network()
    network[0].register_forward_hook(lambda layer, args, result: 2 * result)
    return network


def network_with_a_method_of_its_own():
    network = plain_network()
    network[1].forward = torch.sin
    return network


def only_head(name, parameter):
    return name.startswith("head")


def new_network(features):
    return Own()


GIVEN = {
    "module": lambda: {"network": own_network()},
    "a hook": lambda: {"network": hooked_network()},
    "a method": lambda: {"network": network_with_a_method_of_its_own()},
    "candidates": lambda: {"network": [own_network(), SMALL, lk.wide(kernel)]},
    "kernel, full": lambda: {"network": [lk.wide(kernel), own_network()], "construction": "full"},
    "parameters": lambda: {"network": own_network(), "parameters": only_head},
    "loss": lambda: {"loss": OwnLoss(), "ridge": 1.0},
    "target_transform": lambda: {"target_transform": (np.sinh, np.arcsinh)},
    "starts": lambda: {"network": new_network, "n_starts": 2},
    "base": lambda: {"network": own_network(), "base": lk.DPSGD(0.5, 0.05, epochs=1)},
}
CODE = ("network", "parameters", "loss", "target_transform")


@pytest.mark.parametrize("name", GIVEN)
def test_code_is_passed_again(name, reloaded):
    model = lazy(**{"network": SMALL} | GIVEN[name]()).fit(X, y)
    needed = {key: value for key, value in GIVEN[name]().items() if key in CODE}
    with pytest.raises(ValueError, match=f"no code.*pass load\\('m.lk', {next(iter(needed))}=..."):
        reloaded(model)
    again = reloaded(model, **needed)
    assert_same(model, again)
    assert all(getattr(again, key) is value for key, value in needed.items())


class Fixed(Own):
    """Statistics and numbers that are no parameters, and a layer that does not move."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4).eval()
        self.norm.running_mean.normal_()
        self.register_buffer("shift", torch.randn(1), persistent=False)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.body(x)))) + self.shift


class Lazy(Own):
    def __init__(self):
        super().__init__()
        self.body = nn.LazyLinear(4)


CODES = torch.arange(60).reshape(30, 2) % 5


@pytest.mark.parametrize("estimator", [lazy, partial(lk.JackknifeRegressor, epochs=1)])
@pytest.mark.parametrize("kind", [Own, Fixed, Lazy, Draws, tied, tied_table])
def test_weights_of_networks_of_any_kind_come_from_the_file(kind, estimator, reloaded):
    torch.manual_seed(0)
    rows = CODES if kind is tied_table else torch.from_numpy(X)
    model = estimator(network=kind(), random_state=0).fit(rows, y)
    other = kind()
    before = copy.deepcopy(other.state_dict())
    assert_same(model, reloaded(model, network=other), rows)
    if kind is not Lazy:
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (own_network, {"network": own_network(width=5)}, "(?s)network=.*body.*out_features=4"),
        (own_network, {"network": SMALL}, "(?s)network=.*is not what the model was fitted with"),
        (own_network, {"network": own_network(factor=2.0)}, "predicts .* where it predicted"),
        (own_network, {"nothing": 1}, "nothing=1 is not what .* fitted with: no setting"),
        (own_network, {"ridge": 3.0}, r"ridge=3\.0 is not what the .* fitted with: \"auto\""),
        (
            lambda: lk.wide(kernel),
            {"network": lk.wide(other_kernel)},
            'other_kernel.* is not what .*"kind": "kernel"',
        ),
    ],
)
def test_other_settings_than_those_of_the_fit_are_refused(saved, given, message, reloaded):
    model = lazy(network=saved()).fit(X, y)
    with pytest.raises(ValueError, match=message):
        reloaded(model, **{"network": saved()} | given)


@pytest.mark.parametrize(
    "transformer", [make_pipeline(RobustScaler(), PowerTransformer()), FunctionTransformer(np.tanh)]
)
def test_other_transformers_are_passed_fitted(transformer, reloaded):
    model = lazy(network=SMALL, scaling=transformer).fit(X, y, X_pool=NEW)
    with pytest.raises(ValueError, match=r"with scaling \(fitted, of class [PF]"):
        reloaded(model)
    assert_same(model, reloaded(model, scaling=model.scaling_.transformer))
    if hasattr(transformer, "steps"):
        with pytest.raises(ValueError, match="is not what the model was fitted with"):
            reloaded(model, scaling=clone(transformer).fit(X))


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.lk"
    model = fitted("one network")
    model.save(path)
    before = path.read_bytes()
    model.base_ = replace(model.base_, details={"made by": lambda: 1})
    with pytest.raises(ValueError, match=r"base_\.details\.made by cannot be saved"):
        model.save(path)
    assert path.read_bytes() == before
    with pytest.raises(NotFittedError):
        lazy().save(path)


# Files that are not what was saved.


def rewritten(path, change):
    """The file with a changed document, and a hash that fits."""
    tensors = load(path.read_bytes().partition(b"\n")[2])
    document = json.loads(tensors["document"].numpy().tobytes())
    text = json.dumps(change(document) or document).encode()
    tensors["document"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    content = save(tensors)
    path.write_bytes(SCHEMA + sha256(content).hexdigest().encode() + b"\n" + content)


@contextmanager
def little_room(size=2**30):
    """Within the block no more memory than this can be reserved, where a system has such limits."""
    if sys.platform != "linux":
        yield
        return
    resource = importlib.import_module("resource")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def saved(tmp_path):
    fitted("one network").save(tmp_path / "m.lk")
    return tmp_path / "m.lk"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.lk")
    for path in (tmp_path, tmp_path / "pipe.lk"):
        with patience(20), pytest.raises(ValueError, match="is not a file: give one that model"):
            lk.LazyJackknifeRegressor.load(path)
    with pytest.raises(FileNotFoundError):
        lk.LazyJackknifeRegressor.load(tmp_path / "missing.lk")


def test_files_of_other_classes_and_versions_say_so(saved, reloaded):
    model = OneSetting(1.0).fit(X, y)
    assert_same(model, reloaded(model))
    with pytest.raises(ValueError, match="holds a OneSetting, not a LazyJackknifeRegr"):
        lk.LazyJackknifeRegressor.load(saved)
    fitted("one network").save(saved)

    def of_another_version(document):
        document["lazyknife"] = "99.0"
        entries(document, "LinearModels")[0]["extra"] = 1

    def message():
        with pytest.raises(ValueError, match=r"m\.lk") as caught:
            lk.LazyJackknifeRegressor.load(saved)
        return str(caught.value)

    rewritten(saved, of_another_version)
    assert "written by lazyknife 99.0, and this is" in message()
    saved.write_bytes(saved.read_bytes().replace(SCHEMA, b"lazyknife-model-99 ", 1))
    assert re.search(r"starts with b'lazyknife-model-99 .*that wrote it", message())
    save_file({"a": torch.ones(2)}, saved, {"format": "lazyknife model", "schema": "1"})
    assert re.search("not a model that .* or fit and save again", message())


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def damaged_files(whole, count):
    """Every byte of the header changed, other contents, and files changed in some place."""
    for k in range(len(SCHEMA) + 65 + 8):
        yield whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :]
    torch.save(Evil(), foreign := io.BytesIO())
    yield from (b"", b"x", b"y,x\n1,2\n" * 10, bytes(1000), b"\xff" * 1000)
    yield from (pickle.dumps([1]), pickle.dumps(Evil()), foreign.getvalue())
    rng = np.random.default_rng(0)
    for k in range(count):
        place, length = int(rng.integers(len(whole))), int(rng.integers(1, 40))
        before, after, noise = whole[:place], whole[place + length :], rng.bytes(length)
        one = bytes([whole[place] ^ (1 << k % 8)]) + whole[place + 1 :]
        yield before + (b"", one, noise + after, after, noise + whole[place:])[k % 5]


def test_damaged_files_load_nothing_and_pickles_do_not_run(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    whole = saved.read_bytes()
    for text in damaged_files(whole, 300):
        if text != whole:  # noise may be what was there
            saved.write_bytes(text)
            with pytest.raises(ValueError, match=r"m\.lk is damaged|m\.lk: not a model"):
                lk.LazyJackknifeRegressor.load(saved)
    assert not Path("evil").exists()


def entries(document, kind):
    return [parts for name, parts in document["objects"] if name.endswith(kind)]


def larger_tensor(document):
    _, (shape,), _, _ = entries(document, "tensor")[-1]
    document["objects"][shape][1] = [10**10]


def add(*made):
    """Add objects, which know the number of the first of them."""
    return lambda document: document["objects"].extend(
        entry(len(document["objects"])) if callable(entry) else entry for entry in made
    )


FORGED = {
    "a method as an attribute": lambda document: document["state"].update(predict="text"),
    "another field": lambda document: entries(document, "LinearModels")[0].update(extra=1),
    "a replaced method": lambda document: entries(document, "linear.Linear")[0].update(forward="x"),
    "another setting": lambda document: document["settings"].update(shell="rm"),
    "no settings": lambda document: document.pop("settings") and document,
    "no document": lambda document: [document],
    "a larger tensor": larger_tensor,
    "a list of itself": add(lambda first: ["builtins.list", [[first]]]),
    "wide text": add(
        ["builtins.list", ["a"]],
        lambda first: ["numpy.ndarray", [[first], "U500000000"]],
        lambda first: ["builtins.dict", [[first + 1]]],  # fails: text is no item
    ),
    # Objects that no model has.
    "another class": add(["subprocess.Popen", ["ls"]]),
    "another function": add(["builtins.function", ["eval"]]),
    "a type of torch's": add(["torch.dtype", ["_inductor"]]),
    "a device": add(["torch.device", ["nowhere"]]),
    "a missing tensor": add(["tensor", ["none", [], [], "cpu"]]),
    "a given setting": add(["given", ["network"]]),
    "a field of a record": add(
        ["lazyknife.data.own_scaling.FeatureScale", {"center": 1, "scale": 2, "code": 3}]
    ),
    "a transformer": add(["sklearn.preprocessing._data.StandardScaler", {"transform": "x"}]),
    "a large layer": add(["torch.nn.modules.linear.Linear", [1, 10**12]]),
    "nothing": add([]),
    "no list": add({}),
}


@pytest.mark.parametrize("change", FORGED)
def test_forged_files_are_refused_in_words(change, saved):
    rewritten(saved, FORGED[change])
    with (
        little_room(),
        pytest.raises(ValueError, match=r"(?s)is damaged or was .* nothing was loaded"),
    ):
        lk.LazyJackknifeRegressor.load(saved)


def test_devices_are_replaced_and_budgets_fit_the_memory_that_is_there(saved):
    """A file from a GPU, made of one from the CPU."""

    def on_gpu(document):
        for parts in entries(document, "torch.device"):
            parts[0] = "cuda:1"
        document["settings"]["device"] = "cuda:1"

    rewritten(saved, on_gpu)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"on cuda:1, which is not here: pass map_location='c"):
            lk.LazyJackknifeRegressor.load(saved)
    for where in ("cpu", torch.device("cpu")):
        again = lk.LazyJackknifeRegressor.load(saved, map_location=where)
        assert again.device == "cpu"
        assert again.loo_.full.basis.tangent.machine.device == torch.device("cpu")
        assert_same(again, fitted("one network"))
    with pytest.raises(ValueError, match=r"^device='nowhere'"):
        lk.LazyJackknifeRegressor.load(saved, map_location="nowhere")
    assert _machine(**vars(Machine(budget=1000))) == Machine(budget=1000)
    assert _machine(**vars(Machine(budget=2**62))).budget < 2**60


def test_names_of_files(tmp_path):
    model = fitted("one network")
    for name in ("a\0b.lk", *["\ud800.lk"] * (os.name == "posix")):
        for call in (model.save, lk.LazyJackknifeRegressor.load):
            with pytest.raises(ValueError, match=r"^'.*' is not the name of a file \(.*\)$"):
                call(tmp_path / name)
