"""A saved model and a file that is read in batches: the intervals of the file read at once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from command import fail, run, succeed
from lazyknife.cli import batches
from lazyknife.cli.batches import in_unit, predict_stored
from lazyknife.cli.files import spooled
from lazyknife.cli.newrows import spread
from lazyknife.cli.options import READING
from lazyknife.cli.stored import open_stored
from lazyknife.results import Intervals
from tabular import refused

QUICK = ("--relevance", "none", "--ridge", "0.1")
TINY = 600  # bytes of a block


def table(rows, seed=0):
    """Numbers, a category, a code, dates, gaps and names of rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return pd.DataFrame(
        {
            "name": [f"r{k:03}" for k in range(rows)],
            "a": X[:, 0],
            "group": rng.choice(["u", "v"], rows),
            "code": rng.choice([1, 2, 3], rows),
            "day": pd.Timestamp("2024-01-25") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "gap": np.where(rng.random(rows) < 0.2, np.nan, X[:, 1]),
            "y": X @ [1, -1] + 0.3 * rng.normal(size=rows),
        }
    )


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """A working folder with a model."""
    monkeypatch.chdir(tmp_path)
    table(40).to_csv("train.csv", index=False)
    options = ("--id", "name", "--categorical", "code", *QUICK)
    told = run("fit", "train.csv", "--target", "y", "--model", "m.lk", *options)
    assert told.exit_code == 0, told.stderr
    return tmp_path


def predicted(new, output, block_bytes, group_rows=None, levels=(), **given):
    """The outcome, and the bytes of the output."""
    options = {**dict.fromkeys(READING), "device": "cpu", **given}
    stored = open_stored(*("m.lk", new, levels, None, "name", options), block_bytes=block_bytes)
    if group_rows is not None:
        stored = replace(stored, rows=replace(stored.rows, group_rows=group_rows))
    paths = {"output": output, "safe_cells": False}
    with spooled(paths) as (append, move):
        outcome = predict_stored(stored, append)
        move(output.with_suffix(".moved"))
    return outcome, output.with_suffix(".moved").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("output", ["o.csv", "o.parquet"])
def test_batches_give_the_bytes_of_the_whole_file(fitted, suffix, output):
    new = fitted / f"new{suffix}"
    frame = table(150, seed=1)
    frame.to_parquet(new) if suffix == ".parquet" else frame.to_csv(new, index=False)
    levels = (0.1, 0.3)
    whole, expected = predicted(new, fitted / output, 2**22, levels=levels)
    parts, found = predicted(new, fitted / output, TINY, levels=levels)
    assert found == expected
    assert parts.rows.notes == whole.rows.notes
    assert parts.totals.rows == 150
    np.testing.assert_array_equal(parts.totals.covered, whole.totals.covered)
    assert parts.shift == whole.shift
    np.testing.assert_array_equal(parts.rows.y_new, whole.rows.y_new)
    assert parts.rows.ids.tolist() == whole.rows.ids.tolist()


def test_groups_of_rows_are_predicted_alike(fitted):
    table(150, seed=1).to_csv("new.csv", index=False)
    new, output = fitted / "new.csv", fitted / "o.csv"
    whole, _ = predicted(new, output, TINY)
    parts, _ = predicted(new, output, TINY, group_rows=11)
    for name in ("point", "lower", "upper"):
        found, expected = (getattr(one.intervals, name) for one in (parts, whole))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(parts.totals.widths, whole.totals.widths, rtol=1e-5)
    np.testing.assert_allclose(parts.totals.scores, whole.totals.scores, rtol=1e-5)
    assert parts.shift == whole.shift


def test_how_values_are_written_is_decided_by_the_whole_file(fitted):
    frame = table(150, seed=1)
    frame["day"] = frame["day"].dt.strftime("%d/%m/%Y")
    frame["a"] = [f"{a:.1f}".replace(".", ",") for a in frame["a"]]
    frame["y"] = frame["y"].round().astype(int)
    frame.loc[120:, "gap"] = np.nan
    frame["gap"] = [
        "-" if np.isnan(gap) else f"{gap:.1f}".replace(".", ",") for gap in frame["gap"]
    ]
    frame.loc[:100, "a"] = "3"  # the mark of decimals is shown late
    frame.loc[:60, "gap"] = "?"
    frame.to_csv("new.csv", index=False, sep=";")
    new, output = fitted / "new.csv", fitted / "o.csv"
    whole, expected = predicted(new, output, 2**22)
    parts, found = predicted(new, output, TINY)
    assert found == expected
    assert parts.rows.notes == whole.rows.notes
    assert "gap: 61 values '?' read as missing (--na)." in parts.rows.notes


@pytest.mark.parametrize(
    ("column", "first", "last"),
    [
        ("a", "1.5", "1,5"),
        ("a", "5", "5 %"),
        ("a", "$5", "€5"),
        ("a", "5", "True"),
        ("a", "5", "five"),
        ("day", "25/01/2024", "01/25/2024"),
    ],
)
@pytest.mark.parametrize("block_bytes", [2**22, TINY, 400])
def test_rows_that_are_written_in_different_ways_are_refused(
    fitted, column, first, last, block_bytes
):
    frame = table(150, seed=1)
    frame[column] = [first] * 100 + [last] * 50
    frame.to_csv("new.csv", index=False, sep="|")
    with pytest.raises(ValueError, match=f"'{column}'|some numbers have decimal commas"):
        predicted(fitted / "new.csv", fitted / "o.csv", block_bytes)


