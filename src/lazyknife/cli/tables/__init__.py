"""A user's files, read into frames with typed columns. Importing this loads no other package."""

from ...errors import TableError
from .files import open_file, read_table, write_table
from .formats import SUFFIXES
from .names import Header, Roles, check_names
from .reading import Reading
from .same import with_target
from .typed import Tables, read_tables, type_files
from .writing import table_bytes

__all__ = [
    "SUFFIXES",
    "Header",
    "Reading",
    "Roles",
    "TableError",
    "Tables",
    "check_names",
    "open_file",
    "read_table",
    "read_tables",
    "table_bytes",
    "type_files",
    "with_target",
    "write_table",
]
