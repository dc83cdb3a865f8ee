"""Saved models predict the same bits as the models that were saved."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pandas
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, RobustScaler
from torch import nn

from fuzzing import patience
from lazyknife import (
    DPSGD,
    CVPlusRegressor,
    DPLazyPI,
    Huber,
    JackknifeRegressor,
    LazyJackknifeRegressor,
    Perturbed,
    Plain,
    Sketch,
    Split,
    SplitConformalRegressor,
    Squared,
    TableEncoder,
    compute,
    mlp,
    wide,
)
from lazyknife.compute import Machine
from lazyknife.estimators.known import KNOWN, _machine
from lazyknife.estimators.saved import _rows_like
from lazyknife.saving import SCHEMA, Codec, describe

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(30, 3)), RNG.normal(size=(12, 3))
y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=30)
COUNTS = np.round(np.abs(3 * y))
LEVELS = [0.1, 0.3]
SMALL = mlp((4,), "tanh")


def plain_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def lazy(**settings):
    return LazyJackknifeRegressor(**{"random_state": 0, "device": "cpu"} | settings)


def trained(kind, **settings):
    return kind(SMALL, epochs=1, random_state=0, **settings)


MODELS = {
    "default": lazy(),
    "default, one λ": lazy(ridge=1.0, relevance=None),
    "default, little memory": lazy(memory_budget=100_000),
    "default, minmax": lazy(construction="minmax", widths="constant"),
    "default, full": lazy(construction="full"),
    "default, cv+": lazy(construction="cv+"),
    "candidates": lazy(network=[plain_network(), SMALL, wide("laplace", 0.5)]),
    "candidates, full": lazy(network=[SMALL, wide("relu")], construction="full"),
    "one network": lazy(network=SMALL),
    "module": lazy(network=plain_network()),
    "leverage": lazy(network=SMALL, widths="leverage"),
    "full": lazy(network=SMALL, construction="full"),
    "cv+": lazy(network=SMALL, construction="cv+"),
    "minmax": lazy(network=SMALL, construction="minmax"),
    "jackknife": lazy(network=SMALL, construction="jackknife"),
    "naive": lazy(network=SMALL, construction="naive"),
    "sketch": lazy(network=SMALL, features=Sketch(6)),
    "primal": lazy(network=mlp(()), widths="constant"),
    "network readout": lazy(network=SMALL, readout="network"),
    "network readout, cv+": lazy(network=SMALL, readout="network", construction="cv+"),
    "starts": lazy(network=SMALL, starts=3),
    "last layer": lazy(network=SMALL, parameters="last"),
    "some layers": lazy(network=SMALL, parameters=["2.*"]),
    "mixed": lazy(network=SMALL, precision="mixed"),
    "float32": lazy(network=SMALL, precision="float32"),
    "little memory": lazy(network=SMALL, memory_budget=30_000),
    "skip": lazy(network=mlp((4,), skip=True), ridge=1.0, intercept=False, nu=0.1),
    "dpsgd": lazy(network=SMALL, base=DPSGD(0.5, 0.05, epochs=2)),
    "paper": DPLazyPI(random_state=0),
    "split": lazy(network=SMALL, base=Split(training=Plain(epochs=1))),
    "perturbed": lazy(network=SMALL, base=Perturbed(0.1, epsilon=1.0)),
    "plain": lazy(network=SMALL, base=Plain(epochs=1)),
    "log": lazy(network=SMALL, target="symlog", bounds=(-9, None)),
    "huber": lazy(network=SMALL, loss=Huber(delta=2.0)),
    "poisson": lazy(network=SMALL, loss="poisson"),
    "standardize": lazy(scaling="standardize"),
    "standardize, one network": lazy(network=SMALL, scaling="standardize"),
    "symlog": lazy(network=SMALL, scaling="symlog"),
    "robust": lazy(scaling=RobustScaler()),
    "seeded": lazy(network=SMALL, random_state=np.random.RandomState(3)),
    "refits": trained(JackknifeRegressor),
    "refits, naive": trained(JackknifeRegressor, construction="naive"),
    "refits, cv+": trained(CVPlusRegressor, folds=4),
    "split conformal": trained(SplitConformalRegressor),
}
POOLED = {"standardize", "standardize, one network", "robust"}
pytestmark = pytest.mark.filterwarnings("ignore")  # what models say of few rows is tested elsewhere


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Budgets that are small for 30 rows."""
    monkeypatch.setattr(compute, "LEAST_BUDGET", 1)


