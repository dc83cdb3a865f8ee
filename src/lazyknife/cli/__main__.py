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


def heed(number: signal.Signals) -> None:
    """End by a signal, unless it is ignored, as in a job of the background."""
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, end)


def main() -> None:
    """Run the command; whatever takes time to import is imported here."""
    from ..files import before_files

    heed(signal.SIGINT)
    # Until there are files to remove the system ends it, also while a library is being loaded.
    before_files.append(lambda: heed(signal.SIGTERM))
    # The helper process of joblib cleans up after an end like this, and need not say so.
    quiet = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.getenv("PYTHONWARNINGS"), quiet)))
    from .app import main as run

    run()


if __name__ == "__main__":
    main()
