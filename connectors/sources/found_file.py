"""A file as it is found before it is read, and as it is held while it is read: its name, its version, its bytes.

Where files are found and fetched from is `local_files`', `web_files`' and `store_files`'.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import BinaryIO

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
