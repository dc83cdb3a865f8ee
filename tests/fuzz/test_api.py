"""Drawn data and settings: every fit gives intervals without NaN, or an error that says why."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lazyknife
from fuzzing import Defect, frames, search
from lazyknife import TableEncoder, mlp, wide
from lazyknife.base import BASES
from lazyknife.data.targets import TARGETS
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.networks import KINDS
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.widths import WIDTHS
from lazyknife.tangent import FEATURES

# Values, as functions of a generator and a shape.
VALUES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "counts": lambda rng, shape: rng.poisson(3.0, size=shape).astype(float),
    "binary": lambda rng, shape: rng.integers(0, 2, size=shape).astype(float),
    "ties": lambda rng, shape: rng.integers(-1, 2, size=shape) / 3,
    "constant": lambda rng, shape: np.full(shape, 2.5),
    "zeros": lambda rng, shape: np.zeros(shape),
    "nano": lambda rng, shape: 1e-9 * rng.normal(size=shape),
    "giga": lambda rng, shape: 1e9 * rng.normal(size=shape),
    "far": lambda rng, shape: 1e12 + rng.normal(size=shape),
    "tiny": lambda rng, shape: 1e-300 * rng.normal(size=shape),
    "subnormal": lambda rng, shape: 5e-324 * rng.integers(0, 9, size=shape),
    "huge": lambda rng, shape: 1e150 * rng.normal(size=shape),
    "largest": lambda rng, shape: 1.7e308 * rng.choice([-1, 1], size=shape),
    "mixed": lambda rng, shape: 10.0 ** rng.integers(-300, 300, size=shape),
    "outlier": lambda rng, shape: np.where(rng.random(shape) < 0.1, 1e12, rng.normal(size=shape)),
    "cauchy": lambda rng, shape: rng.standard_cauchy(size=shape),
    "duplicates": lambda rng, shape: np.repeat(rng.normal(size=(1, *shape[1:])), shape[0], axis=0),
    "nan": lambda rng, shape: np.where(rng.random(shape) < 0.2, np.nan, rng.normal(size=shape)),
    "inf": lambda rng, shape: np.where(rng.random(shape) < 0.2, np.inf, rng.normal(size=shape)),
}
BENIGN = ["normal", "counts", "binary", "ties", "outlier"]


def quietly(values: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return values.astype(dtype)


def table(values: np.ndarray) -> np.ndarray:
    return values[:, None] if values.ndim == 1 else values


def frame(values: np.ndarray, names: Any = ("c0", "c1", "c2")) -> pd.DataFrame:
    values = table(values)
    return pd.DataFrame(values, columns=list(names)[: values.shape[1]])


def tensor(values: np.ndarray, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.nan_to_num(values))).to(dtype)


def structured(values: np.ndarray) -> np.ndarray:
    return frame(values).to_records(index=False).view(np.ndarray)


NUMPY = ["f8", "f4", "f2", "g", "i1", "i4", "i8", "u1", "u8", "?", "c8", "c16", "O", "U", "S"]
TORCH = [
    *("float64", "float32", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool"),
    *("complex64", "uint16"),
]
CONTAINERS = {
    **{f"numpy {kind}": lambda v, kind=kind: quietly(v, kind) for kind in NUMPY},
    **{f"torch {kind}": lambda v, kind=kind: tensor(v, getattr(torch, kind)) for kind in TORCH},
    "dates": lambda v: quietly(np.nan_to_num(v), "i8").astype("M8[s]"),
    "nat": lambda v: np.full(v.shape, np.datetime64("NaT"), "M8[s]"),
    "timedeltas": lambda v: np.full(v.shape, np.timedelta64("NaT"), "m8[s]"),
    "masked": lambda v: np.ma.masked_array(v, mask=np.arange(v.size).reshape(v.shape) % 3 == 0),
    "fortran": lambda v: np.asfortranarray(v),
    "reversed": lambda v: v[::-1],
    "read-only": lambda v: np.frombuffer(v.tobytes()).reshape(v.shape),
    "structured": structured,
    "records": lambda v: structured(v).view(np.recarray),
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(map(tuple, v.tolist())) if v.ndim == 2 else tuple(v.tolist()),
    "arrays": lambda v: list(v),
    "ragged": lambda v: [*v.tolist(), [1.0]],
    "nones": lambda v: [None, *v.tolist()[1:]],
    "dict": lambda v: {f"c{k}": column.tolist() for k, column in enumerate(table(v).T)},
    "generator": lambda v: (row for row in v),
    "range": lambda v: range(len(v)),
    "number": lambda v: 3.0,
    "text": lambda v: "rows",
    "nothing": lambda v: None,
    "set": lambda v: {1, 2},
    "cube": lambda v: v[..., None, None],
    "column": lambda v: v.reshape(-1, 1),
    "flat": lambda v: v.reshape(-1),
    "frame": frame,
    "series": lambda v: pd.Series(v.reshape(-1)),
    "float frame": lambda v: frame(v).astype("Float64"),
    "text frame": lambda v: frame(v).astype(str),
    "category frame": lambda v: frame(v).astype("category"),
    "nullable frame": lambda v: frame(v).convert_dtypes(),
    "duplicate names": lambda v: frame(v, ["a"] * 9),
    "number names": lambda v: frame(v, list(range(9))),
    "mixed names": lambda v: frame(v, ["a", 1, 2.0, None]),
    "polars": lambda v: pl.from_pandas(frame(v)),
    "polars null": lambda v: pl.from_pandas(frame(v)).with_columns(pl.lit(None).alias("empty")),
    "polars lazy": lambda v: pl.from_pandas(frame(v)).lazy(),
    "polars series": lambda v: pl.Series(v.reshape(-1)),
    "arrow": lambda v: pa.Table.from_pandas(frame(v)),
    "arrow array": lambda v: pa.array(v.reshape(-1)),
    "csr": lambda v: scipy.sparse.csr_matrix(table(v)),
    "coo array": lambda v: scipy.sparse.coo_array(table(v)),
    "sparse tensor": lambda v: tensor(v).to_sparse(),
    "meta": lambda v: torch.empty(v.shape, device="meta"),
    "gradient": lambda v: tensor(v).requires_grad_(),
    "loader": lambda v: DataLoader(TensorDataset(torch.from_numpy(v.copy())), batch_size=3),
}
PLAIN = ["numpy f8", "numpy f4", "list", "frame", "torch float64", "torch float32", "polars"]

NUMBERS = [
    *(1e-320, 1e-300, 1e-30, 1e-16, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.5, 10.0, 1e9, 1e30, 1e200),
    *(1e308, 0.0, -1.0, math.inf, -math.inf, math.nan, 1 - 1e-16, 1 - 1e-9, 0.999, 0.9),
]
ODD = [
    *(None, True, False, "no", "", b"auto", 3, 1e3, 1j, [], {}, (), [0.1], np.array([0.1, 0.2])),
    *(np.float32(0.5), np.int64(2), np.array(0.3), torch.tensor(0.3), np.nan, object(), int),
    *(10**400, -1, 0, "auto", np.array([]), pd.NA, np.str_("plus")),
]
COUNTS = [1, 2, 3, 5, 20, 10**6, 10**7, 10**9, 10**18, 0, -3, 2.0, True]


class Made(NamedTuple):
    """A call that makes a setting: written like code, so that a case can be repeated."""

    name: str
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        return MAKERS[self.name](**{name: made(value) for name, value in self.arguments.items()})

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={value!r}' for k, value in self.arguments.items())})"


def make(name: str, **arguments: Any) -> Made:
    return Made(name, arguments)


def made(value: Any) -> Any:
    """A setting, made now if it has to be."""
    if type(value) is list:
        return [made(each) for each in value]
    return value() if isinstance(value, Made) else value


MAKERS: dict[str, Any] = {
    **{kind.__name__: kind for kind in (*BASES.values(), *LOSSES.values(), *FEATURES.values())},
    "mlp": mlp,
    "wide": wide,
    "TableEncoder": TableEncoder,
    "linear": lambda size: nn.Linear(size, 1),
    "deep": lambda size: nn.Sequential(nn.Linear(size, 3), nn.Dropout(0.3), nn.Linear(3, 1)),
    "half": lambda size: nn.Linear(size, 1).to(torch.bfloat16),
    "norm": lambda size: nn.Sequential(nn.BatchNorm1d(size), nn.Linear(size, 1)),
    "frozen": lambda size: nn.Linear(size, 1).requires_grad_(False),
    "broken": lambda size: nn.Linear(size, 2),
    "module": nn.Module,
    "relu": nn.ReLU,
}


def calls(name: str, **options: Any) -> st.SearchStrategy[Made]:
    """Calls with some of the arguments."""
    some = st.lists(st.sampled_from(sorted(options)), unique=True, max_size=3)
    return some.flatmap(
        lambda names: st.fixed_dictionaries({each: options[each] for each in names})
    ).map(lambda arguments: Made(name, arguments))


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(values))


def mostly(
    usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any], times: int = 7
) -> st.SearchStrategy[Any]:
    return one_of(*range(times + 1)).flatmap(lambda k: usual if k else rare)


number = mostly(one_of(*NUMBERS), one_of(*ODD), 2)
count = mostly(one_of(*COUNTS), one_of(*ODD), 2)
few = mostly(one_of(1, 2), count, 4)  # epochs: a case takes moments
names = one_of((), ["c0"], ["c0", "c1"], "c0", ["no"], *ODD)
plain = calls("Plain", epochs=few, batch_size=count, lr=number)
network = st.one_of(
    st.just(None),
    calls("mlp", widths=one_of((3,), (), (2, 2), (0,), (10**9,), 3, None, "ab", (2.5,), (-1,))),
    calls("mlp", activation=one_of("tanh", "gelu", "softplus", "no", None), skip=one_of(True)),
    calls("wide", kind=one_of(*KINDS, "no", None, 3), scale=number, squash=one_of(True, "no")),
    st.builds(
        lambda kind, size: make(kind, size=size),
        one_of("linear", "deep", "half", "norm", "frozen", "broken"),
        one_of(1, 2, 2, 2, 3),
    ),
    one_of(make("module"), make("relu"), mlp, wide, nn.Linear, torch.sin, len),
    one_of([], [make("mlp"), make("wide")], [make("wide"), None], [None], (make("wide"),)),
    one_of(*ODD),
)
base = st.one_of(
    st.just(None),
    one_of(*(make(kind.__name__) for kind in BASES.values() if kind.__name__ != "Perturbed")),
    calls(
        "DPSGD",
        epsilon=mostly(one_of(1e-6, 1e-3, 0.01, 1.0, 10.0, 499.0, math.inf), number),
        delta=mostly(one_of(1e-10, 1e-6, 1e-3, 0.1, 0.99), number),
        epochs=few,
        batch_size=mostly(one_of(1, 2, 5, 20), count),
        max_grad_norm=number,
        lr=number,
        noise_multiplier=mostly(one_of(1e-3, 0.03, 0.5, 1.0, 30.0, 1e9), number),
    ),
    st.builds(
        lambda reach, epsilon, norm: make(
            "Perturbed", sensitivity=reach, epsilon=epsilon, norm=norm
        ),
        *(number, number, one_of("l1", "l2", "no")),
    ),
    calls("Split", fraction=number, training=st.one_of(plain, one_of(*ODD))),
    plain,
    one_of(*ODD, *BASES.values()),
)
SMALL = make("mlp", widths=(3,))
# Settings of most cases; each case has at most a few from all of SETTINGS.
VALID = {
    "network": one_of(
        *(None, SMALL, make("mlp", widths=(2, 2), skip=True), make("deep", size=2)),
        *(make("wide", kind=kind) for kind in KINDS),
        [make("wide"), SMALL],
    ),
    "base": one_of(
        *(None, make("Public"), make("Plain", epochs=1)),
        make("Split", training=make("Plain", epochs=1)),
        make("DPSGD", epsilon=2.0, epochs=1, batch_size=2),
        make("Perturbed", sensitivity=0.1, epsilon=1.0),
    ),
    "ridge": one_of("auto", 1e-6, 0.1, 10.0),
    "construction": one_of(*CONSTRUCTIONS),
    "readout": one_of(*READOUTS),
    "fit_intercept": st.booleans(),
    "parameters": one_of("all", "last"),
    "features": one_of(None, make("Sketch", dimension=4)),
    "widths": one_of(None, *WIDTHS),
    "feature_weights": one_of("auto", None),
    "folds": one_of(2, 3, 4),
    "n_starts": one_of(1, 1, 2),
    "loss": one_of("squared", "squared", "huber", *LOSSES),
    "scaling": one_of(None, "auto", "symlog", "standardize"),
    "alpha": one_of(0.1, 0.2, 0.3, 0.5, 0.9, 0.99),
    "nu": one_of(0.0, 0.1),
    "target_transform": one_of(None, None, *TARGETS),
    "bounds": one_of(None, None, (0, None), (-5, 1e12)),
    "memory_budget": one_of(None, 10**6, 10**8),
    "epochs": one_of(1, 2),
    "batch_size": one_of(1, 3, 100),
    "lr": one_of(1e-3, 0.1),
    "calibration": one_of(0.3, 0.5),
}
UNUSUAL = {  # what else they may be, beside what is no setting at all
    "network": network,
    "base": base,
    "ridge": number,
    "parameters": one_of(["*"], ["body*"], ["no"], [3], lambda *_: True, lambda: 3, mlp),
    "features": st.one_of(
        count.map(lambda size: make("Sketch", dimension=size)),  # 4,096 takes long
        one_of(make("Exact")),
    ),
    "folds": count,
    "n_starts": count,
    "loss": calls("Huber", delta=number),
    "alpha": number,
    "nu": number,
    "target_transform": one_of((np.log1p, np.expm1), (np.sign, np.abs), (len, len), (3, 4)),
    "bounds": one_of((None, 1.0), (0, 0), (3,), "ab", (math.nan, 1), ("a", None)),
    "encoding": st.one_of(st.just(None), calls("TableEncoder", categorical=names, ignore=names)),
    "device": one_of("auto", "cpu", "cuda", "meta"),
    "memory_budget": st.one_of(count, number),
    "random_state": one_of(0, 7, np.random.RandomState(0), np.random.default_rng(0)),
    "verbose": one_of(False),
    "epochs": few,
    "batch_size": count,
    "lr": number,
    "calibration": number,
}
ANY = one_of(*ODD)
SETTINGS = {
    name: st.one_of(VALID.get(name, ANY), UNUSUAL.get(name, ANY), ANY) for name in VALID | UNUSUAL
}
ESTIMATORS = ["JackknifeRegressor", "CVPlusRegressor", "SplitConformalRegressor"]
NAMES = {  # what a clear message names
    *SETTINGS,
    *("X", "y", "X_pool", "X_unlabeled", "epsilon", "delta", "max_grad_norm", "noise_multiplier"),
    *("sensitivity", "norm", "fraction", "training", "dimension", "activation"),
    *("kind", "scale", "squash", "column", "columns", "rows", "n", "coverage", "eta", "bins"),
    *("categorical", "ignore", "batch", "input", "target", "target_transform", "n_parameters"),
    "by",
}


class Rows(NamedTuple):
    """Rows or targets."""

    values: str
    container: str
    seed: int

    def given(self, *shape: int) -> Any:
        with np.errstate(all="ignore"):
            values = VALUES[self.values](np.random.default_rng(self.seed), shape)
            return CONTAINERS[self.container](values)


class Case(NamedTuple):
    """A fit and the intervals of new rows."""

    estimator: str
    n: int
    features: int
    X: Rows
    y: Rows
    new: Rows
    extra: str | None
    settings: dict[str, Any]
    levels: Any


def rows_of(values: Any, containers: Any) -> st.SearchStrategy[Rows]:
    return st.builds(Rows, one_of(*values), one_of(*containers), st.integers(0, 5))


@st.composite
def cases(draw: Any) -> Case:
    """Mostly one thing is odd: the values, the containers, or a setting."""
    odd = draw(one_of("values", "containers", "setting", "setting", "settings", "everything"))
    estimator = draw(one_of(*["LazyJackknifeRegressor"] * 4, *ESTIMATORS))
    values = list(VALUES) if odd in ("values", "everything") else BENIGN
    containers = list(CONTAINERS) if odd in ("containers", "everything") else PLAIN
    X = draw(rows_of(values, containers))
    n = draw(one_of(*[5, 8] * 7, 0, 1, 2, 3, 4, 12))
    y = rows_of(values, containers if odd == "everything" else PLAIN[:5])
    return Case(
        estimator,
        n,
        draw(one_of(*[2] * 12, 0, 1, 3)),
        X,
        draw(y if odd != "containers" else st.one_of(y, rows_of(BENIGN, CONTAINERS))),
        draw(rows_of(values, [X.container] if draw(one_of(True, True, False)) else containers)),
        draw(one_of(None, None, None, "X_pool", "X_unlabeled")),
        draw(settings_of(estimator, odd)),
        draw(number if odd == "everything" else one_of(*[None] * 9, 0.2, [0.3, 0.1], [], 1e-9)),
    )


@st.composite
def settings_of(draw: Any, estimator: str, odd: str) -> dict[str, Any]:
    known = inspect.signature(getattr(lazyknife, estimator)).parameters
    names = [name for name in sorted(known) if name in SETTINGS]
    some = draw(st.lists(one_of(*names), unique=True, max_size=4))
    settings = {name: draw(VALID[name]) for name in some if name in VALID}
    if draw(one_of(True, True, False)):  # quicker than the default
        settings.setdefault("network", SMALL)
    strange = {"setting": 1, "settings": 3, "everything": 2}.get(odd, 0)
    for name in draw(st.lists(one_of(*names), max_size=strange)):
        settings[name] = draw(SETTINGS[name])
    if estimator != "LazyJackknifeRegressor":
        settings.setdefault("epochs", 1)
    return settings


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, None where it is refused; raise ``Defect`` where it is neither."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (ValueError, TypeError) as error:
            check_refusal(error)
            result = None
    check_warnings(caught)
    if not torch.equal(torch.get_rng_state(), before[0]):
        raise Defect("torch's random state was changed")
    if not np.array_equal(np.random.get_state()[1], before[1]):
        raise Defect("numpy's random state was changed")
    return result


def fitted(case: Case, X: Any, y: Any, new: Any, extra: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        settings = {name: made(value) for name, value in case.settings.items()}
    model = getattr(lazyknife, case.estimator)(**{"random_state": 0, **settings})
    model.fit(X, y, **({case.extra: extra} if case.extra else {}))
    result = model.predict_interval(new, alpha=case.levels)
    if not hasattr(result, "lower"):
        result = next(iter(result))
    assert str(model.certificate_)
    assert repr(result)
    for name in ("point", "lower", "upper"):
        if np.isnan(part := np.asarray(getattr(result, name), dtype=float)).any():
            raise Defect(f"{name} has NaN: {part}")
    if not np.isfinite(np.asarray(result.point)).all():
        raise Defect(f"point is infinite: {result.point}")
    if np.max(result.alpha) <= 0.5 and (np.asarray(result.lower) > np.asarray(result.upper)).any():
        raise Defect(f"ends are in the wrong order: {result.lower} {result.upper}")
    return result


def run(case: Case) -> bool:
    shape = case.n, case.features
    new = [case.new.given(4, case.features) for _ in range(2)]
    given = case.X.given(*shape), case.y.given(case.n), *new
    return outcome(lambda: fitted(case, *given)) is not None


OURS = re.compile(r"[/\\](lazyknife|sklearn)[/\\]")


def check_refusal(error: BaseException) -> None:
    """An error of the package itself, or of scikit-learn's checks, that names an argument."""
    places = [f.filename for f in frames(error)]
    if not OURS.search(places[-1]):
        raise Defect(f"raised outside: {type(error).__name__}: {error}") from error
    if "sklearn" not in places[-1] and not set(re.findall(r"\w+", str(error))) & NAMES:
        raise Defect(f"names no argument: {type(error).__name__}: {error}") from error


