"""A file as it is found before it is read, and as it is held while it is read: its name, its version, its bytes.

Where files are found and fetched from is `local_files`', `web_files`' and `store_files`'.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar

from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceUnavailableError, cut_off_is_passing
from connectors.sources.files.unpacking import as_stored, unpacked

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open, seekable file as it is stored. `name` is what people call it, `stamp` evidence of its version or "".

    `has_known_end`: something proves that it has come whole: the disk, its length, or its second coming.
    """

    stream: BinaryIO
    name: str
    stamp: str
    has_known_end: bool = True


OpenStored = Callable[[], AbstractContextManager[StoredFile]]
"""Opens a file for one pass over it, from its first byte."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there. `path` leads to it, secrets included; `label` tells it from its neighbours (`lisbon/agenda.csv`).

    `version` is evidence of its content, "" if there is none; `changed_at`, in seconds since 1970, and `size`, in
    bytes, are None if nobody knows; nor may `placed_at`, when anything of it changed, its name and age included. `day`: the
    day that it is named after; `number`: its own on the disk, for as long as the disk stays where it is.
    """

    path: str = field(repr=False)
    label: str
    version: str = ""
    changed_at: float | None = None
    size: int | None = None
    day: date | None = None
    placed_at: float | None = None
    number: int | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return self.label.rpartition("/")[2]

    @property
    def evidence(self) -> bytes:
        """What stands for this version of this file and for no other: two files may call their versions the same."""
        return f"{self.label}\0{self.day or ''}\0{self.version}\0".encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A copy of a file from elsewhere, without a name on this machine; it may be read any number of times, one by one."""

    stream: BinaryIO
    name: str
    stamp: str
    version: str = ""
    """What the other side says of the version, to be asked about later; "" if it says nothing of use."""
    age_s: float | None = None
    """How long it had been as it is, by the other side's clock; None if that is not known."""
    has_known_end: bool = True

    @contextmanager
    def opened(self) -> Iterator[StoredFile]:
        """Open the copy from its start; whoever reads it may close what it is given."""
        self.stream.seek(0)
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as own:
            yield StoredFile(own, self.name, self.stamp, self.has_known_end)


def through_a_copy(fetch: Callable[[], AbstractContextManager[KeptFile]]) -> OpenStored:
    """Return what opens a file from elsewhere: `fetch` gives a copy of it, for each pass a new one."""

    @contextmanager
    def open_stored() -> Iterator[StoredFile]:
        with fetch() as kept, kept.opened() as stored:
            yield stored

    return open_stored


def digest_of(stream: BinaryIO) -> str:
    """Return a stamp made of the bytes themselves; the stream is back at its start."""
    stream.seek(0)
    digest = hashlib.blake2b(digest_size=16)
    for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""):
        digest.update(chunk)
    stream.seek(0)
    return f"blake2b={digest.hexdigest()}"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open, seekable file. `name` is what people call it (`events.csv`), `stamp` evidence of its version or "".

    `has_known_end`: its length or the format that it is packed in proves that it has come whole.
    """

    stream: BinaryIO
    name: str
    stamp: str
    _stored: BinaryIO
    _before: tuple[int, int]
    has_known_end: bool = True

    @property
    def stored_bytes(self) -> int:
        """The size of the file as it is stored, packed or not."""
        return self._before[0]

    def has_changed(self) -> bool:
        """Whether somebody wrote into it since it was opened. A file put in its place as a whole does not count."""
        return _version(self._stored) != self._before


@dataclass(frozen=True, slots=True)
class FileAt:
    """A file that can be opened any number of times. `member`: the file of a zip archive that is meant, as a pattern."""

    open_stored: OpenStored
    member: str = ""


@contextmanager
def opened(file: FileAt, *, unpacks: bool = True) -> Iterator[OpenedFile]:
    """Open a file; close it at the end.

    A file packed with gzip, bzip2, xz or Zstandard, or in a zip archive, is read unpacked, unless `unpacks` says otherwise:
    then only a `member` is taken out of its archive.

    Raises:
        SourceRefusedError: it is not there, is no file, or may not be read.
        SourceUnavailableError: the other side or the disk did not answer.
        BadSourceError: it is an archive in which not one file is meant, or damaged.
    """
    with file.open_stored() as stored, cut_off_is_passing(stored.name, has_known_end=stored.has_known_end):
        if not unpacks and not file.member:
            with as_stored(stored.stream, stored.name) as stream:
                yield OpenedFile(stream, stored.name, stored.stamp, stored.stream, _version(stored.stream))
            return
        with unpacked(stored.stream, stored.name, file.member) as (stream, inner, is_packed):
            if unpacks:
                has_known_end = stored.has_known_end or is_packed
                yield OpenedFile(stream, inner, stored.stamp, stored.stream, _version(stored.stream), has_known_end)
                return
            with TemporaryFile(prefix="eventsync-") as plain:
                shutil.copyfileobj(stream, plain)
                plain.seek(0)
                yield OpenedFile(plain, inner, stored.stamp, stored.stream, _version(stored.stream))


def _version(stream: BinaryIO) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns


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