def fitted(name):
    target = COUNTS if name == "poisson" else y
    pool = NEW if name in POOLED else None
    return clone(MODELS[name]).fit(X, target, X_pool=pool)


def assert_same(one, other, rows=NEW):
    """Equal bits of everything that a model tells."""
    assert np.array_equal(one.predict(rows), other.predict(rows))
    for levels in (None, LEVELS):
        first, second = (model.predict_interval(rows, alpha=levels) for model in (one, other))
        assert all(
            np.array_equal(getattr(first, end), getattr(second, end))
            for end in ("point", "lower", "upper")
        )
    assert one.certificate_ == other.certificate_
    assert repr(one.certify(alpha=0.25)) == repr(other.certify(alpha=0.25))


@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_predict_the_same_bits(name, tmp_path):
    model = fitted(name)
    model.predict_interval(NEW)  # what a prediction keeps for later does not matter
    model.save(tmp_path / "m.lk")
    again = type(model).load(tmp_path / "m.lk")
    assert_same(model, again)
    assert vars(again).keys() == vars(model).keys()
    assert describe(again.get_params()) == describe(model.get_params())
    assert describe(clone(again).get_params()) == describe(model.get_params())
    assert np.array_equal(again.loo_.residuals, model.loo_.residuals, equal_nan=True)
    if hasattr(model, "choice_"):
        assert str(again.choice_) == str(model.choice_)
    again.save(tmp_path / "again.lk")
    assert_same(model, type(model).load(tmp_path / "again.lk"))


def test_a_clone_of_a_loaded_model_fits_the_same(tmp_path):
    model = fitted("one network")
    model.save(tmp_path / "m.lk")
    assert_same(clone(LazyJackknifeRegressor.load(tmp_path / "m.lk")).fit(X, y), model)


OTHER_PROCESS = """
import sys
import numpy as np
from lazyknife import LazyJackknifeRegressor
rows, found = np.load(sys.argv[1]), {}
for name in sys.argv[3:]:
    model = LazyJackknifeRegressor.load(name)
    result = model.predict_interval(rows, alpha=[0.1, 0.3])
    found |= {name + end: getattr(result, end) for end in ("point", "lower", "upper")}
    print(model.certificate_)
np.savez(sys.argv[2], **found)
"""


@pytest.mark.slow
def test_another_process_predicts_the_same_bits(tmp_path):
    models = {name: fitted(name) for name in ("default", "default, full", "one network")}
    for name, model in models.items():
        model.save(tmp_path / name)
    np.save(tmp_path / "new.npy", NEW)
    ran = [sys.executable, "-c", OTHER_PROCESS, "new.npy", "found.npz", *models]
    told = subprocess.run(ran, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    with np.load(tmp_path / "found.npz") as found:
        for name, model in models.items():
            expected = model.predict_interval(NEW, alpha=LEVELS)
            for end in ("point", "lower", "upper"):
                assert np.array_equal(found[name + end], getattr(expected, end))
    assert told.strip() == "\n".join(str(model.certificate_) for model in models.values())


FRAME = pandas.DataFrame(
    {
        "size": X[:, 0],
        "kind": ["a", "b", "c"] * 10,
        "day": pandas.date_range("2024-01-01", periods=30),
        "gaps": np.where(X[:, 1] > 1, np.nan, X[:, 1]),
        "flag": X[:, 2] > 0,
    }
)


@pytest.mark.parametrize("network", [None, SMALL], ids=["default", "one network"])
def test_frames_with_columns_of_any_kind(network, tmp_path):
    model = lazy(network=network, encoding=TableEncoder(categorical=["flag"])).fit(FRAME, y)
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert_same(model, again, FRAME.assign(kind="b"))
    assert again.reader_ == model.reader_
    assert again.encoding.categorical == ["flag"]


def test_text_that_is_no_unicode_is_saved(tmp_path):
    kinds = ["u", "\ud800"] * 15  # half of a character, as in a name of a file that is not UTF-8
    frame = pandas.DataFrame({"a": X[:, 0], "kind": pandas.Series(kinds, dtype=object)})
    model = lazy().fit(frame, y)
    model.save(tmp_path / "m.lk")
    assert_same(model, LazyJackknifeRegressor.load(tmp_path / "m.lk"), frame[:12])


def test_frames_keep_their_names(tmp_path):
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = lazy(network=SMALL).fit(frame, y)
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert list(again.feature_names_in_) == ["a", "b", "c"]
    assert_same(model, again, frame)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["b", "a", "c"]])


