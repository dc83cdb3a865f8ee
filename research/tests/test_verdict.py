"""The verdict on the paper's claims, on rows whose truth is known; and pages made of them."""

import numpy as np
import pandas as pd
import pytest
from research.study import STUDIES, fill, verdicts
from research.study.catalogue import PAPER
from research.study.rows import read_rows, write_rows
from research.study.tables import table1
from research.study.trial import COLUMNS
from research.study.verdict import CLAIMS, compared, moved

# Coverage, width, fit and prediction seconds of each method, as the paper would have them.
PAPERS = {
    "naive": (0.7, 1.0, 0.1, 0.01),
    "jackknife": (0.9, 2.0, 10.0, 0.01),
    "jackknife+": (0.92, 3.0, 10.0, 1.0),
    "lazy_finetune": (0.86, 2.1, 0.1, 0.4),
    "lazy_dp": (0.87, 2.0, 0.2, 0.4),
}


def write_study(folder, name, values=None, trials=4):
    """Rows of a study with made-up measurements: ``values(trial, measures)`` may change them."""
    rows = []
    rng = np.random.default_rng(0)
    for trial in STUDIES[name].expand(trials):
        coverage, width, fit, predict = PAPERS[trial.method]
        measures = {"coverage": coverage, "width": width, "fit_seconds": fit}
        measures |= {"predict_seconds": predict, "score": 2 * width, "models_trained": 1}
        measures["paper_bound"] = 0.85
        measures["certified"] = 0.809 if trial.method in ("lazy_dp", "jackknife+") else ""
        if values is not None:
            measures |= values(trial, measures)
        measures["width"] *= 1 + 1e-3 * rng.normal()
        data = trial.data.replace("meps", "meps_2016_panel21")
        rows.append({**dict.fromkeys(COLUMNS, ""), **trial.key, **measures, "data": data})
    write_rows(folder / f"{name}.csv", rows)


def as_the_paper_says(trial, measures):
    """More epochs and single rows make jackknife+ wider, more epochs make lazy_dp narrower.

    Twice the epochs take jackknife+ twice the time; its widths vary from trial to trial.
    """
    width = measures["width"]
    if trial.method == "jackknife+":
        longer = {10: 1.0, 20: 1.5, 2: 1.5}[trial.setting.epochs]
        time = measures["fit_seconds"] * (2 if trial.setting.epochs == 20 else 1)
        return {"width": longer * width * (1 + 0.01 * trial.number), "fit_seconds": time}
    if trial.method == "lazy_dp" and trial.setting.epochs == 20:
        return {"width": 0.9 * width}
    return {}


@pytest.fixture
def folder(tmp_path):
    for name in PAPER:
        write_study(tmp_path, name, as_the_paper_says)
    return tmp_path


def judged(folder):
    rows = {name: read_rows(folder / f"{name}.csv") for name in PAPER}
    return dict(zip(CLAIMS, verdicts(rows), strict=True))


def test_rows_that_agree_with_the_paper_reproduce_every_claim(folder):
    found = judged(folder)
    assert {name: verdict.mark for name, verdict in found.items()} == dict.fromkeys(
        found, "reproduced"
    )
    assert len(found["covers"].cells) == 3 + 2 * 6
    assert len(found["narrower_on_real_data"].cells) == 12
    assert len(found["more_epochs_widen_jackknife"].cells) == 5
    assert len(found["batches_of_one_widen_jackknife"].cells) == 4


FALSE = {
    "covers": lambda t, m: {"coverage": 0.79} if t.method == "lazy_dp" else {},
    "saves_time": lambda t, m: {"predict_seconds": 9.0} if t.method == "lazy_dp" else {},
    "saves_time_against_a_loop": lambda t, m: (
        {"predict_seconds": 9.0} if t.method == "lazy_dp" else {}
    ),
    "narrower_on_real_data": lambda t, m: {"width": 9.0} if t.method == "lazy_dp" else {},
    "more_epochs_widen_jackknife": lambda t, m: {},
    "more_epochs_help_lazy": lambda t, m: {},
    "batches_of_one_widen_jackknife": lambda t, m: {},
    "guaranteed": lambda t, m: {"paper_bound": 0.09},
    "table1_coverage": lambda t, m: {"coverage": 0.96},
    "narrower_than_finetune": lambda t, m: {"width": 9.0} if t.method == "lazy_dp" else {},
    "lazy_covers_after_more_epochs": lambda t, m: {"coverage": 0.1},
    "narrower_after_more_epochs": lambda t, m: {"width": 3.0},
    "more_epochs_cost_lazy_little": lambda t, m: {},
    "jackknife_is_unstable": lambda t, m: (
        {"width": 2.0 + t.number} if t.method == "lazy_dp" else {}
    ),
    "finetune_is_similar": lambda t, m: {"coverage": 0.5} if t.method == "lazy_finetune" else {},
    "closer_to_target": lambda t, m: {"coverage": 0.95} if t.method == "lazy_dp" else {},
}


