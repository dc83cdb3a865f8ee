"""The command as a whole: its help, its errors, and how it shows numbers."""

import inspect
import math
import re
import signal
import subprocess
import sys
import time
from dataclasses import MISSING, fields

import pytest
import typer
from joblib.externals.loky.process_executor import TerminatedWorkerError

import lazyknife as lk
from command import fail, predict, succeed
from lazyknife.base import BASES
from lazyknife.cli import console, library, values
from lazyknife.cli.compare import COLUMNS
from lazyknife.cli.options import LIBRARY
from lazyknife.data.scaling import TRANSFORMS
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.widths import WIDTHS

ENOUGH = "use fewer rows or features, a smaller memory budget, or a machine with more memory"
ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)"
)
COMMANDS = ("predict", "compare", "certify", "plan")


def test_help_loads_no_heavy_package():
    heavy = ["torch", "pandas", "matplotlib", "sklearn", "joblib", "scipy", "numpy"]
    code = f"""
import sys
from typer.testing import CliRunner
from lazyknife.cli.app import app
assert CliRunner().invoke(app, ["predict", "--help"]).exit_code == 0
print([m for m in {heavy} if m in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_names_and_defaults_are_the_librarys():
    signature = inspect.signature(lk.LazyJackknifeRegressor).parameters.values()
    assert {one.name: one.default for one in signature} == LIBRARY
    text = " ".join(succeed("predict", "--help").replace("│", " ").split())
    for names in (CONSTRUCTIONS, WIDTHS, LOSSES, READOUTS, BASES, TRANSFORMS):
        *first, last = filter(None, names)
        assert f" {', '.join(first)} or {last}" in text
    for of in BASES.values():
        literal = {
            f.name: f.default for f in fields(of) if not isinstance(f.default, lk.BaseMethod)
        }
        literal = {name: default for name, default in literal.items() if default is not MISSING}
        assert library.defaults(of.__module__.removeprefix("lazyknife."), of.__name__) == literal


def test_the_version_and_the_help_are_shown():
    assert succeed("--version") == f"lazyknife {lk.__version__}\n"
    text = succeed()
    assert text == succeed("--help")
    for command in COMMANDS:
        assert re.search(rf"│ {command} ", text)
        assert "Usage: lazyknife" in succeed(command, "--help")


def test_help_breaks_its_lines_where_the_screen_ends():
    lines = [line.strip() for line in succeed("predict", "--help").splitlines()]
    assert "files together, which does not leak; the certificate then holds for the rows" in lines
    assert "Usage: lazyknife predict [OPTIONS] {TRAIN} [TEST]" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus': see lazyknife --help"),
        (["predict"], "Missing argument 'TRAIN': see lazyknife predict --help"),
        (["predict", "a", "b", "--bogus"], "No such option: --bogus"),
        (["certify", "--n", "x"], "'--n': .*valid integer.*: see lazyknife certify --help"),
        (["certify", "--n", "9", "--base", "x"], "--base x: choose from 'public', 'split'"),
        (["certify", "--n", "0"], "--n 0: give a whole number of at least 1"),
        (["plan", "--n", "9", "--coverage", "2"], "--coverage 2.0: give a number strictly between"),
        (
            ["plan", "--n", "9", "--coverage", ".8", "--construction", "naive"],
            "--construction naive has no",
        ),
        (
            ["plan", "--n", "9", "--coverage", ".8", "--alpha", ".1", "--epsilon", "1"],
            "give --alpha to find ε, or --epsilon or --noise-multiplier to find alpha",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, message):
    assert re.search(message, fail(*arguments))


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("two\n  lines"), 2, "error: two lines"),
        (MemoryError(), 2, f"error: memory ran out: {ENOUGH}"),
        (
            RuntimeError(ALLOCATOR),
            2,
            f"error: memory ran out (4096 bytes were asked for): {ENOUGH}",
        ),
        (
            ImportError("torch.so: failed to map segment from shared object"),
            2,
            f"error: memory ran out: {ENOUGH}",
        ),
        (ValueError(), 2, "error: ValueError"),
        (TerminatedWorkerError("a process was killed"), 2, "error: a process was killed"),
    ],
)
def test_expected_errors_are_one_line(capsys, raised, code, said):
    @console.plainly
    def command():
        raise raised

    with pytest.raises(typer.Exit) as caught:
        command()
    assert (caught.value.exit_code, capsys.readouterr().err) == (code, f"{said}\n")


@pytest.mark.parametrize("raised", [AssertionError, BrokenPipeError, RuntimeError])
def test_other_errors_are_not_hidden(raised):
    @console.plainly
    def command():
        raise raised

    with pytest.raises(raised):
        command()


def heed_interrupts():
    """A job in the background may have been started with interrupts ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_from_outside_ends_the_process(folder):
    files = {"train": "mixed_train.csv", "test": "mixed_test.csv", "base": ("--base", "plain")}
    arguments = predict("--epochs", "100000", "--drop", "gap", "--id", "name", **files)
    command = [sys.executable, "-m", "lazyknife.cli", *arguments]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    ) as process:
        assert process.stderr.readline() == "note: group: 2 categories.\n"
        time.sleep(0.5)  # to get into the training
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "interrupted\n"
    # Python ends itself by the signal where that came in the middle of an import; to a shell both
    # are 130.
    assert process.returncode in (130, -signal.SIGINT)
    assert not (folder / "out.csv").exists()


# How numbers, tables and values are read and shown


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (5339.2, 862.1, "5340 ± 860"),
        (0.8833, 0.01734, "0.883 ± 0.017"),
        (0.9, 0.1, "0.90 ± 0.10"),
        (-12.3456, 1.26, "-12.3 ± 1.3"),
        (0.9, 0.0, "0.9"),
        (1234.5678, math.nan, "1235"),
        (math.inf, math.nan, "inf"),
        (1.0, 1e-9, "1.0000 ± 0.0000"),
        (0.0, 0.25, "0.00 ± 0.25"),
    ],
)
def test_means_are_shown_to_the_errors_second_digit(mean, error, text):
    assert console.plus_minus(mean, error) == text


def test_the_table_of_a_comparison_fits_a_narrow_screen(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, and no colours
    methods = ("lazyknife_public", "split_conformal", "cv+")
    measured = ("0.883 ± 0.017", "5340 ± 860", "6540 ± 970", "0.012", "0.799")
    console.print_table("", COLUMNS, [(method, *measured) for method in methods])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:]] == list(methods)


def test_long_lines_are_whole_in_a_file_and_broken_on_a_screen(capsys, monkeypatch):
    text = "word " * 100
    console.print_text(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    console.print_text(text)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 2**30), ("800 MB", 800 * 2**20), (".5k", 512), ("12", 12), ("2GiB", 2**31)],
)
def test_sizes_are_read(text, size):
    assert values.parse_bytes(text) == size
