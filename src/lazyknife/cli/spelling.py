"""Messages of the library in the spelling of the command: ``--ridge 0``, not ``ridge=0.0``."""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from collections.abc import Collection

from .library import members

# Settings of the library whose options have other names.
OTHER_NAMES = {
    "random_state": "seed",
    "n_parameters": "parameters",
    "features": "sketch",
    "dimension": "sketch",
    "network": "hidden",
    "method": "methods",
    "bounds": "lower_bound",  # and upper_bound
}
FLAGS = {"methods": "method", "id_column": "id"}  # of parameters of the commands
NONE = ("scaling", "feature_weights")  # options with a value "none"
_CALL = r"[A-Za-z_.]\w*\((?:[^()]|\([^()]*\))*\)"
_TEXT = "'[^']*'|\"[^\"]*\""
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_VALUE = rf"{_TEXT}|{_CALL}|\[[^\]]*\]|\([\d'N-][^)]*\)|{_NUMBER}|\w[\w.+]*|"
_SETTING = re.compile(rf"(?<![\w.\[])([A-Za-z]\w*)=(?!=)({_VALUE})")
_BASES = {of: kind for kind, of in members("base", "BASES").items()}
_BASE = re.compile(rf"\b({'|'.join(_BASES)})\(\)")
_POOL = re.compile(r" with X_pool\b|, or give (the )?rows? .{0,40} as X_pool")
_NAME = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ENCODER = re.compile(rf"encoding=TableEncoder\((categorical|ignore)=\[({_NAME})\]\)")
_ROLES = {"categorical": ("categorical",), "ignore": ("drop", "id_column")}


def spelled(message: str, parameters: Collection[str]) -> str:
    """Return a message with the options of a command, given by its parameters, as they are typed.

    >>> spelled("ridge=-1.0: give a number above 0; use features=Sketch(64)", ["ridge", "sketch"])
    '--ridge -1.0: give a number above 0; use --sketch 64'
    """

    def option(match: re.Match[str]) -> str:
        name = OTHER_NAMES.get(match[1], match[1])
        if name == "widths" and match[2].startswith("("):  # of the layers of a network
            name = "hidden"
        return match[0] if name not in parameters else typed(name, match[2])

    def roles(match: re.Match[str]) -> str:
        column = shlex.quote(literal_eval(match[2]))
        ways = (FLAGS.get(name, name) for name in _ROLES[match[1]] if name in parameters)
        return " or ".join(f"--{flag} {column}" for flag in ways)

    found = _SETTING.sub(option, _POOL.sub("", _ENCODER.sub(roles, message)))
    return _BASE.sub(lambda match: f"--base {_BASES[match[1]]}", found)


def typed(name: str, value: str) -> str:
    """Return an option with its value, written in Python, as it is typed in a shell."""
    flag = f"--{FLAGS.get(name, name).replace('_', '-')}"
    if value in ("True", "False"):
        return flag if value == "True" else flag.replace("--", "--no-", 1)
    if value == "None":
        return f"{flag} none" if name in NONE else f"no {flag}"
    ends = re.fullmatch(r"\((.*), (.*)\)", value)
    if name == "lower_bound" and ends:
        return f"{typed(name, ends[1])} {typed('upper_bound', ends[2])}"
    shown = _shown(name, value)
    return f"{flag} {shown}" if shown else flag


def _shown(name: str, value: str) -> str:
    """Return a value without Python's quotation marks, brackets and calls."""
    called = re.fullmatch(r"([A-Za-z_.]\w*)(\(.*\))?", value, re.DOTALL)
    if name == "base" and called and called[1] in _BASES:
        return _BASES[called[1]]
    if name in ("hidden", "sketch") and called:
        widths = re.search(r"\d+(, *\d+)*", called[2] or "")
        return widths[0].replace(" ", "") if widths else ""
    if name == "hidden":
        return ",".join(re.findall(r"\d+", value))
    return value.strip("'\"").replace("math.inf", "inf")
