"""Graphs of records as one file of tensors and JSON, and back, without running code from it.

The package knows no class of its own: who writes or reads passes the dict of those that may occur.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from .container import SCHEMA, Container, read_container, write_container
from .describe import describe, difference
from .forms import DTYPES, Codec, Known
from .reader import Reader, Refused
from .writer import Unsaved, Writer
