"""What rows were made with: the commit, and a hash of the code that their numbers depend on.

The hash is of syntax trees without docstrings, so neither a comment nor a layout changes it, and
it can be compared where there is no history: in a shallow clone, or an archive. It is that of the
code that made the row, or of later code that gives the same numbers (``renew``).
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ..pages import ROOT
from .catalogue import PAPER

EVERYTHING = ("src/lazyknife/**/*.py", "research/datasets/*.py", "research/study/*.py")
# Where the numbers of the paper's methods come from; a test runs them and looks for other modules.
PATHS: dict[str, tuple[str, ...]] = {
    "src/lazyknife/base": ("dpsgd", "method", "plain", "privacy"),
    "src/lazyknife/networks": ("building", "calls", "mlp"),
    "src/lazyknife/tangent": ("basis", "capture", "parts", "tangent"),
    "src/lazyknife/ridge": ("dual", "leave_one_out", "problem", "readout", "system", "widths"),
    "src/lazyknife/intervals": ("asked", "constructions", "models", "order"),
    "src/lazyknife/estimators": ("baselines", "fit_network", "paper"),
    "research/datasets": ("formulas", "readers", "record"),
    "research/study": ("methods", "trial"),
}


def stamp(study: str) -> dict[str, str]:
    """Return the cells that tell what a row of this study is made with now."""
    return {"commit": commit(), "code": code(study)}


@cache
def commit() -> str:
    """Return git's name of the checkout, with "-dirty" if its code differs; "" without git.

    It is that of the start: rows that a run writes into the checkout change no code.
    """
    name = _git("describe", "--always", "--exclude=*", "--abbrev=10")
    return f"{name}-dirty" if _git("status", "--porcelain", "--", "src", "research") else name


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return found.stdout.strip()


@cache
def code(study: str, root: Path = ROOT) -> str:
    """Hash what a study depends on: the paper's own path through the code, or all of it."""
    own = [f"{folder}/{name}.py" for folder, names in PATHS.items() for name in names]
    globs = own if study in PAPER else EVERYTHING
    paths = sorted({path for glob in globs for path in root.glob(glob)})
    trees = [(path.relative_to(root).as_posix(), syntax(path.read_text("utf-8"))) for path in paths]
    return hashlib.sha256(repr(trees).encode()).hexdigest()[:12]


def syntax(source: str) -> Any:
    """Return a module as nested tuples that mean the same in every version of Python."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node):
                node.body = node.body[1:]
    return _plain(tree)


def _plain(node: Any) -> Any:
    if isinstance(node, ast.AST):
        fields = [(k, _plain(v)) for k, v in ast.iter_fields(node) if v is not None and v != []]
        return type(node).__name__, fields
    return [_plain(each) for each in node] if isinstance(node, list) else node
