"""Studies of the method: data sets, grids of trials, figures, verdicts. Not part of the wheel."""
