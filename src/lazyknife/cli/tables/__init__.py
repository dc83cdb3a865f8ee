"""A user's files, read, checked and turned into the arrays that the estimators take."""

from .encoding import Encoded, encode, encode_one
from .formats import SUFFIXES, TableError
from .reading import read_table, read_tables
from .writing import check_output, write_table

__all__ = [
    "SUFFIXES",
    "Encoded",
    "TableError",
    "check_output",
    "encode",
    "encode_one",
    "read_table",
    "read_tables",
    "write_table",
]
