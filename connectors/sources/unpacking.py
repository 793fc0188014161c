"""Packed files on their way out, watched: a small one that unpacks without end is refused while it is read.

What the unpacked bytes mean is their reader's matter; a workbook is a package of its own kind (`xlsx_package`).
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import io
import lzma
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

from connectors.sources.errors import BadSourceError, as_bad_source
from mappings.errors import ConfigError

_BUFFER_BYTES = 64 * 1024
_MOST_SHOWN = 20
_DAMAGED = "the packed file is damaged or cut off"

HARMLESS_BYTES = 32 * 1024 * 1024
"""So much may come out of any file, however small it is packed."""

MOST_RATIO = 250
"""Beyond that, so many bytes may come out of each packed one: tables of text reach 10 to 100."""


class _Packed(Protocol):
    """What unpackers have in common."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def seekable(self) -> bool: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...


@contextmanager
def unpacked(stored: BinaryIO, name: str, member: str = "") -> Iterator[tuple[BinaryIO, str, bool]]:
    """Give the stream to read a stored file by, what people call it, and whether it was packed.

    `member`: which file of a zip archive is meant, by a pattern such as `*/events.csv`; "": its only one.

    Raises:
        BadSourceError: it is an archive in which not one file is meant, or damaged.
        ConfigError: it is packed with Zstandard, and what unpacks that is not installed.
    """
    with as_bad_source(lambda: name, "the file cannot be read"):
        head = stored.read(6)
        stored.seek(0)
    with ExitStack() as open_things:
        if head.startswith(b"PK\x03\x04"):
            archive = open_things.enter_context(opened_archive(stored, name))
            stream = _one_member(archive, name, member)
        else:
            stream = _stream(head, stored, name)
        if stream is None:
            stored.seek(0)
            yield open_things.enter_context(as_stored(stored, name)), name, False
        else:
            yield open_things.enter_context(io.BufferedReader(stream, _BUFFER_BYTES)), stream.name, True


def as_stored(stored: BinaryIO, name: str) -> io.BufferedReader:
    """Return the bytes of a file as they are stored; reading them raises errors of `connectors.sources.errors` only."""
    return io.BufferedReader(_watched(stored, stored, name), _BUFFER_BYTES)


@contextmanager
def sent_unpacked(stream: BinaryIO, name: str, encoding: str) -> Iterator[tuple[BinaryIO, bool]]:
    """Give what a server packed for the way only (`Content-Encoding`), in a nameless file of its own if it did; and whether.

    Raises:
        BadSourceError: it is packed in a way that nobody asked for, damaged, or unpacks without end.
    """
    stream.seek(0)
    match encoding.strip().lower():
        case "" | "identity":
            yield stream, False
        case "gzip" | "x-gzip":
            if stream.read(2) != b"\x1f\x8b":
                stream.seek(0)
                yield stream, False
                return
            stream.seek(0)
            with TemporaryFile(prefix="eventsync-") as plain:
                with io.BufferedReader(_watched(gzip.GzipFile(fileobj=stream), stream, name), _BUFFER_BYTES) as unpacked_stream:
                    shutil.copyfileobj(unpacked_stream, plain)
                plain.seek(0)
                yield plain, True
        case other:
            message = f'the server sends it packed as "{other}", which nobody asked for'
            raise BadSourceError(name, message, hint="ask the partner to send the file as it is, or packed with gzip")


def _stream(head: bytes, stored: BinaryIO, name: str) -> Unpacking | None:
    """Return the unpacked bytes of a file that begins like a packed one, None where it does not."""
    if head.startswith(b"\x1f\x8b"):
        return _watched(gzip.GzipFile(fileobj=stored), stored, name)
    if head.startswith(b"BZh"):
        return _watched(bz2.BZ2File(stored), stored, name)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _watched(_zstandard(stored), stored, name)
    return _watched(lzma.LZMAFile(stored), stored, name) if head.startswith(b"\xfd7zXZ\x00") else None


