"""Taking secrets out of texts, in each spelling in which somebody may repeat them.

Where texts come in from outside, or go out to people and logs, is the caller's knowledge.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "[key]"
SHORTEST_SECRET = 8
"""Shorter secrets are not taken out of texts: they would take common words with them."""


class Mask:
    """Hides secrets: as they are, escaped for JSON, HTML or an address, in base64, or as hexadecimal digits."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in _spellings(secret)}
        longest_first = sorted(spellings, key=lambda form: (-len(form), form))
        self._text = re.compile("|".join(map(re.escape, longest_first))) if spellings else None
        self._bytes = re.compile(self._text.pattern.encode()) if self._text else None
        self._shortest = min(map(len, spellings), default=0)

    def hide(self, text: str) -> str:
        """Return the text without the secrets."""
        return text if self._text is None or len(text) < self._shortest else self._text.sub(MASK, text)

    def hide_bytes(self, content: bytes) -> bytes:
        """Return the content without the secrets."""
        return content if self._bytes is None else self._bytes.sub(MASK.encode(), content)


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    for address in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield address
        yield re.sub("%..", lambda found: found[0].lower(), address)
    raw = secret.encode("utf-8", "surrogatepass")
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64(raw)


def _base64(raw: bytes) -> Iterator[str]:
    """Spell the bytes at each of the three places where they may begin inside a longer encoded text (`Basic user:secret`).

    The letters at either end that depend on neighbours too are left out.
    """
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            encoded = encode(bytes(before) + raw).decode("ascii").rstrip("=")
            whole = (before + len(raw)) // 3 * 4
            yield encoded[-(-before * 8 // 6) : whole]
