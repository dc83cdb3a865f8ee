"""Full disks, little memory, and hostile texts: results, or one clear line."""

import os
import re
from contextlib import contextmanager

import pytest

from command import fail, predict, succeed
from fuzzing import patience
from lazyknife import LazyJackknifeRegressor

FIT = ("fit", "train.csv", "--target", "y", "--model", "m.lk")


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
    assert "?.csv" in (folder / "page.html").read_text(encoding="utf-8")
