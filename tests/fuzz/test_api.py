"""Drawn data and settings: every fit gives intervals without NaN, or an error that says why."""

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

import lazyknife as lk
from fuzzing import Defect, frames, search
from lazyknife.data.targets import TARGETS
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.networks import KINDS
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.widths import WIDTHS

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


def frame(values: np.ndarray, names: Any = ("c0", "c1", "c2")) -> pd.DataFrame:
    values = values[:, None] if values.ndim == 1 else values
    return pd.DataFrame(values, columns=list(names)[: values.shape[1]])


def tensor(values: np.ndarray, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.nan_to_num(values))).to(dtype)


NUMPY = ["f8", "f4", "f2", "g", "i1", "i8", "u8", "?", "c16", "O", "U", "S"]
TORCH = ["float64", "float32", "bfloat16", "int64", "uint8", "bool", "complex64", "uint16"]
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    **{f"numpy {kind}": lambda v, kind=kind: quietly(v, kind) for kind in NUMPY},
    **{f"torch {kind}": lambda v, kind=kind: tensor(v, getattr(torch, kind)) for kind in TORCH},
    **{
        f"{kind} frame": lambda v, kind=kind: frame(v).astype(kind)
        for kind in ("str", "category", "Float64")
    },
    "dates": lambda v: quietly(np.nan_to_num(v), "i8").astype("M8[s]"),
    "timedeltas": lambda v: np.full(v.shape, np.timedelta64("NaT"), "m8[s]"),
    "masked": lambda v: np.ma.masked_array(v, mask=np.arange(v.size).reshape(v.shape) % 3 == 0),
    "fortran": lambda v: np.asfortranarray(v),
    "reversed": lambda v: v[::-1],
    "read-only": lambda v: np.frombuffer(v.tobytes()).reshape(v.shape),
    "structured": lambda v: frame(v).to_records(index=False).view(np.ndarray),
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(map(tuple, v.tolist())) if v.ndim == 2 else tuple(v.tolist()),
    "arrays": lambda v: list(v),
    "ragged": lambda v: [*v.tolist(), [1.0]],
    "nones": lambda v: [None, *v.tolist()[1:]],
    "dict": lambda v: frame(v).to_dict("list"),
    "generator": lambda v: (row for row in v),
    "number": lambda v: 3.0,
    "text": lambda v: "rows",
    "nothing": lambda v: None,
    "set": lambda v: {1, 2},
    "cube": lambda v: v[..., None, None],
    "column": lambda v: v.reshape(-1, 1),
    "frame": frame,
    "series": lambda v: pd.Series(v.reshape(-1)),
    "nullable frame": lambda v: frame(v).convert_dtypes(),
    "duplicate names": lambda v: frame(v, ["a"] * 9),
    "mixed names": lambda v: frame(v, ["a", 1, 2.0, None]),
    "polars": lambda v: pl.from_pandas(frame(v)),
    "polars lazy": lambda v: pl.from_pandas(frame(v)).lazy(),
    "arrow": lambda v: pa.Table.from_pandas(frame(v)),
    "arrow array": lambda v: pa.array(v.reshape(-1)),
    "csr": lambda v: scipy.sparse.csr_matrix(np.atleast_2d(v)),
    "sparse tensor": lambda v: tensor(v).to_sparse(),
    "meta": lambda v: torch.empty(v.shape, device="meta"),
    "gradient": lambda v: tensor(v).requires_grad_(),
    "loader": lambda v: DataLoader(TensorDataset(torch.from_numpy(v.copy())), batch_size=3),
}
PLAIN = ["numpy f8", "numpy f4", "list", "frame", "torch float64", "torch float32", "polars"]

# Settings are drawn as code, so that a case can be repeated.
Codes = st.SearchStrategy[str]
NAMESPACE = {
    **{"lk": lk, "np": np, "torch": torch, "nn": nn, "pd": pd, "inf": math.inf, "nan": math.nan},
    "deep": lambda size: nn.Sequential(nn.Linear(size, 3), nn.Dropout(0.3), nn.Linear(3, 1)),
    "norm": lambda size: nn.Sequential(nn.BatchNorm1d(size), nn.Linear(size, 1)),
}


