"""Data sets: simulations, and real data with known hashes."""

from .files import DataNotFound, WrongHash
from .formulas import FORMULAS, draw_formula, simulated
from .record import DataSet, Entry
from .registry import DATASETS, FRAMES, PUBLISHED, TABLES, diabetes, find, load, meps