def test_a_row_is_named_by_its_place_in_the_file(fitted):
    frame = table(150, seed=1)
    frame["a"] = frame["a"].astype(object)
    frame.loc[140, "a"] = "odd"
    frame.to_csv("new.csv", index=False)
    message = refused(lambda: predicted(fitted / "new.csv", fitted / "o.csv", TINY), "'odd' in row")
    row, start = (int(part.split()[0].rstrip(")")) for part in message.split(" row ")[1:])
    assert row + start - 1 == 141


def test_rows_without_a_target_are_not_scored(fitted):
    frame = table(150, seed=1)
    frame.loc[140, "y"] = np.nan
    frame.to_csv("new.csv", index=False)
    outcome, _ = predicted(fitted / "new.csv", fitted / "o.csv", TINY)
    assert outcome.totals.covered is None
    assert outcome.rows.y_new is None
    assert any("not scored" in note for note in outcome.rows.notes)


def test_a_file_without_rows_is_refused(fitted):
    for suffix in (".csv", ".parquet"):
        new = fitted / f"new{suffix}"
        none = table(3)[:0]
        none.to_parquet(new) if suffix == ".parquet" else none.to_csv(new, index=False)
        refused(lambda new=new: predicted(new, fitted / "o.csv", TINY), "no rows")


def test_a_header_is_never_alone(fitted):
    table(50, seed=1).to_csv("new.csv", index=False)
    expected, found = (
        predicted(fitted / "new.csv", fitted / "o.csv", size)[1] for size in (2**22, 40)
    )
    assert found == expected


def test_names_of_rows_have_one_type(fitted):
    frame = table(150, seed=1).assign(name=range(150))
    frame.loc[149, "name"] = np.nan
    frame["name"] = frame["name"].astype("Int64")
    frame.to_parquet("new.parquet")
    whole, parts = (
        predicted(fitted / "new.parquet", fitted / "o.csv", size)[1] for size in (2**22, TINY)
    )
    assert parts == whole


def test_a_report_of_many_rows_has_a_sample_of_them(fitted, monkeypatch):
    monkeypatch.setattr(batches, "MOST_SHOWN", 60)
    monkeypatch.setattr(batches, "MOST_COMPARED", 50)
    table(150, seed=1).to_csv("new.csv", index=False)
    told = run("predict", "new.csv", "--model", "m.lk", "--html", "r.html")
    assert told.exit_code == 0, told.stderr
    assert "note: 50 of the new rows are compared with the training rows." in told.stderr
    assert "Wrote 150 intervals" in told.stdout
    page = (fitted / "r.html").read_text()
    assert "60 of the 150 rows, drawn at random" in page


def test_a_failure_leaves_the_old_output(fitted):
    (fitted / "out.csv").write_text("old")
    frame = table(150, seed=1)
    frame["a"] = frame["a"].astype(object)
    frame.loc[140, "a"] = "inf"
    frame.to_csv("new.csv", index=False)
    arguments = ("new.csv", "--model", "m.lk", "--output", "out.csv", "--id", "name")
    assert "infinite value" in fail("predict", *arguments)
    assert (fitted / "out.csv").read_text() == "old"
    assert not list(fitted.glob(".out*"))


def test_names_that_look_like_formulas_are_counted_and_quoted(fitted):
    table(150, seed=1).assign(name="=1").to_csv("new.csv", index=False)
    arguments = ("predict", "new.csv", "--model", "m.lk", "--output", "out.csv", "--id", "name")
    assert "note: 150 values of 'name' look like formulas" in run(*arguments).stderr
    succeed(*arguments, "--safe-cells")
    assert set(pd.read_csv("out.csv")["name"]) == {"'=1"}


def test_places_are_spread_over_all_rows():
    np.testing.assert_array_equal(spread(5, 5), np.arange(5))
    places = spread(10**9, 1000)
    assert len(set(places.tolist())) == 1000
    assert (np.diff(places) > 0).all()
    assert places[0] < 2e7 < 9.8e8 < places[-1]  # misses are as likely as e⁻²⁰


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_memory_does_not_grow_with_the_file(fitted, suffix):
    peaks = []
    for rows in (60_000, 300_000):
        frame = pd.concat([table(3000, seed=1)] * (rows // 3000), ignore_index=True)
        path = fitted / f"new{suffix}"
        frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
        command = ("predict", path.name, "--model", "m.lk", "--output", "o.parquet")
        code = (
            "import atexit, resource; from lazyknife.cli.app import app\n"
            "peak = lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
            f"atexit.register(peak); app({list(command)!r})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        peaks.append(1024 * int(done.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 30 * 2**20  # the whole table takes 100 MiB more


@pytest.mark.parametrize("unit", [1.0, 0.1, 3.0, 1000.0])
def test_a_target_at_the_end_of_an_interval_is_not_lost_by_its_unit(unit):
    y = np.concatenate([np.random.default_rng(0).normal(size=1000), [0.0]])
    found = in_unit(Intervals(y / unit, y / unit, y / unit, 0.1), unit)
    assert found.covers(y).all()
    np.testing.assert_allclose(found.lower, y, rtol=1e-14)
