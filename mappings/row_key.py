"""Row keys, idempotency keys and fingerprints: pure functions of text, the same on every platform and Python version.

A change here changes every key of every deployment, and so would send every event again: the test of this module pins
the digests to literal values.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NewType

FeedName = NewType("FeedName", str)
RowKey = NewType("RowKey", str)
Fingerprint = NewType("Fingerprint", str)
IdempotencyKey = NewType("IdempotencyKey", str)
NO_KEY = RowKey("")
"""The key of a row without a usable key."""

_SEPARATOR = "|"
_SEPARATORS = re.compile(r"\\.|(\|)", re.DOTALL)
"""Matches an escaped character, or a separator as its group."""
_PAIRS = re.compile(r"\\(.)", re.DOTALL)
_IN_LIST = re.compile(r"(?:\\.|[^\\,]|\\$)+", re.DOTALL)
_ESCAPES = str.maketrans({"\\": "\\\\", _SEPARATOR: "\\" + _SEPARATOR})


def row_key(parts: Sequence[str]) -> RowKey:
    r"""Join the values of a feed's key columns to the row's permanent key.

    Each part is NFC-normalised and trimmed of Unicode white space. `|` joins the parts, and a `|` or `\\` inside a part is
    escaped, so that different parts never give the same key.
    """
    return RowKey(_SEPARATOR.join([_escaped(unicodedata.normalize("NFC", part).strip()) for part in parts]))


def _escaped(part: str) -> str:
    return part.translate(_ESCAPES) if _SEPARATOR in part or "\\" in part else part


def shell_word(key: str, *, in_list: bool = False) -> str:
    r"""Return a row key as a word of a command: quoted, with `\-` for a first dash, and `\,` for a comma in a list of keys."""
    word = "\\" + key if key.startswith("-") else key
    return shlex.quote(word.replace(",", "\\,") if in_list else word)


def typed_key(word: str) -> RowKey:
    """Return a row key as typed or pasted, normalised (NFC): keyboards compose characters differently."""
    readable = word.encode("utf-8", "replace").decode()  # undecodable bytes match no row
    key = _PAIRS.sub(lambda pair: pair[1] if pair[1] in "-," else pair[0], readable)
    return RowKey(unicodedata.normalize("NFC", key).strip())


def typed_keys(words: str) -> list[RowKey]:
    """Return the row keys of a list with commas between them."""
    return list(filter(None, map(typed_key, _IN_LIST.findall(words))))


def event_key(stem: RowKey, part: str) -> RowKey:
    """Return the key of one event of a split row: the row's key, and what distinguishes the event."""
    return RowKey(f"{stem}{_SEPARATOR}{row_key((part,))}")


def names_of(key: RowKey, row_parts: int) -> Iterator[RowKey]:
    """Yield the keys by which a person may name an event: the row's key of `row_parts` parts, each longer key, and its own."""
    ends = (found.start() for found in _SEPARATORS.finditer(key) if found[1])
    for parts, end in enumerate(ends, start=1):
        if parts >= row_parts:
            yield RowKey(key[:end])
    yield key


def idempotency_key(namespace: str, feed: FeedName, key: RowKey, *, action: str = "create", revision: int = 0) -> IdempotencyKey:
    """Return the Idempotency-Key header for one intent: `es1-` and 32 hexadecimal digits (128 bits of BLAKE2b).

    The spec leaves the length limit open (Limits: "not shown"), hence short ASCII. Every part is prefixed with its length, so
    that no two different tuples share an input.
    """
    digest = _begun(namespace, feed).copy()
    digest.update(_length_prefixed(key) + _ended(action, revision))
    return IdempotencyKey("es1-" + digest.hexdigest())


def fingerprint(body: bytes, cover_url: str = "") -> Fingerprint:
    """Return the fingerprint of a payload (canonical JSON) and the address of its cover image: 32 hexadecimal digits."""
    digest = _UNKEYED.copy()
    digest.update(body + b"\x00" + cover_url.encode())
    return Fingerprint(digest.hexdigest())


def row_digester(mapping_digest: bytes) -> Callable[[Sequence[str]], bytes]:
    """Return a function that digests the cells that a mapping uses, together with the mapping's own digest, to 16 bytes.

    Equal digests prove that the row is unchanged; unequal ones prove nothing. Cells are joined by NUL. Sources have no NUL in
    texts; if one does, lengths are added, so that no two different rows share an input.
    """
    begun = hashlib.blake2b(mapping_digest, digest_size=16)

    def digest(cells: Sequence[str]) -> bytes:
        text = "\0".join(cells).encode("utf-8", "surrogatepass")
        if text.count(b"\0") >= len(cells):
            text += f"\0{[*map(len, cells)]}".encode()
        copy = begun.copy()  # takes half as long as beginning one (budget 2)
        copy.update(text)
        return copy.digest()

    return digest


def row_digest(mapping_digest: bytes, cells: Sequence[str]) -> bytes:
    """Return the digest of one row's cells, as `row_digester` does."""
    return row_digester(mapping_digest)(cells)


def duplicate_digest(channel_id: int, title: str, start_at: str, place: str) -> bytes:
    """Return a 16-byte digest of the fields by which two events count as duplicates."""
    digest = _UNKEYED.copy()
    event = _length_prefixed(str(channel_id)) + _length_prefixed(title.casefold())
    digest.update(event + _length_prefixed(start_at) + _length_prefixed(place.casefold()))
    return digest.digest()


def duplicate_digest_of(event: Mapping[str, Any]) -> bytes:
    """Return the duplicate digest of a payload. Its place is the city with the venue, if it has one."""
    place = f"{event['approxLocation']['city']['placeId']} {event.get('locationName', '')}"
    return duplicate_digest(event["channelId"], event["title"], event["startAt"], place)


# Copying a digest that was begun takes half as long as beginning one.
_UNKEYED = hashlib.blake2b(digest_size=16)


@lru_cache(maxsize=64)
def _begun(namespace: str, feed: FeedName) -> hashlib.blake2b:
    """Return the hash state that all keys of a feed start from."""
    digest = _UNKEYED.copy()
    digest.update(_length_prefixed(namespace) + _length_prefixed(feed))
    return digest


@lru_cache(maxsize=64)
def _ended(action: str, revision: int) -> bytes:
    return _length_prefixed(action) + _length_prefixed(str(revision))


def _length_prefixed(part: str) -> bytes:
    encoded = part.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(8, "big") + encoded
