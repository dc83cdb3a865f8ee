"""Every error and warning that the package can raise, read off its source.

``python -m research pages troubleshooting.md`` fills the list on that page from here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .pages import ROOT, markdown

SOURCE = ROOT / "src" / "lazyknife"
# Parts of the package under the headings that a user would look for; the rest is the last.
AREAS = {
    "Rows, targets and tables": ("data", "records", "results", "metrics"),
    "Settings and fits": ("estimators", "losses", "compare", "settings"),
    "Networks and features": ("networks", "tangent"),
    "Bases and certificates": ("base", "certificate", "intervals"),
    "Numbers, memory and devices": ("ridge", "compute", "memory"),
    "Files, plots and the command": (),
}
KINDS = {
    "error": "TableError",
    "column_error": "TableError",
    "cannot": "ValueError",
    "SystemExit": "exit",
    "warn": "warning",
}
Names = dict[str, list[ast.expr]]  # what names may stand for


class Message(NamedTuple):
    """What a user reads, with ⟨values⟩ in brackets, and what raises it."""

    area: str
    kind: str
    text: str


def all_messages() -> list[Message]:
    """Return every message once, in the order of areas and texts."""
    shared = assigned(parsed(SOURCE / "sentences.py"))
    found = {m for path in SOURCE.rglob("*.py") for m in of_file(path, shared)}
    return sorted(found, key=lambda m: (list(AREAS).index(m.area), m.text.lower(), m.kind))


def of_file(path: Path, shared: Names) -> Iterator[Message]:
    """Yield the messages of one file."""
    tree = parsed(path)
    known = shared | assigned(tree, inner=False) | returned(tree)
    for function in [tree, *functions(tree)]:
        names = known | assigned(function, inner=function is not tree)
        for kind, call in raised(function):
            for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                for text in texts(argument, names):
                    if " " in text.strip():  # others are names, or were listed where they came from
                        yield Message(area_of(path), kind, " ".join(text.split()))


def parsed(path: Path) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """Return all functions of a tree."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def own(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, but for those of functions inside of it."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from own(child)


def assigned(tree: ast.AST, inner: bool = True) -> Names:
    """Return what names are set to in a tree; ``inner`` also in its functions."""
    names: Names = {}
    for node in ast.walk(tree) if inner else own(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.setdefault(node.targets[0].id, []).append(node.value)
    return names


def returned(tree: ast.AST) -> Names:
    """Return what the functions of a tree return."""
    return {
        f.name: [n.value for n in own(f) if isinstance(n, ast.Return) and n.value is not None]
        for f in functions(tree)
    }


def raised(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls that make errors and warnings, with their kinds."""
    for node in own(tree):
        match node:
            case ast.Raise(exc=ast.Call() as call):
                yield kind_of(call), call
            case ast.Return(value=ast.Call() as call) if called(call).lower().endswith("error"):
                yield kind_of(call), call
            case ast.Call() as call if called(call) == "warn":
                yield KINDS["warn"], call
            case ast.Call(func=ast.Attribute(value=ast.Call(), attr="__init__")) as call:
                yield "error", call  # an error that writes its own message


def kind_of(call: ast.Call) -> str:
    """Return the class of an error, or just that it is one."""
    name = called(call)
    return "error" if name.startswith("_") else KINDS.get(name, name)


def called(call: ast.Call) -> str:
    """Return the name of what is called, without its module."""
    return ast.unparse(call.func).split(".")[-1]


def texts(node: ast.expr, names: Names) -> list[str]:
    """Return what a user may read where an expression is printed; nothing if it is no text."""
    match node:
        case ast.Constant(value=str(value)):
            return [value]
        case ast.FormattedValue(value=value):
            return [f"⟨{brief(value)}⟩"]
        case ast.JoinedStr(values=values):
            return ["".join(text for value in values for text in texts(value, names))]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            ends = texts(right, names) or ["…"]
            return [first + last for first in texts(left, names) or ["…"] for last in ends]
        case ast.IfExp(body=body, orelse=other):
            return [*texts(body, names), *texts(other, names)]
        case ast.Tuple(elts=values) | ast.Dict(values=values):
            return [text for value in values for text in texts(value, names)]
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return [bracketed(text) for text in texts(value, names)]
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name)):
            others = {key: value for key, value in names.items() if key != name}
            return [text for value in names.get(name, ()) for text in texts(value, others)]
    return []


def brief(node: ast.expr) -> str:
    """Return a word for a value: its name, or the last one in its expression."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Name)]
    if not found:
        return "…"
    name = found[0] if node is found[0] else found[-1]
    return (name.attr if isinstance(name, ast.Attribute) else name.id).strip("_").lower()


def bracketed(text: str) -> str:
    """Return a format with its fields in brackets."""
    return re.sub(r"\{(\w+)[^}]*\}", r"⟨\1⟩", text)


def area_of(path: Path) -> str:
    """Return the heading under which the messages of a file are listed."""
    part = path.relative_to(SOURCE).with_suffix("").parts[0]
    return next((area for area, parts in AREAS.items() if part in parts), list(AREAS)[-1])


def messages_table() -> str:
    """Return the list of messages, a table for each area."""
    found = all_messages()
    return "\n".join(
        f"### {area}\n\n"
        + markdown(("message", "kind"), [(shown(m.text), m.kind) for m in found if m.area == area])
        for area in AREAS
    )


def sentences_table() -> str:
    """Return every sentence of a certificate."""
    names = assigned(parsed(SOURCE / "sentences.py"))
    every = [text for name in names if name.isupper() for text in texts(names[name][0], names)]
    return markdown(("sentence",), [(shown(bracketed(text)),) for text in every if " " in text])


def shown(text: str) -> str:
    """Return a text for a cell of a table."""
    return re.sub(r"([|*_`])", r"\\\1", text).replace("<", "&lt;")


TABLES = {"messages": messages_table, "sentences": sentences_table}
