"""A caller's own study from a Python file: its grid, its data and its methods."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle

from ..study import Study

NAME = "research_own_study"
NEEDED = "study = Study(...), and data = {...} and methods = {...} if it brings its own"


class OwnStudy(NamedTuple):
    """What a file defines."""

    study: Study
    data: Mapping[str, Any]
    methods: Mapping[str, Any]


def load_study(path: Path) -> OwnStudy:
    """Run a Python file and return its ``study``, ``data`` and ``methods``."""
    module = _module(path)
    study = getattr(module, "study", None)
    if not isinstance(study, Study):
        raise ValueError(f"--module {path}: the file must define {NEEDED}")
    found = {name: getattr(module, name, {}) for name in ("data", "methods")}
    for name, value in found.items():
        if not isinstance(value, Mapping):
            raise ValueError(f"--module {path}: {name} must be a dict by name, not {value!r}")
    return OwnStudy(study, **found)


def _module(path: Path) -> ModuleType:
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"--module {path}: there is no such Python file")
    spec = spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    # Other processes cannot import the file: they get its functions as they are.
    cloudpickle.register_pickle_by_value(module)
    return module
