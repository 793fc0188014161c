"""Masks secrets in texts, in every form in which a service, a library or a log may repeat them."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "[key]"
_LONG, _SHORT = 8, 4
"""The lengths from which a secret is masked anywhere, and as a separate word.

A shorter one is masked only as a value, after a quote, `=` or `:`; otherwise common words would be masked.
"""
_BEGINS = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
_VALUE_BEGINS = r"(?:(?<=[\"'=:])|(?<=[=:] )|(?<=%3[AaDd]))"
_ENDS = r"(?![A-Za-z0-9_])"
_URL_SAFE = str.maketrans("+/", "-_")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")


class Mask:
    """Masks secrets: plain, escaped for JSON, HTML or an address, in base64, or in hexadecimal.

    A secret shorter than 8 characters is masked as a separate word only, one shorter than 4 as a value only. Several parts may
    share a mask and add secrets to it, such as a token that a service returns.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = set[str]()
        self._is_prepared = False
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Add secrets to mask from now on; a text of several lines, such as a private key, is added line by line."""
        self._known.update(line for secret in secrets for line in _lines(secret) if line)
        self._is_prepared = False

    def hide(self, text: str) -> str:
        """Return the text with all secrets masked."""
        if not self._known or len(text) < self._prepare():
            return text
        if self._endings:
            text = _ENCODED.sub(lambda found: self._masked_base64(found[0]), text)
        return self._pattern.sub(MASK, text)

    def hide_bytes(self, content: bytes) -> bytes:
        """Return the content with all secrets masked."""
        return self.hide(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _prepare(self) -> int:
        """Compile the pattern of all forms if secrets were added, and return the length of the shortest form."""
        if not self._is_prepared:
            placed = {form: _placed(form, secret) for secret in sorted(self._known) for form in _spellings(secret)}
            text = "|".join(placed[form] for form in sorted(placed, key=lambda form: (-len(form), form)))
            self._pattern = re.compile(text)
            self._shortest = min(map(len, placed))
            self._endings = tuple(b":" + one.encode("utf-8", "surrogatepass") for one in self._known if len(one) < _LONG)
            self._is_prepared = True
        return self._shortest

    def _masked_base64(self, encoded: str) -> str:
        """Return the mask for a base64 text that ends with a short secret (`Basic user:secret`), any other text unchanged."""
        text = encoded.rstrip("=").translate(_URL_SAFE)
        try:
            decoded = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return encoded
        return MASK if decoded.endswith(self._endings) else encoded


def passwords_in(address: str) -> tuple[str, ...]:
    """Return the password of an address, as written and decoded; for an address that cannot be parsed, what may be one."""
    try:
        password = urlsplit(address).password or ""
    except ValueError:  # it is reported where it is opened
        password = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return tuple(dict.fromkeys((password, unquote(password)))) if password else ()


def _placed(spelling: str, secret: str) -> str:
    """Return the pattern of one form of a secret, with the word or value boundaries for its length."""
    if len(secret) >= _LONG:
        return re.escape(spelling)
    return f"{_BEGINS if len(secret) >= _SHORT else _VALUE_BEGINS}{re.escape(spelling)}{_ENDS}"


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a secret to mask; of several lines, without captions (`-----BEGIN PRIVATE KEY-----`)."""
    lines = secret.splitlines()
    if len(lines) <= 1:
        yield secret
    else:
        yield from (line.strip() for line in lines if len(line.strip()) >= _LONG and not line.startswith("-----"))


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
    # Spell the bytes at each of the three places where they may begin inside a longer encoded text (`Basic user:secret`).
    # The letters at either end that depend on neighbours too are left out.
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3 if len(raw) >= _LONG else 1):
            encoded = encode(bytes(before) + raw).decode("ascii").rstrip("=")
            whole = (before + len(raw)) // 3 * 4
            yield encoded[-(-before * 8 // 6) : whole] if len(raw) >= _LONG else encoded
