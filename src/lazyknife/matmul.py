"""torch's precision of float32 matrix products, which is one setting for all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _SharedSetting:
    """Threads that need the same precision run side by side.

    One that needs another waits until they are done, and later ones wait behind it. The user's own
    setting is restored when the last one leaves.
    """

    def __init__(self) -> None:
        self._queue, self._left = threading.Lock(), threading.Condition()
        self._workers = 0
        self._users = self._now = ""
        self._thread = threading.local()

    @contextmanager
    def at(self, wanted: str) -> Iterator[None]:
        """Run a block at this precision; such blocks may be nested."""
        outer: str | None = getattr(self._thread, "at", None)
        if outer == wanted:
            yield
            return
        self._change(outer, wanted)  # nothing of the outer block runs during this one
        try:
            yield
        finally:
            self._change(wanted, outer)

    def _change(self, old: str | None, new: str | None) -> None:
        if old is not None:
            self._leave()
        if new is not None:
            self._enter(new)
        self._thread.at = new

    def _enter(self, wanted: str) -> None:
        with self._queue, self._left:
            self._left.wait_for(lambda: not self._workers or self._now == wanted)
            if not self._workers:
                self._users = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision(wanted)
                self._now = wanted
            self._workers += 1

    def _leave(self) -> None:
        with self._left:
            self._workers -= 1
            if not self._workers:
                torch.set_float32_matmul_precision(self._users)
                self._left.notify_all()


float32_products = _SharedSetting().at
