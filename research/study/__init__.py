"""Studies: a declarative grid of data × methods × settings × trials, run into tidy rows."""

from .catalogue import COLLECTIONS, STUDIES, named
from .figures import draw
from .grid import Grid, Setting, Study, Trial, vary
from .methods import METHODS
from .run import Outcome, read_rows, run_study
from .summary import summarise
from .tables import fill
from .trial import run_trial
from .verdict import Verdict, verdicts
