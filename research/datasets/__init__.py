"""Data sets: the paper's simulation, and real data with known hashes."""

from .files import DataNotFound, WrongHash
from .record import DataSet, Entry
from .registry import DATASETS, find, load, meps
from .simulation import simulated
