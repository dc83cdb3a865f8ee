"""Studies: a declarative grid of data × methods × settings × trials, run into tidy rows."""

from .catalogue import COLLECTIONS, STUDIES, named
from .figures import draw
from .grid import Grid, Setting, Study, Trial, vary
from .methods import METHODS
from .rows import DamagedRows, read_rows
from .run import FailedTrials, Outcome, run_study
from .show import summarise
from .tables import fill
from .trial import run_trial, run_trials
from .verdict import Verdict, moved, verdicts