def test_a_pool_is_remembered(tmp_path):
    model = fitted("standardize")
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert again.scaling_.pool == model.scaling_.pool
    with pytest.warns(UserWarning, match="X_pool"):
        again.predict_interval(NEW + 1)


def test_settings_may_be_set_after_the_fit(tmp_path):
    model = fitted("one network").set_params(alpha=0.3, nu=0.5)
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert (again.alpha, again.nu) == (0.3, 0.5)
    assert_same(model, again)
    later = clone(model).set_params(ridge=2.0).fit(X, y)
    later.save(tmp_path / "m.lk")
    assert_same(later, LazyJackknifeRegressor.load(tmp_path / "m.lk"))
    with pytest.raises(NotFittedError, match="ridge=3"):
        later.set_params(ridge=3.0).save(tmp_path / "m.lk")


def test_what_models_share_is_written_once(tmp_path):
    model = fitted("leverage")
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert again._certify.loo is again.loo_
    with safe_open(tmp_path / "m.lk", framework="pt") as file:
        assert not any(name.startswith("_certify") for name in file.keys())  # noqa: SIM118


# Networks and functions of the user's own.


class Own(nn.Module):
    def __init__(self, width=4, factor=1.0):
        super().__init__()
        self.body, self.head = nn.Linear(3, width), nn.Linear(width, 1)
        self.factor = factor

    def forward(self, x):
        return self.head(torch.relu(self.factor * self.body(x)))


def own_network(width=4, factor=1.0, seed=0):
    torch.manual_seed(seed)
    return Own(width, factor)


def callable_network(features):
    return Own()


def kernel(left, right):
    return torch.exp(-torch.cdist(left, right))


def other_kernel(left, right):
    return torch.exp(-2 * torch.cdist(left, right))


def moved(name, parameter):
    return name.startswith("head")


class OwnLoss(Squared):
    pass


def given(**settings):
    """Settings that have to be passed again, and how to pass them."""
    return lambda: settings


GIVEN = {
    "module": lambda: {"network": own_network()},
    "callable": given(network=callable_network),
    "candidates": lambda: {"network": [own_network(), SMALL, wide(kernel)]},
    "kernel": given(network=wide(kernel)),
    "kernel, full": lambda: {"network": [wide(kernel), own_network()], "construction": "full"},
    "parameters": lambda: {"network": own_network(), "parameters": moved},
    "loss": given(network=SMALL, loss=OwnLoss()),
    "target": given(network=SMALL, target=(np.sinh, np.arcsinh)),
    "starts": given(network=callable_network, starts=2),
    "base": lambda: {"network": own_network(), "base": DPSGD(0.5, 0.05, epochs=1)},
}
CODE = ("network", "parameters", "loss", "target")


@pytest.mark.parametrize("name", GIVEN)
def test_code_is_passed_again(name, tmp_path):
    settings = GIVEN[name]()
    model = lazy(**settings).fit(X, y)
    model.save(tmp_path / "m.lk")
    needed = {key: value for key, value in GIVEN[name]().items() if key in CODE}
    if name in ("loss", "target"):
        del needed["network"]
    with pytest.raises(ValueError, match=f"no code.*pass load\\('m.lk', {next(iter(needed))}=..."):
        LazyJackknifeRegressor.load(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk", **needed)
    assert_same(model, again)
    assert all(getattr(again, key) is value for key, value in needed.items())


class Tied(Own):
    """Two uses of a weight, whose Jacobian rows have gaps in memory."""

    def __init__(self):
        super().__init__(width=3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.body.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.body(x)))))