def check_warnings(caught: list[Any]) -> None:
    for each in caught:
        if issubclass(each.category, RuntimeWarning) or not OURS.search(str(each.filename)):
            if "fuzz" in str(each.filename) and issubclass(each.category, UserWarning):
                continue  # points at the caller's line
            raise Defect(f"{each.category.__name__}: {each.message} ({each.filename})")


def test_a_fit_gives_intervals_or_a_clear_refusal() -> None:
    search(cases(), run, quick=100)


class Call(NamedTuple):
    """A call of a public function."""

    function: str
    arguments: dict[str, Any]


def answer(call: Callable[[], Any], wrong: Callable[[Any], Any]) -> bool:
    found = outcome(call)
    if found is not None and np.any(wrong(found)):
        raise Defect(f"NaN in {found}")
    return found is not None


def answered(call: Call) -> bool:
    def text() -> str:
        with torch.random.fork_rng(devices=[]):
            arguments = {name: made(value) for name, value in call.arguments.items()}
            return str(getattr(lazyknife, call.function)(**arguments))

    return answer(text, lambda found: "nan" in found)


coverage = mostly(one_of(0.1, 0.5, 0.8, 0.9, 0.99), number)
rows = mostly(one_of(1, 2, 20, 100, 1000, 10**4), count)
SHARED = {
    "n": rows,
    "construction": mostly(one_of(*CONSTRUCTIONS), one_of(*ODD)),
    "folds": mostly(one_of(2, 5, 10), count),
}
CERTIFIED = {
    "alpha": coverage,
    "base": base,
    "eta": mostly(one_of(None, 0.0, 0.1), number),
    "nu": mostly(one_of(None, 0.1), number),
    "n_parameters": mostly(one_of(None, 100), count),
}
ASKED = ("epsilon",), ("base",), ("alpha",), ("alpha", "base")
TERMS = {"epsilon": number, "base": base, "alpha": coverage}
PLANNING = st.one_of(
    st.builds(Call, st.just("certify"), st.fixed_dictionaries(SHARED | CERTIFIED)),
    *(
        st.builds(
            Call,
            st.just("plan"),
            st.fixed_dictionaries(
                SHARED | {"coverage": coverage} | {name: TERMS[name] for name in asked}
            ),
        )
        for asked in ASKED
    ),
)


