"""Data sets: simulations, and real data with known hashes."""

from .files import DataNotFound, WrongHash
from .formulas import FORMULAS, draw_formula
from .published import PUBLISHED
from .record import DataSet, Entry
from .registry import DATASETS, find, load, meps
from .simulation import simulated
from .tables import TABLES, diabetes
