"""``python -m lazyknife.cli`` is the command ``lazyknife``; signals end it quietly."""

from __future__ import annotations

import os
import signal
from types import FrameType

ENDED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def end(number: int, _: FrameType | None) -> None:
    """End at once, with the exit code of a shell, and leave no half-written file."""
    from ..files import remove_unfinished

    remove_unfinished()
    os.write(2, f"{ENDED[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def main() -> None:
    """Run the command; whatever takes time to import is imported here."""
    for number in ENDED:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in a job of the background
            signal.signal(number, end)
    # The helper process of joblib cleans up after an end like this, and need not say so.
    quiet = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.getenv("PYTHONWARNINGS"), quiet)))
    from .app import main as run

    run()


if __name__ == "__main__":
    main()
