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
    """Return the keys of a dict, or the members of a tuple, as a list in words.

    >>> names("intervals.constructions", "CONSTRUCTIONS")
    'plus, minmax, full, cv+, jackknife or naive'
    """
    *first, last = _members(module, variable)
    return f"{', '.join(first)} or {last}" if first else last


def _members(module: str, variable: str) -> list[str]:
    # One statement: its first line, and the lines that are indented or close a bracket.
    match = re.search(rf"^{variable}\b.*\n(?:[ )\]}}].*\n)*", _source(module), re.MULTILINE)
    value = getattr(ast.parse(match[0]).body[0], "value", None) if match else None
    written = getattr(value, "keys", None) or getattr(value, "elts", [])
    if written and all(isinstance(member, ast.Constant) for member in written):
        found = [member.value for member in written]
    else:
        found = list(getattr(import_module(f"lazyknife.{module}"), variable))
    return [name for name in found if isinstance(name, str)]


def defaults(module: str, class_name: str) -> dict[str, Any]:
    """Return the arguments of a class with their defaults, which must be literals."""
    pattern = rf"^class {class_name}\b.*?^    def __init__\((.*?)\) -> None:"
    found = re.search(pattern, _source(module), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{class_name} has no __init__ in {module}"
    arguments = ast.parse(f"def init({found[1]}): ...").body[0].args  # type: ignore[attr-defined]
    given = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    return {
        argument.arg: ast.literal_eval(default)
        for argument, default in zip(given, arguments.defaults, strict=True)
    }


def _source(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")
