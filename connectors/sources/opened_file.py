"""A file of bytes, opened for one reading and unpacked on the way, and watched for somebody who writes into it meanwhile.

What the bytes mean is not known here; where the file comes from is whoever's who hands it in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar

from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceUnavailableError, cut_off_is_passing
from connectors.sources.found_file import OpenStored
from connectors.sources.unpacking import as_stored, unpacked

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
