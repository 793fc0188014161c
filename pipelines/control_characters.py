"""Replace harmful characters in untrusted text: control characters (C0, C1), direction overrides (bidi), lone surrogates.

Direction marks (U+200E, U+200F, U+061C) stay: Arabic and Hebrew text needs them, and they affect only the text next to them.
"""

from __future__ import annotations

import re

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
