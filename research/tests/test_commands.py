"""``python -m research``: studies, data sets, pages and experiments from a shell."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from research import datasets
from research.__main__ import EXPERIMENTS, app
from research.pages import DOCS
from research.study import STUDIES, Grid, Setting, Study
from typer.testing import CliRunner

from alike import check_same_page


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "fig9"], "no study 'fig9': choose from fig2a"),
        (["study", "fig2a", "--output", __file__], "test_commands.py: this is a file"),
        (["study", "fig2a", "--jobs", "0"], "--jobs 0: give 1 or more, or -1 for all cores"),
        (["datasets", "x"], "no data set 'x': choose from blog_feedback.*simulated_p16"),
        (["datasets", "simulated_px", "-o", "x.csv"], "no data set 'simulated_px'"),
        (["datasets", "simulated_p3"], "give --output to say where to write simulated_p3"),
        (["datasets", "simulated_p3", "-o", "x.doc"], "x.doc: give a name that ends in .csv"),
        (["experiment", "x"], "no experiment 'x': choose from choosing, constructions"),
        (["pages", "nothing.md"], "nothing.md"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert re.search(f"error: .*{message}", line)


@pytest.mark.slow
def test_the_commands_are_those_of_the_module():
    command = [sys.executable, "-m", "research", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    for name in ("study", "experiment", "datasets", "pages"):
        assert re.search(rf"│ {name} ", text.stdout)


def test_experiments_are_listed_and_have_a_module():
    printed = succeed("experiment")
    modules = (DOCS.parent / "research/experiments").glob("*.py")
    assert {path.stem for path in modules if "\ndef main(" in path.read_text()} == set(EXPERIMENTS)
    assert all(f"{name}: {what}" in printed for name, what in EXPERIMENTS.items())


def test_a_page_is_filled_from_the_committed_rows(monkeypatch, tmp_path):
    text = (DOCS / "evidence.md").read_text(encoding="utf-8")
    page = tmp_path / "evidence.md"
    page.write_text(re.sub(r"\n\| simulation[^\n]*", "", text), encoding="utf-8")
    succeed("pages", page)
    check_same_page(page.read_text(encoding="utf-8"), text)


# study

SMALL = Setting(n=20, n_test=30, epochs=1)


def small(*settings):
    grid = Grid(("simulated_p4",), ("lazy_public", "lazyknife_public"), settings or (SMALL,))
    return Study("small", "A small study", (grid,), trials=2)


@pytest.fixture
def studied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(STUDIES, "small", small())
    return tmp_path


def study(*options):
    return ("study", "small", "--jobs", "1", *options)


@pytest.mark.slow
def test_a_study_runs_goes_on_and_is_drawn_again(studied):
    printed = succeed(*study("--trials", "1"))
    assert "2 of 2 trials run now; results/small.csv, results/small.svg" in printed
    assert printed.splitlines()[0].strip() == "A small study"
    assert re.search(r"\nsimulation, p = 4 +lazy_public +\d", printed)
    first = (studied / "results" / "small.csv").read_text()
    assert "2 of 4 trials run now" in succeed(*study())
    whole = (studied / "results" / "small.csv").read_text()
    assert all(line in whole for line in first.splitlines())
    drawing = studied / "results" / "small.svg"
    drawn = drawing.read_bytes()
    drawing.unlink()
    assert "0 of 4 trials run now" in succeed(*study())
    assert drawing.read_bytes() == drawn
    assert (studied / "results" / "small.csv").read_text() == whole


@pytest.mark.parametrize("all_fail", [False, True])
def test_a_study_with_a_failed_trial_says_so(studied, monkeypatch, all_fail):
    bad = Setting(n=5000, epochs=1)
    monkeypatch.setitem(STUDIES, "small", small(*([bad] if all_fail else [SMALL, bad])))
    result = run(*study("--trials", "1", "--output", "here"))
    assert result.exit_code == 1
    assert result.stderr == (
        "error: trials failed; the next run tries them again: "
        "1 × lazy_public on simulated_p4: ValueError: n=5000: simulated_p4 has only 5000 rows; "
        "1 × lazyknife_public on simulated_p4: ValueError: n=5000: simulated_p4 has only 5000 "
        "rows\n"
    )
    assert (studied / "here" / "small.svg").exists() == (not all_fail)
    assert ("small.svg" in result.stdout) == (not all_fail)


def test_studies_are_listed(studied):
    printed = succeed("study")
    assert re.search(r"\nfig2a +Figure 2a: simulation, p = 16 +45\n", printed)
    assert "\npaper: fig2a, fig2b" in printed


def test_data_sets_are_listed_and_written(studied):
    printed = succeed("datasets")
    assert re.search(r"\nblog_feedback +log\(1 \+ comments\) +52397 +280\n", printed)
    assert re.search(r"\npiston +formula \+ noise +5000 +7\n", printed)
    assert "Terms: CC BY 4.0" in printed
    printed = succeed("datasets", "simulated_p3", "--output", "new/data.parquet")
    assert printed.startswith("Wrote Simulation, p = 3, 5000 rows")
    frame = pd.read_parquet(studied / "new" / "data.parquet")
    data = datasets.simulated(3, seed=0)
    assert frame.shape == (5000, 4)
    np.testing.assert_allclose(frame["y"], data.y, rtol=1e-12)
    np.testing.assert_array_equal(frame.iloc[:, :3], data.X)
