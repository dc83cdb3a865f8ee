"""A progress bar for the long loops, shown only when asked for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, total: int, show: bool) -> Iterator[Item]:
    """Yield the items; with ``show``, draw a bar (rich, or one plain line without it)."""
    if not show:
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        for done, item in enumerate(items, start=1):
            yield item
            print(f"\r{description}: {done}/{total}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    else:
        # Lines that are printed meanwhile go above the bar, for which rich takes the place of
        # sys.stdout and sys.stderr: bars of several threads must not all do that.
        main = threading.current_thread() is threading.main_thread()
        bar = Progress(console=Console(stderr=True), redirect_stdout=main, redirect_stderr=main)
        with bar:
            yield from bar.track(items, total=total, description=description)
