"""The code blocks of a page, run in order, and what they print."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from alike import check_same_page

RUN = ("python", "sh")
SHOWN = ("text", "bibtex")  # neither code nor anything that should run
BLOCK = re.compile(
    r"(?P<reason><!-- not run: [^>]+ -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of code: its language, its text, its line on the page, and what it should print."""

    language: str
    code: str
    line: int
    output: str | None


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks that run, each with the output shown directly below it."""
    found = list(BLOCK.finditer(page))
    for block, below in zip_longest(found, found[1:]):
        if block["reason"] or block["language"] in SHOWN:
            continue
        shown = below is not None and below["language"] == "text"
        if shown and page[block.end() : below.start()].strip():
            shown = False  # there is a paragraph in between
        line = page.count("\n", 0, block.start("code")) + 1
        yield Block(block["language"], block["code"], line, below["code"] if shown else None)


def run_page(path: Path) -> int:
    """Run a page in the current folder; return the number of its blocks."""
    names: dict[str, Any] = {"__name__": "page"}
    found = list(blocks(path.read_text(encoding="utf-8")))
    for block in found:
        where = f"{path.name}:{block.line}"
        assert block.language in RUN, f"{where}: {block.language!r} is neither run nor marked"
        is_python = block.language == "python"
        printed = run_python(block, names, where) if is_python else run_shell(block)
        if block.output is not None:
            check_same_page(printed, block.output)
    return len(found)


def run_python(block: Block, names: dict[str, Any], where: str) -> str:
    """Run a block in a page's names; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, where, "exec", dont_inherit=True), names)
    return printed.getvalue()


def run_shell(block: Block) -> str:
    """Run a block in a shell that finds this environment's commands; return its output."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", block.code],
        env={**os.environ, "PATH": folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.code}{done.stdout}{done.stderr}"
    return done.stdout
