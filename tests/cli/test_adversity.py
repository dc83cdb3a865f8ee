"""Full disks, little memory, and hostile texts: results, or one clear line."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from hashlib import sha256
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save

from command import fail, predict, run, succeed
from fuzzing import patience
from lazyknife import LazyJackknifeRegressor
from lazyknife.estimators.saving import SCHEMA

ESCAPE = "\x1b[31m"  # red, to a terminal
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FIT = ("fit", "train.csv", "--target", "y", "--model", "m.lk")


def rename(**names):
    """Give columns of both files other names."""
    for file in ("train.csv", "test.csv"):
        pd.read_csv(file).rename(columns=names).to_csv(file, index=False)


# Files that cannot be written


@contextmanager
def small_files(size):
    """Within the block no file grows beyond this size, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_that_the_disk_has_no_room_for_is_one_line_and_the_old_file_stays(folder):
    succeed(*FIT)
    old = (folder / "m.lk").read_bytes()
    files = sorted(os.listdir())
    with small_files(4096):
        message = fail(*FIT)
        with pytest.raises(OSError, match=r"m\.lk cannot be written"):
            LazyJackknifeRegressor.load("m.lk").save("m.lk")
    assert re.fullmatch(r"m\.lk cannot be written \(.*File too large.*\): .*", message)
    assert (folder / "m.lk").read_bytes() == old
    assert sorted(os.listdir()) == files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(folder):
    succeed(*FIT)
    for name in ("pipe.csv", "pipe.parquet"):
        os.mkfifo(name)
        with patience(20):
            for command in (predict(train=name), predict(test=name), ("compare", name)):
                options = ("--target", "y") if command[0] == "compare" else ()
                assert f"{name} is not a file" in fail(*command, *options)
            stored = ("predict", name, "--model", "m.lk", "--output", "out.csv")
            assert f"{name} is not a file" in fail(*stored)


def test_a_name_that_is_no_unicode_does_not_spoil_the_page(folder):
    name = os.fsdecode(b"\xff.csv")
    try:
        (folder / "train.csv").rename(name)
    except OSError:
        pytest.skip("names of files are Unicode on this system")
    succeed(*predict("--html", "page.html", train=name))
    assert r"\udcff.csv" in (folder / "page.html").read_text(encoding="utf-8")


# Texts


def test_no_control_character_of_a_file_reaches_the_terminal(folder):
    odd = f"{ESCAPE}\x07\x9b\u202eb\nb"
    rename(b=odd, c="c" + ESCAPE)
    for file in ("train.csv", "test.csv"):
        frame = pd.read_csv(file)
        frame[odd] = [f"{ESCAPE}{'uv'[k % 2]}" for k in range(len(frame))]
        frame.assign(**{"=n" + ESCAPE: "=1"}).to_csv(file, index=False)
    text = bytearray(json.dumps({"lazyknife": "0", "class": ESCAPE}).encode())
    content = save({"document": torch.frombuffer(text, dtype=torch.uint8)})
    head = SCHEMA + sha256(content).hexdigest().encode() + b"\n"
    (folder / "forged.lk").write_bytes(head + content)
    said = [
        run(*predict("--id", "=n" + ESCAPE, output=f"{ESCAPE}.csv")),
        run(*predict("--target", odd)),
        run(*predict("--target", ESCAPE)),
        run(*predict("--drop", "=n" + ESCAPE, "--ridge", ESCAPE)),
        run("predict", f"--{ESCAPE}"),
        run(*predict(train=f"{ESCAPE}.csv")),
        run("predict", "test.csv", "--model", "forged.lk", "--output", "out.csv"),
    ]
    assert [result.exit_code for result in said] == [0, 0, 2, 2, 2, 2, 2]  # texts are classes
    for result in said:
        assert not CONTROL.search(result.output + result.stderr)
        assert re.search(r"\\x1b\[31m", result.output + result.stderr)
        kinds = {line.partition(": ")[0] for line in result.stderr.splitlines()}
        assert kinds <= {"error", "note", "warning"}


def test_no_control_character_of_a_file_reaches_a_page(folder):
    odd = f"{ESCAPE}\x07\u202e\u200e\u200f\u061c\u2028\u2029b"
    for file in ("train.csv", "test.csv", "all.csv"):
        frame = pd.read_csv(file).rename(columns={"b": odd})
        group = [f"{ESCAPE}\u200f{'uv'[k % 2]}" for k in range(len(frame))]
        frame.assign(**{f"g{odd}": group, odd: group}).to_csv(file, index=False)
    run(*predict("--id", odd, "--html", "predicted.html"))
    quick = ("--method", "lazyknife", "--jobs", "1", "--folds", "2")
    run("compare", "all.csv", "--target", "y", *quick, "--html", "compared.html")
    for name in ("predicted.html", "compared.html"):
        page = (folder / name).read_text(encoding="utf-8")
        assert r"g\x1b[31m\x07\u202e\u200e\u200f\u061c\u2028\u2029b" in page
        assert not CONTROL.search(page)


@pytest.mark.parametrize("name", ["y\x1b\x07\nz", r"$\nosuch$ cost", "point", "id"])
def test_any_name_of_a_target_can_be_drawn(folder, name):
    rename(y=name)
    drawn = ("--target", name, "--figure", "f.svg", "--html", "page.html")
    succeed(*predict(*drawn))
    ElementTree.parse("f.svg")
    assert "\x1b" not in (folder / "f.svg").read_text()


def test_any_name_of_a_target_can_be_drawn_in_a_comparison(folder):
    pd.read_csv("all.csv").rename(columns={"y": "$\\y$\x1b"}).to_csv("all.csv", index=False)
    quick = ("--method", "lazyknife", "--jobs", "1", "--folds", "2")
    succeed(
        *("compare", "all.csv", "--target", "$\\y$\x1b", *quick),
        *("--figure", "f.svg", "--html", "page.html"),
    )
    ElementTree.parse("f.svg")


# Memory

LITTLE = """
import resource, sys
from typer.testing import CliRunner
from lazyknife.cli.app import app
small = "predict train.csv test.csv --target y --output out.csv".split()
assert CliRunner().invoke(app, small).exit_code == 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (used + 24 * 2**20, limit))
result = CliRunner().invoke(app, "predict large.csv test.csv --target y -o out.csv".split())
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(result.exit_code, result.stderr.strip())
if result.exit_code != 2: raise result.exception
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_too_little_memory_is_one_line(folder):
    rng = np.random.default_rng(0)
    large = pd.DataFrame(rng.normal(size=(900, 4)), columns=list("abcy"))
    large.to_csv("large.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-c", LITTLE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert re.match(r"2 error: .*(bytes|memory ran out).*: .*fewer rows", line), line


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_too_little_memory_to_load_torch_is_one_line(folder):
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (600 * 10**6, resource.RLIM_INFINITY))
from lazyknife.cli.__main__ import main
main()
"""
    command = [sys.executable, "-c", code, "fit", "train.csv", "--target", "y", "--model", "m.lk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    found = r"error: 0\.5\d? GB of address space are left \(ulimit -v\), .*: raise the limit\n"
    assert re.fullmatch(found, done.stderr), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device is full on this system")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("fit", "--help")])
def test_an_output_that_is_full_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lazyknife.cli", *arguments],
            **{"stdout": full, "stderr": subprocess.PIPE, "text": True, "check": False},
        )
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")
