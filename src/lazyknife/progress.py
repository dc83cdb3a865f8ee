"""A progress bar for the long loops, shown only when asked for."""

from __future__ import annotations

import sys
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
        from rich.progress import track as rich_track
    except ImportError:
        for done, item in enumerate(items, start=1):
            yield item
            print(f"\r{description}: {done}/{total}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    else:
        console = Console(stderr=True)
        yield from rich_track(items, description=description, total=total, console=console)
