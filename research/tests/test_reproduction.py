"""The committed rows, figures and pages: complete, honest, and what the code gives today."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from research import datasets
from research.__main__ import app
from research.study import (
    COLLECTIONS,
    STUDIES,
    Trial,
    draw,
    fill,
    read_rows,
    run_trial,
    sets,
    summarise,
    verdicts,
)
from research.study.made import PATHS, code, syntax
from research.study.methods import DEFAULT, STRONG, VARIANTS, effective
from research.study.renew import differences, renew
from research.study.rows import key_of, stored_rows, write_rows
from research.study.run import resolve
from research.study.tables import paper_rows
from research.study.verdict import CLAIMS
from typer.testing import CliRunner

import lazyknife
from alike import check_same_drawing, check_same_page
from lazyknife.plots import save_figure

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def studies(*quick: str) -> list[Any]:
    """All studies as a test's parameters; those that are not named are slow."""
    slow = pytest.mark.slow
    return [name if name in quick else pytest.param(name, marks=slow) for name in STUDIES]


def resolved(trial: Trial) -> Trial:
    """Name the data that is read; skip where there is none."""
    try:
        if trial.data in datasets.DATASETS:
            datasets.load(trial.data)
        return resolve(trial)
    except datasets.DataNotFound as error:
        pytest.skip(str(error))


def small_trial(name: str) -> Trial:
    """Return one cheap trial: DP-Lazy PI, the fewest rows, tamed features where data are real.

    A study without DP-Lazy PI has the library's own private method, or a default.
    """
    every = STUDIES[name].expand(1)
    methods = {trial.method for trial in every}
    method = next(m for m in ("lazy_dp", "lazyknife", DEFAULT) if m in methods)
    trials = [trial for trial in every if trial.method == method]
    return min(trials, key=lambda t: (t.setting.n, t.setting.transform is None))


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_complete_and_without_errors(name):
    rows = stored_rows(RESULTS / f"{name}.csv")
    assert [row["error"] for row in rows if row["error"]] == []
    keys = [key_of(row)[1:] for row in rows]
    wanted = [
        replace(trial, setting=effective(trial.method, trial.setting))
        for trial in STUDIES[name].expand()
    ]
    assert sorted(keys) == sorted(key_of(trial.key)[1:] for trial in wanted)
    assert {row["data"] for row in rows} <= {*datasets.DATASETS, *sets.SETS}


@pytest.mark.parametrize("name", COLLECTIONS["paper"])
def test_the_papers_rows_are_as_new_as_the_methods_code(name):
    made = {(row["commit"], row["code"]) for row in stored_rows(RESULTS / f"{name}.csv")}
    stale = {commit for commit, hashed in made if hashed != code(name)}
    way_out = "commit the code, then run `python -m research renew paper` and commit the rows"
    assert not stale, f"{name}: made with {stale}, the method's code has changed since: {way_out}"
    assert not any(commit.endswith("-dirty") for commit, _ in made), f"{name}: {way_out}"


def test_the_hash_covers_every_module_that_computes_a_number_of_the_papers_methods():
    idle = {"intervals/window", "networks/wide", "ridge/rounding"}
    seen = set()

    def look(frame: Any, event: str, argument: Any) -> None:
        seen.add(frame.f_code.co_filename)

    trials = [t for t in STUDIES["table1"].expand(1) if t.data == "simulated_p16"]
    sys.setprofile(look)
    try:
        for trial in trials:
            run_trial(resolve(trial))
    finally:
        sys.setprofile(None)
    package = Path(lazyknife.__file__).parent
    ran = {Path(name).relative_to(package) for name in seen if name.startswith(str(package))}
    stages = {"base", "networks", "tangent", "ridge", "intervals"}
    wanted = {p.with_suffix("").as_posix() for p in ran if p.parts[0] in stages} - idle
    hashed = {f"{Path(folder).name}/{name}" for folder, names in PATHS.items() for name in names}
    assert wanted <= hashed, f"add to PATHS in research/study/made.py: {wanted - hashed}"
    assert all((ROOT / f"{folder}/{n}.py").exists() for folder, ns in PATHS.items() for n in ns)


def test_the_hash_is_of_what_code_does():
    plain = syntax("def f(x):\n    return f'{x}' + 'a'\n")
    assert syntax('def f( x ):  # why\n    """What."""\n    return (f"{x}" + "a")\n') == plain
    assert syntax("def f(x):\n    return f'{x}' + 'b'\n") != plain


def test_rows_are_renewed_where_a_trial_of_their_cell_differs(tmp_path):
    """Rows of lazy_dp are made up: they are run again; those of other methods keep theirs."""
    study, path = STUDIES["fig2a"], tmp_path / "fig2a.csv"
    old = stored_rows(RESULTS / "fig2a.csv")
    wrong = [row | {"code": "old"} for row in old]
    wrong = [r | {"width": "9"} if r["method"] == "lazy_dp" else r for r in wrong]
    write_rows(path, wrong)
    committed = {key_of(row): row for row in old}

    def run(trial: Trial) -> Any:
        return committed[key_of(trial.key)] | {"fit_seconds": "99"}

    changed = renew(study, path, 1, run=run)
    assert [cell.split()[1] for cell, _ in changed] == ["lazy_dp"]
    for row in stored_rows(path):
        before = committed[key_of(row)]
        assert row["code"] == code("fig2a")
        assert [row[n] for n in ("width", "fit_seconds")] == [
            before["width"],
            before["fit_seconds"],
        ]


