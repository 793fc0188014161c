"""A file as it is found, as it is stored, and as it is opened for one pass: unpacked, and watched for changes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar

from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceUnavailableError, cut_off_is_passing
from connectors.sources.files.unpacking import as_stored, unpacked

T = TypeVar("T")

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there. `path` leads to it, secrets included; `label` distinguishes it from its neighbours
    (`lisbon/agenda.csv`).

    `version` is evidence of its content, "" without any. `changed_at` and `placed_at` (when anything of it changed, its name
    and age included) are seconds since 1970, `size` bytes; None where unknown. `day`: the day that it is named after;
    `number`: its inode.
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
        """Identify this version of this file: two files may call their versions the same."""
        return f"{self.label}\0{self.day or ''}\0{self.version}\0".encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open, seekable file as it is stored, or a nameless copy of one from elsewhere.

    `name` is what people call it, `stamp` evidence of its content or "". `version`: what its server calls the version, to ask
    about later. `age_s`: how long it had been unchanged by its server's clock. `has_known_end`: the disk, its length or its
    second transfer proves that it has come whole.
    """

    stream: BinaryIO
    name: str
    stamp: str
    has_known_end: bool = True
    version: str = ""
    age_s: float | None = None

    @contextmanager
    def reopened(self) -> Iterator[StoredFile]:
        """Open the same bytes from the start. They share one position: read one at a time."""
        self.stream.seek(0)
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as own:
            yield replace(self, stream=own)


OpenStored = Callable[[], AbstractContextManager[StoredFile]]
"""Opens a file for one pass over it, from its first byte."""


@dataclass(frozen=True, slots=True)
class FileAt:
    """A file that can be opened any number of times. `member`: which file of a zip archive is meant, as a pattern."""

    open_stored: OpenStored
    member: str = ""


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
        """Whether it was written into since it was opened. A file put in its place as a whole does not count."""
        return _size_and_time(self._stored) != self._before


@contextmanager
def opened(file: FileAt, *, unpacks: bool = True) -> Iterator[OpenedFile]:
    """Open a file and unpack it: gzip, bzip2, xz, Zstandard or a zip archive; without `unpacks` only the `member` of an archive.

    Raises:
        SourceRefusedError: it is not there, is no file, or may not be read.
        SourceUnavailableError: the other side or the disk did not answer.
        BadSourceError: it is an archive in which not one file is meant, or damaged.
    """
    with file.open_stored() as stored, cut_off_is_passing(stored.name, has_known_end=stored.has_known_end):
        before = _size_and_time(stored.stream)
        if not unpacks and not file.member:
            with as_stored(stored.stream, stored.name) as stream:
                yield OpenedFile(stream, stored.name, stored.stamp, stored.stream, before)
            return
        with unpacked(stored.stream, stored.name, file.member) as (stream, name, is_packed):
            if unpacks:
                has_known_end = stored.has_known_end or is_packed
                yield OpenedFile(stream, name, stored.stamp, stored.stream, before, has_known_end)
                return
            with TemporaryFile(prefix="eventsync-") as plain:
                shutil.copyfileobj(stream, plain)
                plain.seek(0)
                yield OpenedFile(plain, name, stored.stamp, stored.stream, before)


@contextmanager
def detect_change(file: OpenedFile) -> Iterator[None]:
    """Notice that the file is written into during the block; a file that is being written looks broken.

    Raises:
        SourceUnavailableError: it is.
    """
    try:
        yield
    except (BadSourceError, MissingColumnsError) as error:
        if file.has_changed():
            raise _changed(file) from error
        raise
    if file.has_changed():
        raise _changed(file)


def whole(file: OpenedFile, rows: Iterator[T]) -> Iterator[T]:
    """Yield the rows; raises as `detect_change`."""
    with detect_change(file):
        yield from rows


def _changed(file: OpenedFile) -> SourceUnavailableError:
    hint = "run again; if it happens often, ask for the file to be written elsewhere and moved here"
    return SourceUnavailableError(f"{file.name} changed while we read it", hint=hint)


def _size_and_time(stream: BinaryIO) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns


def digest_of(stream: BinaryIO) -> str:
    """Return a stamp made of the bytes themselves; the stream is back at its start."""
    stream.seek(0)
    digest = hashlib.blake2b(digest_size=16)
    for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""):
        digest.update(chunk)
    stream.seek(0)
    return f"blake2b={digest.hexdigest()}"
