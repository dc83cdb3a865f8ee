"""Measured coverage against the certificate."""

import math
import re

import pandas as pd
import pytest
from scipy.stats import betabinom

import lazyknife as lk
from command import PUBLIC, predict, run
from lazyknife.cli import outcome
from lazyknife.cli.tables import read_table


@pytest.mark.parametrize("base", [PUBLIC, ("--base", "plain", "--epochs", "1")])
def test_coverage_far_below_the_certificate_is_said_loudly(folder, base):
    frame = read_table(folder / "test.csv")
    frame.assign(y=frame["y"] * 1000).to_csv("metres.csv", index=False)
    arguments = predict("--alpha", ".1", "--alpha", ".3", "--html", "page.html", base=base)
    plain, result = (
        run(*arguments),
        run(*("metres.csv" if a == "test.csv" else a for a in arguments)),
    )
    assert (plain.exit_code, result.exit_code) == (0, 0)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (folder / "page.html").read_text()))
    assert plain.stderr == ""
    if base != PUBLIC:  # there is no certificate
        assert result.stderr == ""
        assert "BELOW" not in page
        return
    *levels, advice = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in levels] == ["warning"] * 2
    share = re.search(r"coverage of the new rows, alpha = 0.1 +(0\.\d+)", result.stdout)[1]
    certified = lk.certify(n=40, alpha=0.1, base=lk.Public()).coverage
    assert levels[0].startswith("warning: COVERAGE BELOW THE CERTIFICATE at alpha = 0.1: ")
    assert f"{share} of the 20 new rows are covered, {certified:.3f} is certified" in levels[0]
    assert "at most 1% of the runs" in levels[0]
    assert "at alpha = 0.3: " in levels[1]
    for cause in ("time", "population", "unit", "selected", "duplicated"):
        assert cause in advice
    for line in (*levels, advice):
        assert line.removeprefix("warning: ") in page


def test_low_coverage_is_significant_3_standard_errors_below_the_certificate():
    def limit(certified, count, models):
        error = math.sqrt(certified * (1 - certified) * (1 / count + 1 / (models + 2)))
        return math.ceil(count * (certified - 3 * error))

    for certified, count, models in ((0.9, 10000, 2000), (0.8, 500, 1000), (0.95, 3000, 400)):
        least = limit(certified, count, models)
        assert not outcome.is_too_low(least, count, certified, models)
        assert outcome.is_too_low(int(0.98 * least) - 1, count, certified, models)
    assert outcome.is_too_low(0, 10, 0.9, 40)
    assert not outcome.is_too_low(0, 1, 0.9, 40)
    assert not outcome.is_too_low(20, 20, 1.0, 5)


@pytest.mark.parametrize("models", [20, 40, 100, 1000])
def test_exchangeable_rows_are_warned_about_in_at_most_1_percent_of_the_runs(models):
    """Coverage given the training rows has the law Beta(n + 1 − κ, κ): an exact computation."""
    for kappa in {max(1, int(alpha * (models + 1))) for alpha in (0.01, 0.05, 0.1, 0.2)}:
        certified = 1 - kappa / (models + 1)
        for count in (1, 5, 20, 31, 100, 400):
            law = betabinom(count, models + 1 - kappa, kappa)
            alarms = [
                law.pmf(covered)
                for covered in range(count + 1)
                if outcome.is_too_low(covered, count, certified, models)
            ]
            assert sum(alarms) <= outcome.FALSE_ALARMS


def test_new_rows_unlike_the_training_rows_are_said_first(folder):
    frame = pd.concat([read_table(folder / name) for name in ("train.csv", "test.csv")])
    late = frame.sort_values("b")
    late[:40].to_csv("early.csv", index=False)
    late[40:].to_csv("late.csv", index=False)
    result = run(*predict("--html", "page.html", train="early.csv", test="late.csv"))
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()[:2]
    assert first.startswith("warning: The new rows do not look like the training rows: ")
    assert "b (median " in first
    assert "do not rely on it here" in second
    assert "These new rows do not look like them, so expect less." in result.stdout
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (folder / "page.html").read_text()))
    assert page.index(first.removeprefix("warning: ")) < page.index("What to expect")
    assert 'class="certificate doubtful"' in (folder / "page.html").read_text()
