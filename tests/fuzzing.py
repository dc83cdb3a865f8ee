"""A search for defects: many drawn cases, each of which succeeds or is refused clearly.

``make test`` runs the same few cases every time, ``make fuzz`` many new ones.
"""

import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

CASES = int(os.environ.get("FUZZ_CASES", "0"))  # of every search; 0: the few of the suite


class Defect(AssertionError):
    """A case that neither succeeded nor was refused clearly."""


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """End a block that hangs."""

    def give_up(*_: Any) -> None:
        raise Defect(f"no end after {seconds} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def search(
    cases: SearchStrategy[Any], run: Callable[[Any], bool], quick: int, seconds: int = 60
) -> Counter[str]:
    """Run many cases, and fail with one of each kind that is neither fine nor refused.

    ``run`` returns whether a case succeeded, False where it was refused clearly; anything raised is
    a defect, as is a case that takes longer than so many seconds. The ``repr`` of a case should be
    enough to repeat it; ``quick`` is their number in the suite.
    """
    tally, defects = Counter[str](), dict[str, str]()

    @settings(
        max_examples=CASES or quick,
        derandomize=not CASES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def each(case: Any) -> None:
        try:
            with patience(seconds):
                fine = run(case)
            tally["fine" if fine else "refused"] += 1
        except Exception as error:
            tally["defects"] += 1
            place = [f"{frame.filename}:{frame.lineno}" for frame in frames(error)][-1:]
            kind = f"{type(error).__name__} at {place} {str(error)[:60]}"
            defects.setdefault(kind, f"{case!r}\n    {shown(error)}")

    each()
    print(", ".join(f"{count} {outcome}" for outcome, count in tally.items()))
    listed = "\n".join(f"{k}. {found}" for k, found in enumerate(defects.values(), start=1))
    assert not defects, f"{len(defects)} kinds of defects in {tally.total()} cases:\n{listed}"
    return tally


def shown(error: BaseException) -> str:
    """An error and the last lines of the package that it passed through."""
    ours = [f for f in frames(error) if "lazyknife" in Path(f.filename).parts][-3:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(ours))
    return f"{type(error).__name__}: {error} ({where})"[:2000]


def frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Frames of a traceback, the innermost last."""
    yield from traceback.extract_tb(error.__traceback__)
