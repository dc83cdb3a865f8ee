"""Saved models: one file of numbers and text, from which objects of known classes are built.

A fitted estimator is a graph of records, networks, tensors and plain values. ``_Writer`` lists its
objects, parts before wholes; ``_read`` goes through the list and calls what ``saveable_classes``
has for each class. The list is JSON beside the tensors of safetensors: sizes are checked against
the file, and nothing in it names what is imported or called. (A pickle that ``torch.load`` reads,
even with ``weights_only=True``, can replace methods of listed classes and call ``bytearray``.)
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from sklearn import preprocessing as pre
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..compute import BUDGET_SHARE, Machine, find_device, free_memory
from ..data.encoder import TableEncoder
from ..data.scaling import symlog
from ..files import replacing
from ..intervals.streamed import CompactModels
from ..networks import ACTIVATIONS, Averaged, Framed, listed_networks, make, mlp, wide
from ..networks.building import SumOfOutputs, Unmoved
from ..networks.mlp import WithSkip
from .fit_full import ChosenFull, full_at

SCHEMA = b"lazyknife-model-2 "  # the start of a file; changes with the form of the list
ROWS = "kept_rows_"  # of the caller, not saved
CLOSE = 1e-6  # relative: other processors round differently, other networks differ by more
PLAIN = (type(None), bool, int, float, str)
Json = Any  # plain values, and lists and dicts of these
Parts = Sequence[Any] | Mapping[str, Any]


def _records(name: str) -> Iterator[type]:
    """Dataclasses and named tuples of a module, or of all modules of a package."""
    module = import_module(name)
    for inner in iter_modules(getattr(module, "__path__", ())):
        yield from _records(f"{name}.{inner.name}")
    for kind in vars(module).values():
        is_record = is_dataclass(kind) or hasattr(kind, "_fields")
        if is_record and isinstance(kind, type) and kind.__module__ == name:
            yield kind


def _fields(record: Any) -> Parts:
    names = [f.name for f in fields(record)] if is_dataclass(record) else record._fields
    return {name: getattr(record, name) for name in names}


def _filled(kind: Any, **state: Any) -> Any:
    """An object with these attributes, which cannot replace its methods."""
    if methods := [name for name in state if callable(getattr(kind, name, None))]:
        raise ValueError(f"{methods} are not attributes that a file may set")
    found = kind.__new__(kind)
    if not hasattr(kind, "get_params"):  # constructors of estimators only set attributes
        (nn.Module if issubclass(kind, nn.Module) else kind).__init__(found)
    found.__setstate__(state)
    return found


def _layer_parts(layer: nn.Module) -> Parts | None:
    """The attributes of a layer of a known class, unless something of the user's is among them."""
    own = {name: value for name, value in vars(layer).items() if "_hook" not in name}
    added = [value for name, value in own.items() if name not in vars(nn.Module())]
    hooked = any(value for name, value in vars(layer).items() if name.endswith("_hooks"))
    foreign = type(layer) not in LAYERS or any(type(each) not in (*PLAIN, tuple) for each in added)
    return None if hooked or foreign else own


def _machine(**state: Any) -> Machine:
    """A machine with no larger a budget than its device now has memory for."""
    if state["budget"] > (free := free_memory(state["device"])):
        state["budget"] = int(BUDGET_SHARE * free)
    return Machine(**state)


def _array_parts(array: np.ndarray[Any, Any]) -> Parts | None:
    """Numbers as a tensor, text as a list."""
    if array.dtype.kind in "biuf":
        return [torch.from_numpy(np.require(array, requirements=("C", "W")).reshape(array.shape))]
    is_text = array.ndim == 1 and all(isinstance(value, str) for value in array)
    return [array.tolist(), array.dtype.kind] if is_text else None


AROUND = (Framed, SumOfOutputs, Unmoved)  # another network
# Networks of these layers alone are data; any other is passed to ``load``.
LAYERS = {
    *(Averaged, WithSkip, *AROUND, *ACTIVATIONS.values()),
    *(nn.Sequential, nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Dropout, nn.Flatten, nn.Identity),
}
_OPEN = (
    *(pre.FunctionTransformer, pre.MaxAbsScaler, pre.MinMaxScaler, pre.QuantileTransformer),
    *(pre.RobustScaler, pre.StandardScaler, TableEncoder, np.random.RandomState),
)
_MODULES = (
    *("base", "certificate", "choosing", "data", "intervals", "losses", "networks", "records"),
    *("ridge", "tangent", "estimators.baselines", "estimators.fit_full"),
    "estimators.fit_full_classes",
    "estimators.fit_input",
    "estimators.labels",
    "estimators.questions",
)
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