@pytest.mark.parametrize("name", studies("fig2b", "fig3b", "ridge"))
def test_a_small_trial_of_every_study_gives_the_committed_row(name):
    check_again(name, resolved(small_trial(name)))


@pytest.mark.parametrize(
    "method", ["lazyknife_public", *VARIANTS, "cv+", "mapie_cv_ridge", "mapie_split_boosting"]
)
def test_a_small_trial_of_every_choice_gives_the_committed_row(method):
    check_again("choices", replace(small_trial("choices"), method=method))


@pytest.mark.slow
@pytest.mark.parametrize("method", [DEFAULT, *STRONG])
def test_a_small_trial_of_every_method_on_tables_gives_the_committed_row(method):
    every = STUDIES["tables"].expand(1)
    check_again("tables", next(t for t in every if (t.data, t.method) == ("friedman2", method)))


def check_again(name: str, trial: Trial) -> None:
    """Run a trial again, and compare it with the committed row."""
    trial = resolve(trial)
    committed = {key_of(row): row for row in stored_rows(RESULTS / f"{name}.csv")}
    row = committed.get(key_of(trial.key))
    if row is None:
        pytest.skip(f"the committed rows are of other data than {trial.data}")
    again = run_trial(trial)
    if again["error"].startswith("DataNotFound"):
        pytest.skip(again["error"])
    assert differences(row, again) == []


@pytest.mark.parametrize("name", studies("fig2b", "fig4", "ridge"))
def test_every_figure_is_drawn_from_its_rows(name, tmp_path):
    save_figure(draw(STUDIES[name], read_rows(RESULTS / f"{name}.csv")), tmp_path / "again.svg")
    check_same_drawing(tmp_path / "again.svg", RESULTS / f"{name}.svg")


def test_the_command_draws_a_finished_study_without_running_it(tmp_path):
    rows = RESULTS / "fig2a.csv"
    shutil.copy(rows, tmp_path)
    finished = CliRunner().invoke(app, ["study", "fig2a", "--output", str(tmp_path)])
    assert finished.exit_code == 0, finished.output
    assert "0 of 45 trials" in finished.output
    assert (tmp_path / "fig2a.csv").read_bytes() == rows.read_bytes()
    check_same_drawing(tmp_path / "fig2a.svg", RESULTS / "fig2a.svg")


@pytest.mark.parametrize("name", COLLECTIONS["paper"])
def test_dp_lazy_pi_covers_at_least_80_percent_in_every_setting_of_the_paper(name):
    summary = summarise(read_rows(RESULTS / f"{name}.csv"))
    private = summary[summary["method"] == "lazy_dp"]
    assert len(private) > 0
    assert (private["coverage"] >= 0.8).all()


def test_the_short_text_of_the_page_says_what_the_verdicts_say():
    found = dict(zip(CLAIMS, verdicts(paper_rows(RESULTS)), strict=True))
    said = {
        "reproduced": {"covers", "saves_time_against_a_loop"},
        "partly": {
            *("saves_time", "finetune_is_similar", "lazy_covers_after_more_epochs"),
        },
        "not reproduced": {
            *("guaranteed", "narrower_than_finetune", "narrower_on_real_data"),
            *("narrower_after_more_epochs", "jackknife_is_unstable"),
        },
    }
    rewrite = "write 'In short' in docs/reproduction.md anew, and then this test"
    for mark, names in said.items():
        assert {name: found[name].mark for name in names} == dict.fromkeys(names, mark), rewrite


def test_the_command_tells_which_verdicts_moved(tmp_path):
    unmoved = CliRunner().invoke(app, ["verdicts"])
    assert "No verdict has moved" in unmoved.output
    for name in COLLECTIONS["paper"]:
        rows = stored_rows(RESULTS / f"{name}.csv")
        worse = [{**row, "coverage": 0.5} for row in rows] if name == "fig4" else rows
        write_rows(tmp_path / f"{name}.csv", worse)
    ran = CliRunner().invoke(app, ["verdicts", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert re.search(r"1\. +fig4 \(simulation, p = 100\) +coverage 0.5 ± 0", ran.output)
    told = ran.output.split("Verdicts that moved")[1]
    assert re.search(r"1\. DP-Lazy PI covers.* reproduced, 15 of 15 .* partly, 14 of 15", told)


@pytest.mark.parametrize("name", ["reproduction.md", "evidence.md"])
def test_the_tables_of_the_pages_are_those_of_the_rows(name):
    page = (ROOT / "docs" / name).read_text()
    check_same_page(fill(page, RESULTS), page)
    assert page.count("<!-- table: ") == page.count("<!-- end of table -->") >= 2
