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

__all__ = [
    "COLLECTIONS",
    "METHODS",
    "STUDIES",
    "Grid",
    "Outcome",
    "Setting",
    "Study",
    "Trial",
    "Verdict",
    "draw",
    "fill",
    "named",
    "read_rows",
    "run_study",
    "run_trial",
    "summarise",
    "vary",
    "verdicts",
]