@cache
def saveable_classes() -> dict[type, tuple[Callable[[Any], Any], Callable[..., Any]]]:
    """What an object is taken apart into, None if it is not data, and what makes it of its parts.

    A file can name no other classes. Made at the first call: some modules import this one.
    """
    records = [kind for name in _MODULES for kind in _records(f"lazyknife.{name}")]
    return {
        **{kind: (_fields, kind) for kind in records},
        **{kind: (kind.__getstate__, partial(_filled, kind)) for kind in _OPEN},
        **{kind: (_layer_parts, partial(_filled, kind)) for kind in LAYERS},
        tuple: (list, lambda *values: values),
        list: (list, lambda *values: list(values)),
        set: (list, lambda *values: set(values)),
        frozenset: (list, lambda *values: frozenset(values)),
        dict: (
            lambda own: own if all(type(key) is str for key in own) else list(own.items()),
            lambda *items, **named: dict(items) | named,
        ),
        np.ndarray: (
            _array_parts,
            lambda values, kind="": np.array(values, kind[:1]) if kind else values.cpu().numpy(),
        ),
        np.generic: (lambda number: [np.asarray(number).reshape(1)], lambda array: array[0]),
        np.random.PCG64: (lambda bits: bits.state, partial(_filled, np.random.PCG64)),
        np.random.Generator: (lambda own: [own.bit_generator], np.random.Generator),
        nn.Parameter: (lambda own: [own.detach(), own.requires_grad], nn.Parameter),
        torch.dtype: (lambda own: [str(own)], _DTYPES.__getitem__),
        torch.device: (lambda own: [str(own)], torch.device),
        FunctionType: (lambda own: [] if own is symlog else None, lambda: symlog),
        Machine: (vars, _machine),
        CompactModels: (CompactModels.__getstate__, CompactModels),
        # Its models, many n×n matrices, are made again: that takes as long as reading them.
        ChosenFull: (lambda own: [own.step, own.X, own.y, own.frame, own.point_at], full_at),
    }


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


class _Refused(ValueError):
    """A complete message; any other error means that the file is damaged."""


class _Writer:
    """Lists objects, each once; ``templates`` are networks that the reader will have, too."""

    def __init__(self, templates: Sequence[nn.Module] = ()) -> None:
        self.templates, self.in_settings = templates, True
        self.objects: list[Json] = []
        self.tensors: dict[str, Tensor] = {}
        self.given: dict[str, Any] = {}  # what is not data in settings, by place
        self.known: dict[Any, tuple[int, Any]] = {}  # numbers; with the objects, to keep their ids

    def value(self, value: Any, place: str) -> Json:
        """Return plain values as they are, any other as its number in the list."""
        if type(value) in PLAIN:
            return value
        key: Any = id(value)
        if type(value) is Tensor and value.numel():  # the same memory is written once
            key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if key not in self.known:
            name, parts = self._parts(value, place)
            items = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
            written = {part: self.value(inner, f"{place}.{part}") for part, inner in items}
            listed = list(written.values())
            self.objects.append([name, written if isinstance(parts, Mapping) else listed])
            self.known[key] = len(self.objects) - 1, value
        number, _ = self.known[key]
        if self.in_settings and self.objects[number][0] == "given":
            self.given[place] = value
        return [number]

    def _parts(self, value: Any, place: str) -> tuple[str, Parts]:
        if type(value) is Tensor:
            return "tensor", self._tensor(value, place)
        kind = np.generic if isinstance(value, np.generic) else type(value)
        apart, _ = saveable_classes().get(kind, (lambda _: None, None))
        parts = apart(value)
        own = isinstance(value, nn.Module) and type(value) not in AROUND
        if own and None in map(_layer_parts, value.modules()):
            if self.in_settings:
                parts = None
            elif _describe(value) in map(_describe, self.templates):
                modes = [part.training for part in value.modules()]
                marks = [mark for mark, on in vars(value).items() if on is True]
                return "weights", [_describe(value), _tensors_of(value), modes, marks]
        if parts is not None:
            return _class_name(kind), parts
        if self.in_settings:
            return "given", [place]
        raise ValueError(f"{place} cannot be saved: it is {_name(value)}, not data ({value!r:.99})")

    def _tensor(self, tensor: Tensor, place: str) -> Parts:
        """Its stretch of memory: products of the same numbers in another layout may differ."""
        shape, stride = tuple(tensor.shape), tensor.stride()
        size = max(1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)), 0)
        single = tensor.detach()[tuple(slice(None if step else 1) for step in stride)].cpu()
        name = f"{len(self.tensors)} {ascii(place)[1:-1]}"
        self.tensors[name] = torch.zeros(size, dtype=tensor.dtype)
        self.tensors[name].as_strided(single.shape, stride).copy_(single)
        return [name, shape, stride, tensor.device]


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return dict((*module.named_parameters(), *module.named_buffers()))


