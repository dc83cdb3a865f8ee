"""Work in blocks, so that memory stays bounded whatever the number of rows."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 256 * 2**20


def fits(total: int, bytes_each: int) -> bool:
    """Whether one block would hold everything."""
    return total * bytes_each <= BLOCK_BYTES


def blocks(total: int, bytes_each: int) -> Iterator[slice]:
    """Split ``range(total)`` so that no block needs more than ``BLOCK_BYTES``, but at least one."""
    size = max(1, BLOCK_BYTES // max(bytes_each, 1))
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))
