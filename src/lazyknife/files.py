"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


class WriteError(OSError):
    """A file that cannot be written; the message names it."""


_unfinished: set[Path] = set()  # temporary files of this process
before_files: list[Callable[[], object]] = []  # called once, before the first of them


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block has succeeded.

    Readers see the old file or the new one, never a part, even if the process is killed. A file
    that is replaced keeps its permissions, and a symbolic link keeps its place: the file that it
    points to is replaced. An error names ``path``.
    """
    with beside(path) as temporary:
        yield temporary
        place = _place(path)
        if place.exists():
            mode = stat.S_IMODE(place.stat().st_mode)
        else:  # temporary files are private, the final file should not be
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        temporary.chmod(mode)
        os.replace(temporary, place)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the folder of ``path``, which an error names; then remove it."""
    while before_files:
        before_files.pop()()
    temporary = None
    try:
        place = _place(path)
        if _is_special(place):
            raise WriteError(f"{path} is not a regular file: give another name")
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(path.suffix, f".{place.name}.", place.parent)
        os.close(handle)
        _unfinished.add(temporary := Path(name))
        yield temporary
    except WriteError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
            _unfinished.discard(temporary)


def write_together(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write several files, none of which is replaced unless all could be written."""
    with ExitStack() as stack:
        for path, write in writers.items():
            write(stack.enter_context(replacing(path)))


def remove_unfinished() -> None:
    """Remove the temporary files of this process, which is about to end."""
    for temporary in tuple(_unfinished):
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_writable(path: Path, suffixes: Iterable[str]) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    known = tuple(suffixes)
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder: give the name of a file")
    if _is_special(path):
        raise ValueError(f"{path} is not a regular file: give another name")
    if not path.name.lower().endswith(known):
        raise ValueError(f"{path}: give a name that ends in {', '.join(known)}")
    try:
        # Missing folders will be created inside the closest that exists.
        folder = next(parent for parent in _place(path).parents if os.path.exists(parent))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: {path.parent} cannot be written to ({reason})") from None


def _place(path: Path) -> Path:
    """Return the file that a path leads to, through symbolic links."""
    try:
        return path.resolve()
    except RuntimeError as error:  # links that go round
        raise _unwritable(path, error) from None
    except ValueError as error:  # a null character, half a character
        raise ValueError(f"{str(path)!r} is not the name of a file ({error})") from None


def _is_special(path: Path) -> bool:
    """Whether a path leads to a pipe, a socket or a device, which a file must not replace."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _unwritable(path: Path, error: Exception) -> WriteError:
    reason = getattr(error, "strerror", None) or error
    return WriteError(f"{path} cannot be written ({reason}): choose another folder")
