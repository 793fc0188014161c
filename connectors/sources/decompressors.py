"""Decompressors with one interface and a bound on the memory that each of them takes.

The memory of those for deflate and bzip2 is bounded by their formats (32 kB and 4 MB).
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from mappings.errors import ConfigError

MOST_WINDOW = 128 * 1024 * 1024
"""Bytes of a dictionary or window: `xz -9` takes 64 MB, `zstd --ultra -22` and `--long` 128 MB."""

_WINDOW_AND_STATE = MOST_WINDOW + 1024 * 1024


class Decompressor(Protocol):
    """The interface that Python's decompressors have in common."""

    @property
    def eof(self) -> bool:
        """Whether the packed stream has ended."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether more packed bytes are needed for more output."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the packed stream."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return up to `max_length` bytes."""
        ...


class _Inflating:
    """`zlib` with the interface of the other decompressors."""

    def __init__(self, wbits: int) -> None:
        self._zlib = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _LzmaMember:
    """LZMA as zip archives hold it (APPNOTE.TXT, section 5.8.8): its properties are those of an `.lzma` file without the size."""

    def __init__(self, size: int) -> None:
        self._lzma = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_WINDOW_AND_STATE)
        self._size = size
        self._is_begun = False
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._lzma.eof

    @property
    def needs_input(self) -> bool:
        return self._lzma.needs_input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            _, _, length, properties = struct.unpack_from("<BBH5s", data)
            if length != len(properties):
                raise ValueError("LZMA has five bytes of properties")
            data = properties + struct.pack("<Q", self._size) + data[9:]
        return self._lzma.decompress(data, max_length)


def decompressor_of(head: bytes) -> Callable[[], Decompressor] | None:
    """Return what makes the decompressor for a file that begins like a packed one, None where it does not."""
    if head.startswith(b"\x1f\x8b"):
        return gzip_decompressor
    if head.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstandard()
    return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _WINDOW_AND_STATE) if head.startswith(b"\xfd7zXZ\x00") else None


def gzip_decompressor() -> Decompressor:
    """Return the decompressor of one member of gzip."""
    return _Inflating(zlib.MAX_WBITS + 16)


def _zstandard() -> Callable[[], Decompressor]:
    try:
        from connectors.sources.zstandard_file import ZstandardFrame  # noqa: PLC0415  # an extra: wanted by few
    except ImportError:
        hint = "run `pip install 'eventsync[zstd]'`"
        raise ConfigError("the file is packed with Zstandard, and nothing here unpacks that", hint=hint) from None
    return partial(ZstandardFrame, MOST_WINDOW)


def member_decompressor(method: int, size: int) -> Callable[[], Decompressor] | None:
    """Return what makes the decompressor for a method of zip (APPNOTE.TXT, section 4.4.5), None if it is not known here.

    `size`: how many bytes the archive says that come out.
    """
    match method:
        case zipfile.ZIP_DEFLATED:
            return partial(_Inflating, -zlib.MAX_WBITS)
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor
        case zipfile.ZIP_LZMA:
            return partial(_LzmaMember, size)
        case _:
            return None
