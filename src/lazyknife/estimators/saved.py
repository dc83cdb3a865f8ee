"""Saved models: one file with everything that a fitted estimator needs to predict."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ..compute import find_device
from ..networks import listed_networks, make, mlp, wide
from ..saving import (
    DTYPES,
    Container,
    Reader,
    Refused,
    Writer,
    describe,
    difference,
    read_container,
    write_container,
)
from .known import KNOWN

PathLike = str | os.PathLike[str]
BROKEN = (
    *(KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError),
    *(ArithmeticError, MemoryError),
)
PROBES = 3  # rows at which predictions before and after are compared
MOST_FEATURES = 10**8  # of a row: what a file says decides how much memory the probes take
CLOSE = 1e-6  # relative: other processors round differently, other networks differ by more


class Saved:
    """Estimators that can be written to a file and read again."""

    def save(self, path: PathLike) -> None:
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
        settings = self.get_params(deep=False)  # type: ignore[attr-defined]
        named = sorted(vars(self).items(), key=lambda item: item[0].startswith("_"))
        state = {name: value for name, value in named if name not in settings}
        rows = _probe(state["_rows_like"])
        writer = Writer(KNOWN, _templates(settings["network"], rows))
        written = {name: writer.setting(name, value) for name, value in settings.items()}
        if "scaling" in writer.needs:
            writer.given(state["scaling_"].transformer, "scaling")
        document = {
            "class": type(self).__name__,
            "certificate": str(self.certificate_),  # type: ignore[attr-defined]
            "settings": written,
            "state": {name: writer.at(name, value) for name, value in state.items()},
            "objects": writer.objects,
            "rows": [str(rows.dtype), [0, *rows.shape[1:]]],
            "needs": writer.needs,
            "descriptions": {name: describe(value) for name, value in settings.items()},
            "outcome": writer.value(_outcome(self, rows)),
        }
        write_container(Path(path), Container(document, writer.tensors))

    @classmethod
    def load(cls, path: PathLike, map_location: Any = None, **given: Any) -> Self:
        """Read a model that ``save`` wrote; nothing in the file is run.

        Parameters
        ----------
        path
            The file.
        map_location
            Where the model goes: ``"cpu"``, ``"cuda"``, ``"auto"`` (a GPU if there is one) or a
            ``torch.device``. None: where it was.
        **given
            Settings that are not in the file because they contain code, under their own names:
            ``network=`` a module of the same class and shapes (its weights come from the file) or
            the list of candidates with its kernel functions, ``scaling=`` the fitted transformer,
            ``loss=``, ``base=``, ``features=`` or ``parameters=`` of your own. Each is compared
            with what the model was fitted with.

        Raises
        ------
        ValueError
            If the file is truncated, was changed, is of a newer schema, or holds a model of another
            class; if a setting that it needs is missing or is another one.

        """
        path = Path(path)
        document, tensors = read_container(path)
        if document.get("class") != cls.__name__:
            name = document.get("class")
            raise ValueError(f"{path} holds a {name}, not a {cls.__name__}: use {name}.load")
        with _explained(path, document):
            _check_given(path, document, given)
            rows = _probe(_rows_like(document["rows"]))
            templates = _templates(given.get("network"), rows)
            device = None if map_location is None else find_device(map_location)
            reader = Reader(KNOWN, document["objects"], tensors, given, templates, device)
            model = cls._of(document, reader)
            if given:
                _check_outcome(reader.value(document["outcome"]), _outcome(model, rows))
        return model

    @classmethod
    def _of(cls, document: Mapping[str, Any], reader: Reader) -> Self:
        """Return an estimator with settings and state of a file."""
        settings = {name: reader.value(data) for name, data in document["settings"].items()}
        settings |= reader.given
        if reader.map_location is not None and settings.get("device", "auto") != "auto":
            settings["device"] = str(reader.map_location)
        model = cls(**settings)
        for name, data in document["state"].items():
            if callable(getattr(cls, name, None)):
                raise ValueError(f"{name!r} is not a fitted attribute")
            setattr(model, name, reader.value(data))
        replaced = {name: settings[name] for name in {*reader.given, "device"} & settings.keys()}
        model._settings |= replaced  # type: ignore[attr-defined]
        return model


@contextmanager
def _explained(path: Path, document: Mapping[str, Any]) -> Iterator[None]:
    """Name the file and the versions in errors about what is in it."""
    try:
        yield
    except Refused as error:
        raise ValueError(f"{path}: {error}") from error
    except BROKEN as error:
        raise ValueError(
            f"{path} was written by lazyknife {document.get('lazyknife')}, and lazyknife "
            f"{version('lazyknife')} cannot read it ({type(error).__name__}: {error}): nothing was "
            "loaded. Use the version that wrote it, or fit and save again"
        ) from error


def _check_given(path: Path, document: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse settings that are missing, unknown or other ones than the model was fitted with."""
    known = document["descriptions"]
    for name, value in given.items():
        if name not in known:
            raise Refused(f"{name}= is no setting of {document['class']}")
        found = difference(known[name], describe(value))
        if found:
            raise Refused(f"{name}={value!r:.200} is not what the model was fitted with: {found}")
    missing = {name: what for name, what in document["needs"].items() if name not in given}
    if missing:
        listed = ", ".join(f"{name} ({what})" for name, what in missing.items())
        call = ", ".join(f"{name}=..." for name in missing)
        raise Refused(
            f"the file has numbers, no code, and the model was fitted with {listed}: pass "
            f"load({path.name!r}, {call})"
        )


def _templates(network: Any, rows: Tensor) -> list[nn.Module]:
    """The networks that the user brings, as modules for rows like these."""
    every = listed_networks(network) or (network,)
    return [make(each, rows, 0) for each in every if not isinstance(each, wide | mlp | None)]


def _rows_like(data: Any) -> Tensor:
    dtype, shape = data
    if math.prod(shape[1:]) > MOST_FEATURES:
        raise ValueError(f"rows of shape {shape[1:]} have more than {MOST_FEATURES:,} numbers")
    return torch.empty(shape, dtype=DTYPES[dtype])


def _probe(like: Tensor) -> Tensor:
    """Rows to try a network on, the same ones whenever they are drawn."""
    shape = (PROBES, *like.shape[1:])
    if not like.is_floating_point():
        return torch.zeros(shape, dtype=like.dtype)
    values = np.random.default_rng(0).normal(size=shape)
    return torch.from_numpy(values).to(like.dtype)


def _outcome(model: Any, rows: Tensor) -> list[float] | None:
    """Point predictions at these rows; None if the network does not take them."""
    try:
        with torch.no_grad():
            found: list[float] = model.loo_.point(rows).tolist()
    except Exception:
        return None
    return found


def _check_outcome(saved: list[float] | None, found: list[float] | None) -> None:
    """Refuse a model that does not predict as the one that was saved."""
    if saved is None:
        return
    if found is None or not np.allclose(saved, found, rtol=CLOSE, atol=CLOSE, equal_nan=True):
        raise Refused(
            f"with what was given the model predicts {found} where it predicted {saved}: pass the "
            "network, kernel function or loss that it was fitted with"
        )