def _read(objects: Json, tensors: Any, given: Any, templates: Any = (), device: Any = None) -> Any:
    """Make the objects of a list; return a function from what the writer returned to them."""
    makes = {_class_name(kind): make for kind, (_, make) in saveable_classes().items()} | {
        "tensor": lambda name, shape, stride, device: (
            tensors[name].to(device, copy=True).as_strided(shape, stride)
        ),
        "torch.device": partial(_device, device),
        "weights": partial(_weights, templates),
        "given": given.__getitem__,
    }
    made: list[Any] = []

    def value(written: Json) -> Any:
        return made[written[0]] if isinstance(written, list) else written

    for name, parts in objects:  # parts before wholes, so none refers to a later one
        if name not in makes:
            raise ValueError(f"{name!r} is not a class that a saved model may contain")
        if isinstance(parts, dict):
            made.append(makes[name](**{part: value(inner) for part, inner in parts.items()}))
        else:
            made.append(makes[name](*map(value, parts)))
    return value


def _device(location: torch.device | None, name: str) -> torch.device:
    found = location or torch.device(name)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise _Refused(f"the model is on {found}, which is not here: pass map_location='cpu'")
    return found


def _weights(templates: Any, structure: Any, tensors: Any, modes: Any, marks: Any) -> nn.Module:
    """A copy of a network with other weights."""
    network = next((each for each in templates if _describe(each) == structure), None)
    if network is None:
        raise _Refused("network: the one given has other layers than that of the file")
    memo = {id(old): tensors[name] for name, old in _tensors_of(network).items()}
    module: nn.Module = copy.deepcopy(network, memo)
    for part, mode in zip(module.modules(), modes, strict=True):
        part.training = bool(mode)
    vars(module).update(dict.fromkeys(marks, True))
    return module


def _name(value: Any) -> str:
    """Name of a function, or of the class of an object."""
    return getattr(value, "__name__", None) or f"of class {type(value).__name__}"


def _describe(value: Any) -> str:
    """What can be compared of an object: values, names of functions, structure of networks."""

    def simpler(value: Any) -> Json:
        if isinstance(value, nn.Module):
            own = _tensors_of(value).items()
            return [repr(value), {n: None if is_lazy(each) else [*each.shape] for n, each in own}]
        if isinstance(value, Tensor | np.ndarray | np.generic):
            return value.tolist()
        if isinstance(value, type) or not (is_dataclass(value) or hasattr(value, "get_params")):
            return _name(value)
        return {"class": type(value).__name__} | vars(value)

    return json.dumps(value, default=simpler, skipkeys=True)


def _templates(network: Any, rows: Tensor) -> list[nn.Module]:
    """The networks that the user brings, as modules for rows like these."""
    every = listed_networks(network) or (network,)
    return [make(each, rows, 0) for each in every if not isinstance(each, wide | mlp | None)]


def _outcome(model: Any, rows: Tensor) -> list[float] | None:
    """Point predictions at these rows; None if the network does not take them."""
    try:
        with torch.no_grad():
            return model.loo_.point(rows).tolist()  # type: ignore[no-any-return]
    except Exception:
        return None


