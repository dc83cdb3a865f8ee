"""Frames with columns of any kind as arrays, without a leak."""

from ..errors import TableError
from .encoder import TableEncoder, as_frame
from .expansion import Expansion, expansion_of
from .schema import Schema, schema_of

__all__ = [
    "Expansion",
    "Schema",
    "TableEncoder",
    "TableError",
    "as_frame",
    "expansion_of",
    "schema_of",
]
