"""Workers that end with the process that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lazyknife.compute import side_by_side

SLEEPER = """
import os, time
def sleep(path):
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    time.sleep(600)
"""


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def waits(condition, seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_workers_end_after_their_parent_is_killed(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "main.py").write_text(
        "import sys\nfrom sleeper import sleep\nfrom lazyknife.compute import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    list(side_by_side(sleep, [(sys.argv[1],), (sys.argv[2],)], 2))\n"
    )
    marks = [tmp_path / "one", tmp_path / "two"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "main.py", *map(str, marks)],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert waits(lambda: all(mark.exists() for mark in marks))
        workers = [int(mark.read_text()) for mark in marks]
        parent.send_signal(signal.SIGKILL)
    assert waits(lambda: not any(map(is_alive, workers)))


def test_one_job_runs_in_this_process():
    assert set(side_by_side(os.getpid, [(), ()], 1)) == {os.getpid()}