class SaveMixin:
    """Estimators that can be written to a file and read again."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, completely or not at all.

        The file holds numbers and text, no code: settings, leave-one-out models, scaling and
        certificate. Functions and classes of your own (a network's class, a kernel function, a
        loss) are not in it and are passed to ``load`` again.

        Parameters
        ----------
        path
            The file; ``.lk`` is a common ending. An existing file is replaced.

        """
        check_is_fitted(self)
        model: Any = self
        settings, like = model.get_params(deep=False), model._rows_like
        rows = torch.from_numpy(np.random.default_rng(0).normal(size=(3, *like.shape[1:])))
        rows = (rows * like.is_floating_point()).to(like.dtype)  # codes of categories: 0
        writer = _Writer(_templates(settings.get("network"), rows))
        written = {name: writer.value(value, name) for name, value in settings.items()}
        needs = {place.split(".")[0]: _name(value) for place, value in writer.given.items()}
        described = {name: _describe(value) for name, value in settings.items()}
        if "scaling" in needs:  # what is passed is its fitted copy
            fitted = model.scaling_.transformer
            needs["scaling"], described["scaling"] = f"fitted, {_name(fitted)}", _describe(fitted)
            writer.known[id(fitted)] = len(writer.objects), fitted
            writer.objects.append(["given", ["scaling"]])
        writer.in_settings = False
        own = vars(self) | {ROWS: None}
        state = sorted(own.items(), key=lambda item: item[0].startswith("_"))
        document = {
            "lazyknife": version("lazyknife"),
            "class": type(self).__name__,
            "certificate": str(model.certificate_),
            "settings": written,
            "state": {n: writer.value(v, n) for n, v in state if n not in settings},
            "objects": writer.objects,
            "needs": needs,
            "described": described,
            "outcome": _outcome(self, rows),
        }
        text = torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
        content = safetensors.torch.save(writer.tensors | {"document": text, "probe": rows})
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            file.write(SCHEMA + sha256(content).hexdigest().encode() + b"\n")
            file.write(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], map_location: Any = None, **given: Any) -> Self:
        """Read a model that ``save`` wrote; nothing in the file is run.

        Parameters
        ----------
        path
            The file. One that is damaged or of another version or class is a ValueError.
        map_location
            Where the model goes: ``"cpu"``, ``"cuda"``, ``"auto"`` (a GPU if there is one) or a
            ``torch.device``. None: where it was.
        **given
            Settings with code, which is not in the file, under their own names: ``network=`` a
            module of the same class and shapes (its weights come from the file) or the list of
            candidates with its kernel functions, ``scaling=`` the fitted transformer, ``loss=``,
            ``base=``, ``features=`` or ``parameters=`` of your own. One that is not what the model
            was fitted with, as far as that can be compared, is a ValueError.

        """
        path, here, wrote = Path(path), version("lazyknife"), "an unknown version"
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError(f"{path} is not a file: give one that model.save wrote")
        device = None if map_location is None else find_device(map_location)
        try:
            with path.open("rb") as file:
                head, content = file.readline(200), file.read()
        except ValueError as error:  # a null character, half a character
            raise ValueError(f"{str(path)!r} is not the name of a file ({error})") from None
        try:
            if not head.startswith(SCHEMA):
                raise _Refused(
                    f"not a model that lazyknife {here} reads: it starts with {head[:20]!r}, not "
                    f"with {SCHEMA!r}. Give a file that model.save wrote, load it with the version "
                    "that wrote it, or fit and save again"
                )
            if head != SCHEMA + sha256(content).hexdigest().encode() + b"\n":
                raise ValueError("its hash differs")
            tensors = safetensors.torch.load(content)
            document = json.loads(tensors["document"].numpy().tobytes())
            wrote = document["lazyknife"]
            if (name := document["class"]) != cls.__name__:
                raise _Refused(f"it holds a {name}, not a {cls.__name__}: use {name}.load")
            if lacking := {k: what for k, what in document["needs"].items() if k not in given}:
                raise _Refused(
                    "the file has numbers, no code, and the model was fitted with "
                    f"{', '.join(f'{name} ({what})' for name, what in lacking.items())}: pass "
                    f"load({path.name!r}, {', '.join(f'{name}=...' for name in lacking)})"
                )
            walk, rows = _Writer(), tensors["probe"]
            for name, value in given.items():
                walk.value(value, name)
                if _describe(value) != (saved := document["described"].get(name, "no setting")):
                    raise _Refused(
                        f"{name}={value!r:.300} is not what the model was fitted with: {saved:.300}"
                    )
            parts, templates = walk.given | given, _templates(given.get("network"), rows)
            made = _read(document["objects"], tensors, parts, templates, device)
            settings = {name: made(written) for name, written in document["settings"].items()}
            changed = dict(given)
            if device is not None and settings.get("device", "auto") != "auto":
                changed["device"] = str(device)
            state = {name: made(written) for name, written in document["state"].items()}
            model: Any = _filled(cls, **vars(cls(**settings | changed)) | state)
            model._settings |= changed
            was, now = document["outcome"], _outcome(model, rows)
            alike = partial(np.allclose, rtol=CLOSE, atol=CLOSE, equal_nan=True)
            if given and was is not None and (now is None or not alike(was, now)):
                raise _Refused(
                    f"with what was given the model predicts {now} where it predicted {was}: pass "
                    "the network, kernel function or loss that it was fitted with"
                )
            return model  # type: ignore[no-any-return]
        except _Refused as error:
            raise ValueError(f"{path}: {error}") from error
        except Exception as error:
            raise ValueError(
                f"{path} is damaged or was changed ({type(error).__name__}: {error}): nothing was "
                "loaded. Copy the file again, or fit and save again (it was written by lazyknife "
                f"{wrote}, and this is {here})"
            ) from error