def _watched(packed: _Packed, stored: BinaryIO, name: str) -> Unpacking:
    return Unpacking(packed, os.fstat(stored.fileno()).st_size, name)


def _zstandard(stored: BinaryIO) -> _Packed:
    try:
        from connectors.sources.zstandard_file import ZstandardFile  # noqa: PLC0415  # an extra: wanted by few
    except ImportError:
        hint = "run `pip install 'eventsync[zstd]'`"
        raise ConfigError("the file is packed with Zstandard, and nothing here unpacks that", hint=hint) from None
    return ZstandardFile(stored)


def opened_archive(stored: BinaryIO, name: str) -> zipfile.ZipFile:
    """Return the zip archive that a file is.

    Raises:
        BadSourceError: it is none, or damaged.
    """
    with as_bad_source(lambda: name, "the zip archive is damaged or cut off", is_end=True):
        return zipfile.ZipFile(stored)


def opened_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Unpacking:
    """Return the unpacked bytes of a file in an archive, which people call `name`.

    Raises:
        BadSourceError: its entry is damaged, or it is packed or locked in a way that cannot be undone here.
    """
    if member.flag_bits & 1:
        raise BadSourceError(name, "the archive is locked with a password", hint="ask for it without one")
    with as_bad_source(lambda: name, _DAMAGED):
        return Unpacking(archive.open(member), member.compress_size, name)


def _one_member(archive: zipfile.ZipFile, name: str, pattern: str) -> Unpacking | None:
    """Return the file of the archive that is meant, None where the archive is a workbook."""
    members = [
        member
        for member in archive.infolist()
        if not member.filename.endswith("/") and not member.filename.startswith("__MACOSX/")
    ]
    if "[Content_Types].xml" in archive.NameToInfo:
        return None
    meant = [member for member in members if fnmatch.fnmatchcase(member.filename, pattern)] if pattern else members
    if len(meant) != 1:
        raise _not_one(name, pattern, members, meant)
    return opened_member(archive, meant[0], f"{name}/{meant[0].filename}")


def _not_one(name: str, pattern: str, members: list[zipfile.ZipInfo], meant: list[zipfile.ZipInfo]) -> BadSourceError:
    shown = ", ".join(member.filename for member in (meant or members)[:_MOST_SHOWN])
    if not pattern:
        hint = 'say which one is meant: `member: "*/events.csv"`'
        return BadSourceError(name, f"the archive holds {len(members)} files: {shown}", hint=hint)
    if meant:
        message = f'{len(meant)} files of the archive match "{pattern}": {shown}'
        return BadSourceError(name, message, hint="make `member` match one of them only")
    return BadSourceError(name, f'no file of the archive matches "{pattern}"; it holds {shown or "none"}', hint="check `member`")


class Unpacking(io.RawIOBase):
    """A stream of unpacked bytes that stops a bomb. `packed_bytes` is the size of what it is unpacked from.

    Reading it raises errors of `connectors.sources.errors` only, also where the disk fails.
    """

    def __init__(self, stream: _Packed, packed_bytes: int, name: str) -> None:
        super().__init__()
        self._stream = stream
        self._most = max(HARMLESS_BYTES, packed_bytes * MOST_RATIO)
        self.name = name
        self._given = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """As far as what it is unpacked from can."""
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there, and begin to count anew."""
        self._given = 0
        with as_bad_source(lambda: self.name, _DAMAGED):
            return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return where it is."""
        return self._stream.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # the only buffer that io hands in
        """Fill the buffer.

        Raises:
            BadSourceError: far more has come out than went in, or the file is damaged.
        """
        with as_bad_source(lambda: self.name, _DAMAGED):
            chunk = self._stream.read(len(buffer))
        self._given += len(chunk)
        if self._given > self._most:
            message = f"unpacks to more than {self._most // 2**20} million bytes, {MOST_RATIO} times its size"
            raise BadSourceError(self.name, message, hint="no table of text does: is this the right file?")
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Close both."""
        self._stream.close()
        super().close()
