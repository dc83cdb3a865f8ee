"""A user's files, read, checked and turned into the arrays that the estimators take."""

from .encoding import Encoded, encode, encode_one
from .formats import SUFFIXES, TableError
from .reading import read_table, read_tables
from .writing import write_table

__all__ = [
    "SUFFIXES",
    "Encoded",
    "TableError",
    "encode",
    "encode_one",
    "read_table",
    "read_tables",
    "write_table",
]
