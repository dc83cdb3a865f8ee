"""Prediction intervals with a coverage guarantee, for tables and PyTorch networks.

The public names are listed once, in ``__init__.pyi``. They are loaded when first used, so that the
engine (``lazyknife.tangent``, ``lazyknife.ridge``) imports with numpy and torch alone and the
command answers ``--help`` without either.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOME_OF = {
    alias.name: f".{node.module}"
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes longer than all the rest

        return version("lazyknife")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lazyknife' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