class Lazy(Own):
    def __init__(self):
        super().__init__()
        self.body = nn.LazyLinear(4)


class Codes(Own):
    def __init__(self):
        super().__init__(width=8)
        self.table = nn.Embedding(5, 4)

    def forward(self, x):
        return self.head(self.table(x).flatten(1))


class Noisy(Own):
    def forward(self, x):
        return super().forward(x + 0 * torch.randn_like(x))


NUMBERS, CODES = torch.from_numpy(X), torch.arange(60).reshape(30, 2) % 5


@pytest.mark.parametrize(
    ("kind", "rows"), [(Tied, NUMBERS), (Lazy, NUMBERS), (Codes, CODES), (Noisy, NUMBERS)]
)
def test_networks_of_any_kind(kind, rows, tmp_path):
    torch.manual_seed(0)
    model = lazy(network=kind()).fit(rows, y)
    model.save(tmp_path / "m.lk")
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk", network=kind())
    assert_same(model, again, rows)


def test_refits_of_an_own_network(tmp_path):
    model = JackknifeRegressor(own_network(), epochs=1, random_state=0).fit(X, y)
    model.save(tmp_path / "m.lk")
    assert_same(model, JackknifeRegressor.load(tmp_path / "m.lk", network=own_network(seed=1)))


def test_weights_come_from_the_file(tmp_path):
    model = lazy(network=own_network()).fit(X, y)
    model.save(tmp_path / "m.lk")
    other = own_network(seed=5)
    before = [p.clone() for p in other.parameters()]
    assert_same(model, LazyJackknifeRegressor.load(tmp_path / "m.lk", network=other))
    assert all(map(torch.equal, before, other.parameters()))


def test_another_network_is_refused(tmp_path):
    path = tmp_path / "m.lk"
    lazy(network=own_network()).fit(X, y).save(path)
    load = LazyJackknifeRegressor.load
    with pytest.raises(ValueError, match=r"(?s)network=.*fitted with: \[1\] was 'body: Linear"):
        load(path, network=own_network(width=5))
    with pytest.raises(ValueError, match=r"(?s)network=.*is not what the model was fitted with"):
        load(path, network=SMALL)
    with pytest.raises(ValueError, match=r"predicts .* where it predicted"):
        load(path, network=own_network(factor=2.0))
    with pytest.raises(ValueError, match="nothing= is no setting"):
        load(path, network=own_network(), nothing=1)
    with pytest.raises(ValueError, match=r"ridge=3\.0 is not what the model was fitted with"):
        load(path, network=own_network(), ridge=3.0)
    lazy(network=wide(kernel)).fit(X, y).save(path)
    with pytest.raises(ValueError, match="kind was 'kernel' and is 'other_kernel'"):
        load(path, network=wide(other_kernel))


def test_a_network_that_is_data_may_be_passed_too(tmp_path):
    model = fitted("module")
    model.save(tmp_path / "m.lk")
    network = plain_network()
    again = LazyJackknifeRegressor.load(tmp_path / "m.lk", network=network)
    assert again.network is network
    assert_same(model, again)


