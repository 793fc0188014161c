"""A file of bytes, opened for one reading: on this machine, or fetched from elsewhere first.

What the bytes mean is not known here; how a far file is fetched is `far_file`'s.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceRefusedError, SourceUnavailableError
from connectors.sources.far_file import fetched
from connectors.sources.unpacking import unpacked

T = TypeVar("T")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(//|:)")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open, seekable file. `name` is what people call it (`events.csv`), `stamp` evidence of its version or ""."""

    stream: BinaryIO
    name: str
    stamp: str
    _stored: BinaryIO
    _before: tuple[int, int]

    def has_changed(self) -> bool:
        """Whether somebody wrote into it since it was opened. A file put in its place as a whole does not count."""
        return _version(self._stored) != self._before


def is_address(path: str) -> bool:
    """Whether a path is an address that fsspec opens, and no file of this machine."""
    return _ADDRESS.match(path) is not None


@contextmanager
def opened(path: str, base: Path, *, unpacks: bool = True) -> Iterator[OpenedFile]:
    """Open `path` (relative to the folder `base`, absolute, or any address that fsspec knows); close it at the end.

    A file packed with gzip, bzip2 or xz, or alone in a zip archive, is read unpacked, unless `unpacks` says otherwise.

    A far file is copied to a nameless temporary file first: so a connection that breaks yields no rows at all, the
    file can be read twice, and it cannot change meanwhile.

    Raises:
        SourceRefusedError: it is not there, is no file, or may not be read.
        SourceUnavailableError: the other side or the disk did not answer.
        BadSourceError: it is an archive of several files, or damaged.
    """
    with _stored(path, base) as (stored, name, stamp):
        if not unpacks:
            yield OpenedFile(stored, name, stamp, stored, _version(stored))
            return
        with unpacked(stored, name) as (stream, inner):
            yield OpenedFile(stream, inner, stamp, stored, _version(stored))


@contextmanager
def _stored(path: str, base: Path) -> Iterator[tuple[BinaryIO, str, str]]:
    if is_address(path):
        with fetched(path) as (stream, stamp):
            yield stream, _address_name(path), stamp
        return
    with _local(base / path) as stream:
        status = os.fstat(stream.fileno())
        # The time of the last change of any kind: a copy that keeps its age, put in the file's place, has another one.
        yield stream, Path(path).name, f"size={status.st_size} mtime_ns={status.st_mtime_ns} ctime_ns={status.st_ctime_ns}"


def _local(path: Path) -> BinaryIO:
    full = path.expanduser().absolute()
    try:
        # Asked before it is opened: opening a pipe would wait for a writer.
        if not stat.S_ISREG(full.stat().st_mode):
            kind = "a folder" if full.is_dir() else "not a regular file"
            raise SourceRefusedError(f"{full} is {kind}", hint="give the path of the file itself in `source.path`")
        return full.open("rb")
    except FileNotFoundError as error:
        raise SourceRefusedError(f"there is no file {full}", hint=_whereabouts(full)) from error
    except (PermissionError, NotADirectoryError) as error:
        raise SourceRefusedError(f"we may not read {full}: {error.strerror}", hint="let this user read the file") from error
    except OSError as error:
        raise SourceUnavailableError(f"{full} could not be opened: {error.strerror}") from error


def _whereabouts(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either; a relative `source.path` starts at the mapping file's folder"
    return "has the partner delivered it? A relative `source.path` starts at the mapping file's folder"


def _version(stream: BinaryIO) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns


def _address_name(address: str) -> str:
    parts = urlsplit(address.rpartition("::")[2])
    return PurePosixPath(parts.path).name or parts.hostname or address


def whole(file: OpenedFile, rows: Iterator[T]) -> Iterator[T]:
    """Give the rows, and make sure at their end that nobody has written into the file meanwhile.

    Raises:
        SourceUnavailableError: somebody has.
    """
    with told_of_change(file):
        yield from rows
    if file.has_changed():
        raise _changed(file)


@contextmanager
def told_of_change(file: OpenedFile) -> Iterator[None]:
    """A file that somebody is writing looks broken: say that it is being written instead."""
    try:
        yield
    except (BadSourceError, MissingColumnsError) as error:
        if file.has_changed():
            raise _changed(file) from error
        raise


def _changed(file: OpenedFile) -> SourceUnavailableError:
    hint = "run again; if it happens often, ask for the file to be written elsewhere and moved here"
    return SourceUnavailableError(f"{file.name} changed while we read it", hint=hint)
