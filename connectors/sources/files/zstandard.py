"""Frames of Zstandard, through the extra `zstd`; imported only where a file has one."""

from __future__ import annotations

from backports import zstd


class ZstandardFrame:
    """Unpacks one frame whose window is at most `most_window` bytes; damage is a `ValueError`."""

    def __init__(self, most_window: int) -> None:
        self._zstd = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: most_window.bit_length() - 1})

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        """Whether more packed bytes are needed for more output."""
        return self._zstd.needs_input

    @property
    def unused_data(self) -> bytes:
        """What follows the frame."""
        return self._zstd.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return up to `max_length` bytes.

        Raises:
            ValueError: the frame is damaged, or its window is too large.
        """
        try:
            return self._zstd.decompress(data, max_length)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error