TRANSFORMERS = {
    "power": PowerTransformer(),
    "pipeline": make_pipeline(RobustScaler(), PowerTransformer()),
    "function": FunctionTransformer(np.tanh),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_other_transformers_are_passed_fitted(name, tmp_path):
    model = lazy(network=SMALL, scaling=TRANSFORMERS[name]).fit(X, y, X_pool=NEW)
    model.save(tmp_path / "m.lk")
    load = LazyJackknifeRegressor.load
    with pytest.raises(ValueError, match=r"scaling \(a fitted|scaling \(of class"):
        load(tmp_path / "m.lk")
    assert_same(model, load(tmp_path / "m.lk", scaling=model.scaling_.transformer))
    if name != "function":
        with pytest.raises(ValueError, match="is not the one of the file"):
            load(tmp_path / "m.lk", scaling=clone(TRANSFORMERS[name]).fit(X))


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


def rewritten(path, change=None, tensors=None, **metadata):
    """The file with a changed document, and hashes that fit."""
    with safe_open(path, framework="pt") as file:
        own = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    document = json.loads(own["document"])
    if change is not None:
        change(document)
    text = json.dumps(document)
    own |= {"document": text, "sha256": sha256(text.encode()).hexdigest()} | metadata
    save_file(found | (tensors or {}), path, own)


@pytest.fixture
def saved(tmp_path):
    fitted("one network").save(tmp_path / "m.lk")
    return tmp_path / "m.lk"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.lk")
    for path in (tmp_path, tmp_path / "pipe.lk"):
        with patience(20), pytest.raises(ValueError, match="is not a file: give one that model"):
            LazyJackknifeRegressor.load(path)
    with pytest.raises(FileNotFoundError):
        LazyJackknifeRegressor.load(tmp_path / "missing.lk")


def test_models_of_other_classes_are_named(saved):
    with pytest.raises(ValueError, match="holds a LazyJackknifeRegressor, not a JackknifeRegr"):
        JackknifeRegressor.load(saved)


def test_newer_and_damaged_files_load_nothing(saved):
    rewritten(saved, schema=str(SCHEMA + 1))
    with pytest.raises(ValueError, match="install a newer lazyknife"):
        LazyJackknifeRegressor.load(saved)
    whole = saved.read_bytes()
    saved.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        LazyJackknifeRegressor.load(saved)
    with pytest.raises(FileNotFoundError):
        LazyJackknifeRegressor.load(saved.with_name("none.lk"))


def set_attribute(document):
    document["state"]["predict"] = "text"


def other_record(document):
    document["objects"][-1]["record"] = "Popen"


def other_field(document):
    next(data for data in document["objects"] if "record" in data)["fields"]["extra"] = 1


def later_object(document):
    document["objects"][0] = {"ref": 10}


def no_settings(document):
    del document["settings"]


def other_setting(document):
    document["settings"]["shell"] = "rm"


@pytest.mark.parametrize(
    "change",
    [set_attribute, other_record, other_field, later_object, no_settings, other_setting],
)
def test_forged_files_are_refused_in_words(change, saved):
    rewritten(saved, change)
    with pytest.raises(ValueError, match=r"cannot read it .* nothing was loaded"):
        LazyJackknifeRegressor.load(saved)


def test_devices_are_replaced(saved):
    """A file from a GPU, made of one from the CPU."""

    def on_gpu(document):
        text = json.dumps(document).replace('{"device": "cpu"}', '{"device": "cuda:1"}')
        text = text.replace('"device": "cpu"}}', '"device": "cuda:1"}}')
        document |= json.loads(text)
        document["settings"]["device"] = "cuda:1"

    rewritten(saved, on_gpu)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"on cuda:1, which is not here: pass map_location='c"):
            LazyJackknifeRegressor.load(saved)
    for where in ("cpu", torch.device("cpu")):
        again = LazyJackknifeRegressor.load(saved, map_location=where)
        assert again.device == "cpu"
        assert again.loo_.basis.tangent.machine.device == torch.device("cpu")
        assert_same(again, fitted("one network"))
    with pytest.raises(ValueError, match="device='nowhere'"):
        LazyJackknifeRegressor.load(saved, map_location="nowhere")


def test_a_budget_fits_the_memory_that_is_there():
    assert _machine(**vars(Machine(budget=1000))) == Machine(budget=1000)
    assert _machine(**vars(Machine(budget=2**62))).budget < 2**60


def test_every_known_name_is_that_of_its_class():
    kinds = [of.kind if isinstance(of, Codec) else of for of in KNOWN.values()]
    assert [kind.__name__ for kind in kinds] == list(KNOWN)
    assert len(set(kinds)) == len(kinds)


def test_a_forged_shape_of_rows_takes_no_memory():
    assert _rows_like(["torch.float64", [0, 5]]).shape == (0, 5)
    with pytest.raises(ValueError, match="more than"):
        _rows_like(["torch.float64", [0, 10**12]])
