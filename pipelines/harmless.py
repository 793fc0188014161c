"""Text of strangers made harmless: control characters (C0, C1), direction overrides (bidi) and lone surrogates never get out."""

from __future__ import annotations

import re

_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""All but tab and line feed; CR and ESC, which a terminal obeys, are among them."""


def replaced(text: str) -> str:
    """Return text with U+FFFD in the place of each harmful character; CR LF is one line end."""
    return _HARMFUL.sub("\ufffd", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    r"""Return text with each harmful character as its escape in JSON and Python, such as \u001b."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
