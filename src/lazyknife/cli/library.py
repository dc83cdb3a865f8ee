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


def field_defaults(module: str, class_name: str) -> dict[str, Any]:
    """Return the fields of a dataclass whose defaults are numbers or text, with these."""
    pattern = rf"^class {class_name}\b(.*?)(?:^    def |\Z)"
    found = re.search(pattern, _source(module), re.MULTILINE | re.DOTALL)
    fields = re.findall(r"^    (\w+): .+? = ([\d.e-]+|\"\w+\")$", found[1], re.M) if found else []
    return {name: ast.literal_eval(default) for name, default in fields}


def _source(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")
