"""Safe output: text of others without harmful characters, and streams whose failure stops no work.

Harmful are control characters (C0, C1), direction overrides (bidi) and lone surrogates. Direction marks (U+200E, U+200F, U+061C)
stay: Arabic and Hebrew text needs them, and they affect only the text next to them. What was done stays done when it cannot be
printed.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TextIO, cast

_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""All control characters but tab and line feed; CR and ESC, which move a terminal's cursor, are included."""
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
"""C0 control characters and DEL, each with its sign from the Unicode block Control Pictures."""


def replaced(text: str) -> str:
    """Return text with each harmful character as its control picture, or U+FFFD if it has none; CR LF becomes LF."""
    return _HARMFUL.sub(lambda found: _PICTURES.get(found[0], "\ufffd"), text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    r"""Return text with each harmful character as its escape in JSON and Python, such as \u001b."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
