"""The versions of what runs, for reports and tables of results."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

PACKAGES = ("lazyknife", "torch", "numpy", "opacus")


@cache
def versions() -> dict[str, str]:
    """Return the versions of the main packages and of Python, by name."""
    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}
