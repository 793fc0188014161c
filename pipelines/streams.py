"""Streams for people and scripts whose failure stops no work: what was done stays done when it cannot be printed."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

_LOST: list[str] = []
"""Why something was not printed to stdout."""


class _Stream:
    """A text stream that drops what its disk has no room for. A closed pipe stays an error: the reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop what it has buffered."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if self._stream is sys.stdout:
            _LOST.append(error.strerror or str(error))


def undisturbed(stream: TextIO) -> TextIO:
    """Return a stream that writes to `stream` and never fails for want of room."""
    return cast("TextIO", _Stream(stream))


def lost_output() -> str:
    """Flush stdout, and return why a part of it is lost, "" if nothing is; what is lost is not tried again at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _LOST.append(error.strerror or str(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    lost = "; ".join(dict.fromkeys(_LOST))
    _LOST.clear()
    return lost
