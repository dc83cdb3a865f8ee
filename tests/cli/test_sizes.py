"""What a file will take is said, or refused, before its rows are read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from command import run
from lazyknife.cli import sizes
from lazyknife.cli.sizes import check_sizes, say_batches
from lazyknife.cli.tables import open_file

OPTIONS = {"sketch": None, "hidden": None}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """150,000 rows in a Parquet file, and 5 in a CSV file."""
    made = tmp_path_factory.mktemp("sizes")
    frame = pd.DataFrame({"a": np.arange(150_000.0), "b": 1.0, "y": 2.0})
    frame.to_parquet(made / "many.parquet")
    frame[:5].to_csv(made / "few.csv", index=False)
    return [open_file(made / name, whole=False) for name in ("many.parquet", "few.csv")]


def test_many_rows_are_said_with_what_they_take(files, capsys):
    check_sizes(files, OPTIONS, free=10**9)
    line = capsys.readouterr().err
    assert line.startswith("note: many.parquet: 150,000 rows × 3 columns, 7.2 MB in memory (1 GB ")
    assert sizes.LONG in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [({"sketch": 100}, "--sketch 100 computes 120 MB"), ({"hidden": "8"}, "--hidden requires")],
)
def test_what_is_done_with_them_depends_on_the_options(files, capsys, given, words):
    check_sizes(files, OPTIONS | given, free=10**9)
    assert words in capsys.readouterr().err


def test_dropped_columns_take_nothing(files, capsys):
    check_sizes(files[:1], OPTIONS | {"drop": ["a"]}, fits=False, free=10**9)
    assert capsys.readouterr().err == (
        "note: many.parquet: 150,000 rows × 2 columns, 4.8 MB in memory (1 GB are free).\n"
    )


def test_few_rows_are_not_mentioned(files, capsys):
    check_sizes(files[1:], OPTIONS)
    assert capsys.readouterr().err == ""


def test_what_does_not_fit_is_refused_with_bytes_and_ways_out(files):
    with pytest.raises(MemoryError) as caught:
        check_sizes(files[:1], OPTIONS, free=7_000_000)
    message = str(caught.value)
    assert "many.parquet: 150,000 rows × 3 columns need 7,200,000 bytes" in message
    assert "but 7,000,000 are free" in message
    assert "--drop" in message
    assert "--model" not in message
    with pytest.raises(MemoryError, match="predict --model read new rows in batches"):
        check_sizes(files, OPTIONS, free=7_000_000)


def test_the_commands_say_it_first(files, monkeypatch, tmp_path):
    monkeypatch.setattr(sizes, "free_bytes", lambda: 10)
    path = files[0].path
    for command in (
        ("fit", path, "--target", "y", "--model", tmp_path / "m.lk"),
        ("predict", path, path.with_name("few.csv"), "--target", "y", "--output", "o.csv"),
        ("compare", path, "--target", "y"),
    ):
        told = run(*command)
        assert told.exit_code == 2
        assert "bytes of memory, but 10 are free" in told.stderr


def test_new_rows_for_a_model_are_read_in_batches(files, capsys, tmp_path):
    say_batches(files[0].path)
    said = capsys.readouterr().err
    assert said.startswith("note: many.parquet: about 150,000 rows, which are read and predicted")
    (tmp_path / "damaged.parquet").write_text("x")
    for path in (files[1].path, tmp_path / "no.csv", tmp_path / "damaged.parquet", tmp_path):
        say_batches(path)  # few rows, and errors that are found later
    assert capsys.readouterr().err == ""


def test_it_needs_neither_torch_nor_pandas(files):
    code = (
        "import sys; from pathlib import Path; from lazyknife.cli.inputs import check_inputs\n"
        "from lazyknife.cli.sizes import check_sizes; from lazyknife.cli.tables import *\n"
        f"check_sizes(check_inputs([Path({str(files[0].path)!r})], Reading(), Roles('y')), {{}})\n"
        "print([name for name in ('torch', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr.startswith("note: many.parquet: 150,000 rows")
