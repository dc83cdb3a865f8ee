"""``lazyknife certify`` and ``lazyknife plan``."""

import pytest

import lazyknife as lk
from command import fail, run, succeed


@pytest.mark.parametrize(
    ("options", "settings", "said"),
    [
        ("--construction minmax", {"construction": "minmax"}, "Public base"),
        ("--construction full", {"construction": "full"}, "at least 90.04 %"),  # 1 − 20/201
        ("--construction cv+ --folds 4", {"construction": "cv+", "folds": 4}, "with 4 folds"),
        ("--construction cv+ --folds 7", {"construction": "cv+", "folds": 7}, "with 7 folds"),
        (
            "--construction split --n 2000 --confidence .99",
            {"construction": "split", "n": 2000, "confidence": 0.99},
            "for any new row, with 99 % of",
        ),
        ("--base plain", {"base": lk.Plain()}, "No coverage is guaranteed"),
        (
            "--alpha .2 --base perturbed --sensitivity 1 --epsilon .3 --norm l2",
            {"base": lk.Perturbed(1.0, 0.3)},
            "Perturbed base",
        ),
    ],
)
def test_certificates_are_the_librarys(options, settings, said):
    printed = succeed("certify", "--n", "200", *options.split())
    alpha = 0.2 if "--alpha" in options else 0.1
    found = lk.certify(**{"n": 200, "alpha": alpha, "base": lk.Public()} | settings)
    assert printed == f"{found.details}\n"
    assert said in printed


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {}),
        ("--construction full", {"construction": "full"}),
        ("--construction cv+ --folds 20", {"construction": "cv+", "folds": 20}),
        (
            "--base perturbed --sensitivity 1 --alpha .05",
            {"base": lk.Perturbed(1.0, 1.0), "alpha": 0.05},
        ),
        (
            "--base dpsgd --noise-multiplier 30 --epochs 1 --construction minmax",
            {"base": lk.DPSGD(noise_multiplier=30.0, epochs=1), "construction": "minmax"},
        ),
    ],
)
def test_plans_are_the_librarys(options, settings):
    printed = succeed("plan", "--n", "200", "--coverage", ".7", *options.split())
    assert printed == f"{lk.plan(n=200, coverage=0.7, **{'base': lk.Public()} | settings)}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--construction cv+ --folds 700", "folds=700 is more than the 200 rows"),
        ("--construction naive", "construction='naive'"),
        ("--alpha .05", "has no noise"),
    ],
)
def test_a_plan_that_cannot_be_made_is_one_line(options, message):
    assert message in fail("plan", "--n", "200", "--coverage", ".7", *options.split())


def test_without_n_the_fewest_rows_are_planned():
    assert succeed("plan", "--coverage", ".9") == f"{lk.plan_rows(coverage=0.9)}\n"
    assert "At least 9 rows" in succeed("plan", "--coverage", ".9", "--construction", "full")
    assert "--alpha requires --n" in fail("plan", "--coverage", ".9", "--alpha", ".1")


def test_no_plan_is_exit_code_1():
    result = run("plan", "--n", "100", "--coverage", ".999", "--base", "public")
    assert result.exit_code == 1
    assert result.stdout.startswith("No alpha certifies 0.999")
