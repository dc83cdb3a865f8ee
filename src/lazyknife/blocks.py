"""Work in blocks, so that memory stays bounded whatever the number of rows."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 256 * 2**20
# What a processor's caches hold: layer after layer of many networks runs much faster there.
CACHE_BYTES = 6 * 2**20


def fits(total: int, bytes_each: int) -> bool:
    """Whether one block would hold everything."""
    return total * bytes_each <= BLOCK_BYTES


def blocks(total: int, bytes_each: int, limit: int | None = None) -> Iterator[slice]:
    """Split ``range(total)`` so that no block needs more than the limit, but holds at least one.

    The limit is ``BLOCK_BYTES`` if none is given.
    """
    size = max(1, (BLOCK_BYTES if limit is None else limit) // max(bytes_each, 1))
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def cached_blocks(total: int, bytes_each: int) -> Iterator[slice]:
    """Blocks that stay in the processor's caches, and within ``BLOCK_BYTES``."""
    return blocks(total, bytes_each, min(CACHE_BYTES, BLOCK_BYTES))
