"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block has succeeded.

    Readers see the old file or the new one, never a part, even if the process is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, suffixes: Iterable[str]) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    known = tuple(suffixes)
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder: give the name of a file")
    if not path.name.lower().endswith(known):
        raise ValueError(f"{path}: give a name that ends in {', '.join(known)}")
    # Missing folders will be created inside the closest that exists.
    folder = next(parent for parent in path.absolute().parents if os.path.exists(parent))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{path}: {folder} cannot be written to ({error.strerror})") from None


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _umask() -> int:
    """Return the process's umask: temporary files are private, the final file should not be."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