def test_a_plan_is_a_certificate_or_a_clear_refusal() -> None:
    search(PLANNING, answered, quick=60)


class Scored(NamedTuple):
    """Intervals and targets to compare."""

    function: str
    m: int
    levels: int
    ends: str
    y: Rows
    further: dict[str, Any]


SCORES = st.builds(
    Scored,
    one_of("coverage", "interval_score", "coverage_by_bin", "mean_width"),
    one_of(0, 1, 2, 5, 9),
    one_of(0, 0, 1, 2),
    one_of(*VALUES),
    rows_of(VALUES, CONTAINERS),
    st.fixed_dictionaries({}, optional={"by": one_of("width", *ODD), "bins": count}),
)


def scored(case: Scored) -> bool:
    rng = np.random.default_rng(case.y.seed)
    shape = (case.m, case.levels) if case.levels else (case.m,)
    with np.errstate(all="ignore"):
        middle = np.nan_to_num(VALUES[case.ends](rng, shape))
        half = np.abs(middle) * rng.random(shape)
        point = middle[:, 0] if case.levels else middle
        ends = (middle - half, middle + half)
    alpha = (0.1, 0.3)[: case.levels] if case.levels else 0.1
    terms: dict[str, Any] = {} if case.function == "mean_width" else {"y": case.y.given(case.m)}
    terms |= case.further if case.function == "coverage_by_bin" else {}

    def value() -> Any:
        intervals = lazyknife.Intervals(point, *ends, alpha)
        result = getattr(lazyknife, case.function)(intervals=intervals, **terms)
        return np.asarray(result[0] if case.function == "coverage_by_bin" else result.value)

    return answer(value, np.isnan)


def test_scores_are_numbers_or_a_clear_refusal() -> None:
    search(SCORES, scored, quick=60)
