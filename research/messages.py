"""Every error and warning that the package can raise, read off its source.

``python -m research pages troubleshooting.md`` fills the list on that page from here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .pages import ROOT, markdown

SOURCE = ROOT / "src" / "lazyknife"
# Parts of the package under the headings that a user would look for; the rest is the last.
AREAS = {
    "Rows, targets and tables": ("data", "tables", "records", "metrics"),
    "Settings and fits": ("estimators", "losses", "compare"),
    "Networks and features": ("networks", "tangent"),
    "Bases and certificates": ("base", "certificate", "intervals"),
    "Numbers, memory and devices": ("solve", "compute", "matmul"),
    "Files, plots and the command": (),
}
WARNINGS = {"warn", "warn_user"}
KINDS = {"error": "TableError", "SystemExit": "exit"}


class Message(NamedTuple):
    """What a user reads, with ⟨values⟩ in brackets, and what raises it."""

    area: str
    kind: str
    text: str


class Scope(NamedTuple):
    """Names that stand for texts: those of the module, and those of the function."""

    texts: Mapping[str, ast.expr]

    def text(self, node: ast.expr) -> str:
        """Return a text as a user would read it; an empty one if it is not a text."""
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.JoinedStr(values=values):
                return "".join(map(self.text, values))
            case ast.FormattedValue(value=value):
                return f"⟨{brief(value)}⟩"
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.text(left) + self.text(right)
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                return bracketed(self.text(value))
            case ast.Name(id=name) if name in self.texts:
                return self.inside(name)
            case ast.Attribute(attr=name) if name in self.texts:
                return self.inside(name)
        return ""

    def inside(self, name: str) -> str:
        """Return the text that a name stands for; without the name, lest it refer to itself."""
        others = {key: value for key, value in self.texts.items() if key != name}
        return Scope(others).text(self.texts[name])


def brief(node: ast.expr) -> str:
    """Return a word for a value: the last name in its expression."""
    names = [
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute | ast.Name)
    ]
    plain = isinstance(node, ast.Attribute | ast.Name)
    return (names[0] if plain else names[-1]).strip("_").lower() if names else "…"


def assigned(tree: ast.AST) -> dict[str, ast.expr]:
    """Return what names are set to, wherever in a tree."""
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def raised(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls that make errors and warnings, with their kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield KINDS.get(name := called(node.exc), name), node.exc
        elif isinstance(node, ast.Call) and called(node) in WARNINGS:
            yield "warning", node
        elif isinstance(node, ast.ClassDef):  # an error that writes its own message
            inits = [
                n for n in ast.walk(node) if isinstance(n, ast.Call) and called(n) == "__init__"
            ]
            yield from ((node.name, call) for call in inits)


def called(call: ast.Call) -> str:
    """Return the name of what is called, without its module."""
    return ast.unparse(call.func).split(".")[-1]


def area_of(path: Path) -> str:
    """Return the heading under which the messages of a file are listed."""
    part = path.relative_to(SOURCE).with_suffix("").parts[0]
    return next((area for area, parts in AREAS.items() if part in parts), list(AREAS)[-1])


def of_file(path: Path, shared: Mapping[str, ast.expr]) -> Iterator[Message]:
    """Yield the messages of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    scope = Scope({**shared, **assigned(tree)})
    for kind, call in raised(tree):
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        text = max(map(scope.text, values), key=len, default="")
        if len(text) > 3:  # what is raised again has been listed where it came from
            yield Message(area_of(path), kind, " ".join(text.split()))


def all_messages() -> list[Message]:
    """Return every message once, in the order of areas and texts."""
    shared = assigned(ast.parse((SOURCE / "sentences.py").read_text(encoding="utf-8")))
    found = {m for path in SOURCE.rglob("*.py") for m in of_file(path, shared)}
    return sorted(found, key=lambda m: (list(AREAS).index(m.area), m.text.lower()))


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
    texts = assigned(ast.parse((SOURCE / "sentences.py").read_text(encoding="utf-8")))
    every = [Scope(texts).inside(name) for name in texts if name.isupper()]
    return markdown(("sentence",), [(shown(bracketed(text)),) for text in every if " " in text])


def bracketed(text: str) -> str:
    """Return a format with its fields in brackets."""
    return re.sub(r"\{(\w+)[^}]*\}", r"⟨\1⟩", text)


def shown(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


TABLES = {"messages": messages_table, "sentences": sentences_table}
