"""Names and defaults of the library's settings, read from its source so that help loads no torch.

A dict that is not written out at the place named here is looked up by importing its module.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def names(module: str, variable: str) -> str:
    """Return the keys of a dict as a list in words.

    >>> names("intervals.constructions", "CONSTRUCTIONS")
    'plus, minmax, full, cv+, jackknife or naive'
    """
    *first, last = members(module, variable)
    return f"{', '.join(first)} or {last}" if first else last


def members(module: str, variable: str) -> dict[str, str]:
    """Return the keys of a dict that are text, and the source of their values."""
    # One statement: its first line, and the lines that are indented or close a bracket.
    match = re.search(rf"^{variable}\b.*\n(?:[ )\]}}].*\n)*", _source(module), re.MULTILINE)
    value = getattr(ast.parse(match[0]).body[0], "value", None) if match else None
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        found = {getattr(key, "value", None): ast.unparse(of) for key, of in pairs}
    else:
        found = dict(getattr(import_module(f"lazyknife.{module}"), variable))
    return {name: str(of) for name, of in found.items() if isinstance(name, str)}


def defaults(module: str, class_name: str) -> dict[str, Any]:
    """Return the fields of a dataclass whose defaults are literals, with these."""
    classes = [node for node in ast.parse(_source(module)).body if isinstance(node, ast.ClassDef)]
    (body,) = (node.body for node in classes if node.name == class_name)
    return {
        ast.unparse(field.target): ast.literal_eval(field.value)
        for field in body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.value, ast.Constant | ast.Tuple)
        and "ClassVar" not in ast.unparse(field.annotation)
    }


def _source(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")