def made(code: str) -> Any:
    return eval(code, NAMESPACE)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(values))


def codes(*values: Any) -> Codes:
    """These pieces of code, and values with a repr of their own."""
    return one_of(*(value if isinstance(value, str) else repr(value) for value in values))


def named(values: Any) -> list[str]:
    return [repr(value) for value in values]


def mostly(usual: Codes, rare: Codes, times: int = 7) -> Codes:
    return one_of(*range(times + 1)).flatmap(lambda k: usual if k else rare)


def calls(name: str, **options: Codes) -> Codes:
    """Calls with some of the arguments."""
    some = st.lists(one_of(*sorted(options)), unique=True, max_size=3)
    given = some.flatmap(
        lambda names: st.fixed_dictionaries({each: options[each] for each in names})
    )
    return given.map(lambda terms: f"{name}({', '.join(f'{k}={v}' for k, v in terms.items())})")


odd = codes(
    *(None, True, False, "'no'", "''", b"auto", 3, 1e3, 1j, [], {}, (), [0.1], 10**400, -1, 0),
    *("np.array([0.1, 0.2])", "np.float32(0.5)", "np.int64(2)", "np.array(0.3)", "np.array([])"),
    *("torch.tensor(0.3)", "nan", "object()", "int", "'auto'", "pd.NA", "np.str_('plus')"),
)
number = mostly(
    codes(
        *(1e-320, 1e-300, 1e-30, 1e-16, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.5, 10.0, 1e9, 1e30, 1e200),
        *(1e308, 0.0, -1.0, math.inf, -math.inf, math.nan, 1 - 1e-16, 1 - 1e-9, 0.999, 0.9),
    ),
    odd,
    times=2,
)
count = mostly(codes(1, 2, 3, 5, 20, 10**6, 10**7, 10**9, 10**18, 0, -3, 2.0, True), odd, 2)
few = mostly(codes(1, 2), count, 4)  # epochs: a case takes moments
columns = st.one_of(codes((), ["c0"], ["c0", "c1"], "'c0'", ["no"]), odd)
plain = calls("lk.Plain", epochs=few, batch_size=count, lr=number)
network = st.one_of(
    codes(None),
    calls(
        "lk.mlp",
        widths=codes((3,), (), (2, 2), (0,), (10**9,), 3, None, "'ab'", (2.5,), (-1,)),
        activation=codes("'tanh'", "'gelu'", "'softplus'", "'no'", None),
        skip=codes(True),
    ),
    calls(
        "lk.wide", kind=codes(*named(KINDS), "'no'", 3), scale=number, squash=codes(True, "'no'")
    ),
    codes(*(f"{kind}({size})" for kind in ("deep", "norm") for size in (1, 2, 2, 3))),
    codes("nn.Linear(2, 1)", "nn.Linear(2, 2)", "nn.Linear(2, 1).to(torch.bfloat16)"),
    codes("nn.Linear(2, 1).requires_grad_(False)", "nn.Module()", "lk.mlp", "lk.wide", "len"),
    codes("[]", "[lk.mlp(), lk.wide()]", "[lk.wide(), None]", "(lk.wide(),)", "torch.sin"),
    odd,
)
base = st.one_of(
    codes(None, "lk.Public()", "lk.Plain()", "lk.Split()", "lk.DPSGD()", "lk.Public", "lk.DPSGD"),
    calls(
        "lk.DPSGD",
        epsilon=mostly(codes(1e-6, 1e-3, 0.01, 1.0, 10.0, 499.0, math.inf), number),
        delta=mostly(codes(1e-10, 1e-6, 1e-3, 0.1, 0.99), number),
        epochs=few,
        batch_size=mostly(codes(1, 2, 5, 20), count),
        max_grad_norm=number,
        lr=number,
        noise_multiplier=mostly(codes(1e-3, 0.03, 0.5, 1.0, 30.0, 1e9), number),
    ),
    st.builds(
        "lk.Perturbed(sensitivity={}, epsilon={}, norm={})".format,
        *(number, number, codes("'l1'", "'l2'", "'no'")),
    ),
    calls("lk.Split", fraction=number, training=st.one_of(plain, odd)),
    plain,
    odd,
)
SMALL = "lk.mlp((3,))"
# Settings of most cases; each case has at most a few from all of SETTINGS.
VALID = {
    "network": codes(
        *(None, SMALL, "lk.mlp((2, 2), skip=True)", "deep(2)", f"[lk.wide(), {SMALL}]"),
        *(f"lk.wide({kind!r})" for kind in KINDS),
    ),
    "base": codes(
        *(None, "lk.Public()", "lk.Plain(1)", "lk.Split(training=lk.Plain(1))"),
        *("lk.DPSGD(2.0, epochs=1, batch_size=2)", "lk.Perturbed(0.1, 1.0)"),
    ),
    "ridge": codes("'auto'", 1e-6, 0.1, 10.0),
    "construction": codes(*named(CONSTRUCTIONS)),
    "readout": codes(*named(READOUTS)),
    "fit_intercept": codes(True, False),
    "parameters": codes("'all'", "'last'"),
    "features": codes(None, "lk.Sketch(4)"),
    "widths": codes(None, *named(WIDTHS)),
    "feature_weights": codes("'auto'", None),
    "folds": codes(2, 3, 4),
    "n_starts": codes(1, 1, 2),
    "loss": codes("'squared'", "'squared'", *named(LOSSES)),
    "scaling": codes(None, "'auto'", "'symlog'", "'standardize'"),
    "alpha": codes(0.1, 0.2, 0.3, 0.5, 0.9, 0.99),
    "nu": codes(0.0, 0.1),
    "target_transform": codes(None, None, *named(TARGETS)),
    "bounds": codes(None, None, (0, None), (-5, 1e12)),
    "memory_budget": codes(None, 10**6, 10**8),
    "epochs": codes(1, 2),
    "batch_size": codes(1, 3, 100),
    "lr": codes(1e-3, 0.1),
    "calibration": codes(0.3, 0.5),
}
UNUSUAL = {  # what else they may be, beside what is no setting at all
    **dict.fromkeys(("ridge", "alpha", "nu", "lr", "calibration"), number),
    **dict.fromkeys(("folds", "n_starts", "batch_size"), count),
    "network": network,
    "base": base,
    "parameters": codes(["*"], ["body*"], ["no"], [3], "lambda *_: True", "lambda: 3", "lk.mlp"),
    "features": st.one_of(count.map("lk.Sketch({})".format), codes("lk.Sketch")),
    "loss": calls("lk.Huber", delta=number),
    "target_transform": codes("(np.log1p, np.expm1)", "(np.sign, np.abs)", "(len, len)", (3, 4)),
    "bounds": codes((None, 1.0), (0, 0), (3,), "'ab'", "(nan, 1)", ("a", None)),
    "encoding": calls("lk.TableEncoder", categorical=columns, ignore=columns),
    "device": codes("'auto'", "'cpu'", "'cuda'", "'meta'"),
    "memory_budget": st.one_of(count, number),
    "random_state": codes(0, 7, "np.random.RandomState(0)", "np.random.default_rng(0)"),
    "verbose": codes(False),
    "epochs": few,
}
SETTINGS = {
    name: st.one_of(VALID.get(name, odd), UNUSUAL.get(name, odd), odd) for name in VALID | UNUSUAL
}
ESTIMATORS = ["JackknifeRegressor", "CVPlusRegressor", "SplitConformalRegressor"]
NAMES = {  # what a clear message names
    *SETTINGS,
    *("X", "y", "X_pool", "X_unlabeled", "epsilon", "delta", "max_grad_norm", "noise_multiplier"),
    *("sensitivity", "norm", "fraction", "training", "dimension", "activation"),
    *("kind", "scale", "squash", "column", "columns", "rows", "n", "coverage", "eta"),
    *("categorical", "ignore", "batch", "input", "target", "n_parameters"),
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
    settings: dict[str, str]
    levels: str


def rows_of(values: Any, containers: Any) -> st.SearchStrategy[Rows]:
    return st.builds(Rows, one_of(*values), one_of(*containers), st.integers(0, 5))


@st.composite
def cases(draw: Any) -> Case:
    """Mostly one thing is odd: the values, the containers, or a setting."""
    what = draw(one_of("values", "containers", "setting", "setting", "settings", "everything"))
    estimator = draw(one_of(*["LazyJackknifeRegressor"] * 4, *ESTIMATORS))
    values = list(VALUES) if what in ("values", "everything") else BENIGN
    containers = list(CONTAINERS) if what in ("containers", "everything") else PLAIN
    X = draw(rows_of(values, containers))
    n = draw(one_of(*[5, 8] * 7, 0, 1, 2, 3, 4, 12))
    y = rows_of(values, containers if what == "everything" else PLAIN[:5])
    return Case(
        estimator,
        n,
        draw(one_of(*[2] * 12, 0, 1, 3)),
        X,
        draw(y if what != "containers" else st.one_of(y, rows_of(BENIGN, CONTAINERS))),
        draw(rows_of(values, [X.container] if draw(one_of(True, True, False)) else containers)),
        draw(one_of(None, None, None, "X_pool", "X_unlabeled")),
        draw(settings_of(estimator, what)),
        draw(number if what == "everything" else codes(*[None] * 9, 0.2, [0.3, 0.1], [], 1e-9)),
    )


@st.composite
def settings_of(draw: Any, estimator: str, what: str) -> dict[str, str]:
    known = inspect.signature(getattr(lk, estimator)).parameters
    names = [name for name in sorted(known) if name in SETTINGS]
    some = draw(st.lists(one_of(*names), unique=True, max_size=4))
    settings = {name: draw(VALID[name]) for name in some if name in VALID}
    if draw(one_of(True, True, False)):  # quicker than the default
        settings.setdefault("network", SMALL)
    strange = {"setting": 1, "settings": 3, "everything": 2}.get(what, 0)
    for name in draw(st.lists(one_of(*names), max_size=strange)):
        settings[name] = draw(SETTINGS[name])
    if estimator != "LazyJackknifeRegressor":
        settings.setdefault("epochs", "1")
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
        settings = {name: made(code) for name, code in case.settings.items()}
    model = getattr(lk, case.estimator)(**{"random_state": 0, **settings})
    model.fit(X, y, **({case.extra: extra} if case.extra else {}))
    result = model.predict_interval(new, alpha=made(case.levels))
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


coverage = mostly(codes(0.1, 0.5, 0.8, 0.9, 0.99), number)
SHARED = {
    "n": mostly(codes(1, 2, 20, 100, 1000, 10**4), count),
    "construction": mostly(codes(*named(CONSTRUCTIONS)), odd),
    "folds": mostly(codes(2, 5, 10), count),
}
CERTIFIED = {
    "alpha": coverage,
    "base": base,
    "eta": mostly(codes(None, 0.0, 0.1), number),
    "nu": mostly(codes(None, 0.1), number),
    "n_parameters": mostly(codes(None, 100), count),
}
PLANNED = SHARED | {"coverage": coverage}
TERMS = {"epsilon": number, "base": base, "alpha": coverage}
PLANNING = st.one_of(
    st.tuples(st.just("certify"), st.fixed_dictionaries(SHARED | CERTIFIED)),
    *(
        st.tuples(st.just("plan"), st.fixed_dictionaries(PLANNED | {n: TERMS[n] for n in asked}))
        for asked in (("epsilon",), ("base",), ("alpha",), ("alpha", "base"))
    ),
)


def answered(call: tuple[str, dict[str, str]]) -> bool:
    def text() -> str:
        with torch.random.fork_rng(devices=[]):
            arguments = {name: made(code) for name, code in call[1].items()}
            return str(getattr(lk, call[0])(**arguments))

    found = outcome(text)
    if found is not None and "nan" in found:
        raise Defect(f"NaN in {found}")
    return found is not None


def test_a_plan_is_a_certificate_or_a_clear_refusal() -> None:
    search(PLANNING, answered, quick=60)