@pytest.mark.parametrize("name", CLAIMS)
def test_rows_that_contradict_a_claim_refute_it(tmp_path, name):
    for study in PAPER:
        write_study(tmp_path, study, FALSE[name])
    assert judged(tmp_path)[name].mark == "not reproduced"


def test_a_claim_that_holds_somewhere_is_reproduced_in_part(folder):
    def wide_when_raw(trial, measures):
        wide = trial.method == "lazy_dp" and trial.setting.transform is None
        return {"width": 50.0} if wide else {}

    write_study(folder, "fig3a", wide_when_raw)
    verdict = judged(folder)["narrower_on_real_data"]
    assert (verdict.mark, verdict.count) == ("partly", "11 of 12")
    failed = [cell for cell in verdict.cells if not cell.holds]
    assert [cell.where for cell in failed] == ["fig3a (BlogFeedback, raw)"]
    assert failed[0].measured.startswith("50 ")


def test_two_data_sets_in_one_file_are_judged_apart(folder):
    rows = {name: read_rows(folder / f"{name}.csv") for name in PAPER}
    for name in ("fig3b", "fig5b", "fig6b"):
        rows[name] = pd.concat([rows[name], rows[name].assign(data="meps_2016")])
    found = {verdict.claim: verdict for verdict in verdicts(rows)}
    narrower = next(v for claim, v in found.items() if "real data" in claim)
    assert narrower.count == "18 of 18"
    assert "fig6b (MEPS, symlog)" in {cell.where for cell in narrower.cells}


def test_a_difference_within_the_noise_does_not_count():
    rng = np.random.default_rng(1)
    first = pd.Series(10 + rng.normal(size=30))
    text, holds = compared(first, first + rng.normal(size=30), "wider")
    assert not holds
    assert "within the noise" in text
    assert compared(first + 1, first + 1e-3 * rng.normal(size=30), "wider")[1]
    assert not compared(first + 1, first + 1e-3 * rng.normal(size=30), "narrower")[1]


def test_differences_are_taken_trial_by_trial():
    base = pd.Series(np.linspace(1, 100, 15))  # trials differ far more than methods
    shuffled = (base + 0.1 + 0.01 * np.arange(15)).sample(frac=1, random_state=0)
    assert compared(shuffled, base, "wider")[1]


def test_the_verdict_wants_all_of_the_papers_studies(folder):
    rows = {name: read_rows(folder / f"{name}.csv") for name in PAPER if name != "fig4"}
    with pytest.raises(ValueError, match="fig4"):
        verdicts(rows)


def test_verdicts_that_move_are_told_with_the_places(folder):
    before = judged(folder).values()
    assert moved([*before], [*before]) == []
    write_study(folder, "fig2b", FALSE["covers"])
    moves = moved([*before], [*judged(folder).values()])
    assert moves[0] == (
        "1. DP-Lazy PI covers at least 80 % at α = .1.",
        "reproduced, 15 of 15",
        "partly, 14 of 15",
        "fig2b (simulation, p = 100)",
    )


def test_table_1_has_what_was_measured(folder):
    text = table1(read_rows(folder / "table1.csv"))
    lines = text.splitlines()
    assert len(lines) == 2 + 2 * 5
    naive, _, plus = lines[2:5]
    assert naive.startswith("| simulation, p = 16 | naive | none | 0.7 ")
    assert naive.endswith(f"| {0.1 / 0.11:.1f} | {0.01 / 0.11:.1f} |")
    assert "| jackknife+ | 0.809 |" in plus
    assert plus.endswith(f"| {10 / 0.11:.1f} | {1 / 0.11:.1f} |")


def test_a_page_is_filled_between_its_marks_and_filling_again_changes_nothing(folder):
    page = "".join(
        f"before {name}\n<!-- table: {name} -->\nstale text\n<!-- end of table -->\nafter\n"
        for name in ("verdicts", "table1", "fig3b", "demo")
    )
    write_study(folder, "fig2b", FALSE["covers"])
    filled = fill(page, folder)
    assert filled.count("stale text") == 1  # of another's table
    assert filled.count("| **reproduced** |") == len(CLAIMS) - 2
    assert f"Of {len(CLAIMS)} claims {len(CLAIMS) - 2} are reproduced, 2 hold in part" in filled
    assert "MEPS 2016 panel 21, symlog | lazy_dp |" in filled
    assert filled.startswith("before verdicts\n<!-- table: verdicts -->\n|  | verdict |")
    assert fill(filled, folder) == filled
