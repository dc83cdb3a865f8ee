"""A user's files, read, checked and turned into the arrays that the estimators take."""

from .encoding import Encoded, encode, encode_one
from .files import read_table, read_tables, write_table
from .formats import SUFFIXES, TableError

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
