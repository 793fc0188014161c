"""Taking secrets out of texts, in each spelling in which somebody may repeat them.

Where texts come in from outside, or go out to people and logs, is the caller's knowledge.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "[key]"
SHORTEST_SECRET = 8
"""Shorter secrets are not taken out of texts: they would take common words with them."""


class Mask:
    """Hides secrets: as they are, escaped for JSON, HTML or an address, in base64, or as hexadecimal digits.

    One that several rooms hold may learn further secrets while they work: a token that a service gives us for an hour.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = set[str]()
        self._forms: _Forms | None = None
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Hide these as well, from now on; a text of several lines, such as a private key, line by line."""
        self._known.update(line for secret in secrets for line in _lines(secret) if len(line) >= SHORTEST_SECRET)
        self._forms = None

    def hide(self, text: str) -> str:
        """Return the text without the secrets."""
        forms = self._forms or self._prepared()
        return text if forms.text is None or len(text) < forms.shortest else forms.text.sub(MASK, text)

    def hide_bytes(self, content: bytes) -> bytes:
        """Return the content without the secrets."""
        forms = self._forms or self._prepared()
        return content if forms.content is None else forms.content.sub(MASK.encode(), content)

    def _prepared(self) -> _Forms:
        """Compile what to look for: not before somebody asks, as most processes never show anything secret."""
        self._forms = _Forms.of(self._known)
        return self._forms


def passwords_in(address: str) -> tuple[str, ...]:
    """Return the password of an address, as it stands there and as it is meant; of one that cannot be read, what may be it."""
    try:
        password = urlsplit(address).password or ""
    except ValueError:  # it is told as such where it is opened
        password = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return tuple(dict.fromkeys((password, unquote(password)))) if password else ()


@dataclass(frozen=True, slots=True)
class _Forms:
    """All spellings of the secrets, in texts and in bytes; None where there are none."""

    text: re.Pattern[str] | None
    content: re.Pattern[bytes] | None
    shortest: int

    @classmethod
    def of(cls, secrets: Iterable[str]) -> _Forms:
        spellings = {form for secret in secrets for form in _spellings(secret)}
        if not spellings:
            return cls(None, None, 0)
        longest_first = sorted(spellings, key=lambda form: (-len(form), form))
        text = "|".join(map(re.escape, longest_first))
        return cls(re.compile(text), re.compile(text.encode()), min(map(len, spellings)))


def _lines(secret: str) -> Iterator[str]:
    """Yield a secret of one line as it is; of one with several each that is no caption (`-----BEGIN PRIVATE KEY-----`)."""
    lines = secret.splitlines()
    yield from (line.strip() for line in lines if not line.startswith("-----")) if len(lines) > 1 else [secret]


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
