"""Packed bytes on their way out, watched: a small file that unpacks without end is refused while it is read.

Which files are packed, and how, is `opened_file`'s and `xlsx_package`'s.
"""

from __future__ import annotations

import io
from typing import IO

from connectors.sources.errors import BadSourceError

HARMLESS_BYTES = 256 * 1024 * 1024
"""So much may come out of any file, however small it is packed."""

MOST_RATIO = 250
"""Beyond that, so many bytes may come out of each packed one: tables of text reach 10 to 100."""


class Unpacking(io.RawIOBase):
    """A stream of unpacked bytes that stops a bomb. `packed_bytes` is the size of what it is unpacked from."""

    def __init__(self, stream: IO[bytes], packed_bytes: int, name: str) -> None:
        super().__init__()
        self._stream = stream
        self._most = max(HARMLESS_BYTES, packed_bytes * MOST_RATIO)
        self._name = name
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
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return where it is."""
        return self._stream.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # the only buffer that io hands in
        """Fill the buffer.

        Raises:
            BadSourceError: far more has come out than went in.
        """
        chunk = self._stream.read(len(buffer))
        self._given += len(chunk)
        if self._given > self._most:
            message = f"unpacks to more than {self._most // 2**20} million bytes, {MOST_RATIO} times its size"
            raise BadSourceError(self._name, message, hint="no table of text does: is this the right file?")
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Close both."""
        self._stream.close()
        super().close()
