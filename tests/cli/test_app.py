"""The command as a whole: its help, its errors, and how it shows numbers."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import typer
from joblib.externals.loky.process_executor import TerminatedWorkerError

import lazyknife as lk
from command import fail, predict, succeed
from lazyknife.cli import console
from lazyknife.report.comparison import COLUMNS

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


HEAVY = ["torch", "sklearn", "scipy", "matplotlib"]
# The commands of standard input, one after the other.
ASKED = """
import json, sys
from typer.testing import CliRunner
from lazyknife.cli.app import app
for arguments in json.load(sys.stdin):
    result = CliRunner().invoke(app, arguments)
    loaded = [name for name in {heavy} if name in sys.modules]
    print(result.exit_code, loaded, result.stderr.strip().splitlines()[-1])
"""
ANSWERED = [
    (predict(train="nowhere.csv"), "nowhere.csv cannot be read (No such file or directory)"),
    (predict("--target", "z"), "train.csv: no column 'z'"),
    (predict("--target", "Y"), "train.csv: no column 'Y': did you mean 'y'?"),
    (predict("--id", "z"), "test.csv: no column 'z'"),
    (predict("--drop", "z"), "no column 'z'"),
    (predict(test="other.csv"), "other.csv, unlike train.csv: no column 'a'"),
    (predict(output="train.csv/out.csv"), "cannot be written to"),
    (predict(output="out.txt"), "give a name that ends in .csv"),
    (predict("--figure", "a.txt"), "give a name that ends in .svg"),
    (predict("--sep", "ab"), "--sep 'ab'"),
    (predict("--hidden", "x"), "--hidden 'x': give the widths of the layers, such as 64,64"),
    (predict("--alpha", "2"), "alpha=2.0: give a number strictly between 0 and 1"),
    (predict("--loss", "x"), "'x' is not one of 'squared', 'huber', 'logistic', 'poisson'"),
    (
        ("predict", "train.csv", "--row", "A=1, c=2", "--target", "y"),
        "--row, unlike train.csv: no column 'a', 'b': rename 'A'",
    ),
    (("compare", "all.csv", "--target", "z"), "all.csv: no column 'z'"),
    (("compare", "all.csv", "--target", "y", "--method", "z"), "method='z': choose from 'naive'"),
    (("fit", "all.csv", "--target", "y", "--model", "m.txt"), "ends in .lk"),
]


def test_what_is_wrong_is_answered_before_torch_is_loaded(folder):
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(heavy=HEAVY)],
        **{"input": json.dumps([asked for asked, _ in ANSWERED]), "capture_output": True},
        **{"text": True, "check": True},
    )
    for answer, (_, message) in zip(done.stdout.splitlines(), ANSWERED, strict=True):
        assert answer.startswith("2 [] error: ")
        assert message in answer


def test_the_command_heeds_signals_before_it_loads_anything():
    found = f"[name for name in {[*HEAVY, 'pandas', 'typer']} if name in sys.modules]"
    code = f"import sys, lazyknife.cli.__main__; print({found})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_the_command_and_removes_half_written_files(tmp_path, name, code):
    script = f"""
import os, signal, sys
from pathlib import Path
from lazyknife.cli import __main__, app
from lazyknife.files import replacing
def write():
    with replacing(Path("out.csv")) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.{name})
app.main = write
signal.signal(signal.SIGINT, signal.default_int_handler)
__main__.main()
"""
    (tmp_path / "out.csv").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = {"SIGINT": "interrupted\n", "SIGTERM": "terminated\n"}
    assert (done.returncode, done.stderr) == (code, said[name])
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_command_that_is_still_loading_can_be_terminated(tmp_path):
    script = """
import os, signal
from lazyknife.cli import __main__, app
app.main = lambda: os.kill(os.getpid(), signal.SIGTERM)
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM  # by the system: a handler waits for the import


def test_the_version_and_the_help_are_shown():
    assert succeed("--version") == f"lazyknife {lk.__version__}\n"
    text = succeed()
    assert text == succeed("--help")
    for command in COMMANDS:
        assert re.search(rf"│ {command} ", text)
        assert "Usage: lazyknife" in succeed(command, "--help")


def test_help_breaks_its_lines_where_the_screen_ends():
    lines = [line.strip() for line in succeed("predict", "--help").splitlines()]
    assert max(map(len, lines)) <= 80
    assert "Usage: lazyknife predict [OPTIONS] [TRAIN] [TEST]" in lines
    text = " ".join(" ".join(lines).split())
    assert "They are printed unless --output or --html is given." in text
    choices = "(auto | plus | minmax | full | cv+ | split | jackknife | naive)"
    assert choices in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus': see lazyknife --help"),
        (["predicted"], "Did you mean 'predict': see lazyknife --help"),
        (["predict"], "TRAIN is missing: give TRAIN, TEST and --target, or NEW and --model"),
        (["fit"], "Missing argument 'TRAIN': see lazyknife fit --help"),
        (["predict", "a", "b", "--bogus"], "No such option: --bogus"),
        (["certify", "--n", "x"], "'--n': .*valid integer.*: see lazyknife certify --help"),
        (["certify", "--n", "9", "--base", "x"], "'--base': 'x' is not one of 'public', 'split'"),
        (["certify", "--n", "0"], "n=0: give a whole number of at least 1"),
        (["plan", "--n", "9", "--coverage", "2"], "coverage=2.0: give a number strictly between"),
        (
            ["plan", "--n", "9", "--coverage", ".8", "--construction", "naive"],
            "construction='naive'",
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


@pytest.mark.skipif(os.name != "posix", reason="signals")
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


def test_the_table_of_a_comparison_fits_a_narrow_screen(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, and no colours
    methods = ("lazyknife_public", "split_conformal", "cv+")
    measured = ("0.883 ± 0.017", "5,340 ± 860", "6,540 ± 970", "0.012", "0.799")
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
