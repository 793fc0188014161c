"""Files packed with Zstandard, on their way out, through the extra `zstd`; imported only where one is met.

How much may come out of a small one is `unpacking`'s.
"""

from __future__ import annotations

from backports import zstd


class ZstandardFile(zstd.ZstdFile):
    """The same; damage is a `ValueError`."""

    def read(self, size: int | None = -1) -> bytes:
        """Read up to so many bytes.

        Raises:
            ValueError: the file is damaged.
            EOFError: it ends too early.
        """
        try:
            return super().read(size)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error
