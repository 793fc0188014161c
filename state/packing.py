"""Bodies of delivered rows, packed: told by what they do not share with another body of their feed, a seventh of their size.

Which bodies are packed, and when, is `compacting`'s.
"""

from __future__ import annotations

import zlib

from state.trouble import StateDamagedError

PACKED = b"\x01"
"""What a packed body begins with; no JSON does."""
_FAST, _WINDOW_BITS, _MEMORY = 1, 13, 5
"""zlib's settings: it looks back 8 KiB, so that a packer is copied in no time. Any later ones unpack what these have packed."""


class Packer:
    """Packs bodies of one feed. `base`: the body that they are told by, without which nobody can read them again."""

    def __init__(self, base: bytes) -> None:
        self._begun = zlib.compressobj(_FAST, zlib.DEFLATED, _WINDOW_BITS, _MEMORY, zlib.Z_DEFAULT_STRATEGY, base)

    def pack(self, body: bytes) -> bytes:
        """Return the body as it is kept from now on: packed, unless that would be longer."""
        packing = self._begun.copy()  # a tenth of what it takes to begin anew
        packed = PACKED + packing.compress(body) + packing.flush()
        return packed if len(packed) < len(body) else body


def unpacked(kept: bytes, base: bytes | None) -> bytes:
    """Return a body as it went out. `base` is its feed's; a body that is kept as it is needs none.

    Raises `StateDamagedError` where it cannot be told any more: both are checked by their sums.
    """
    if kept[:1] != PACKED:
        return kept
    try:
        unpacking = zlib.decompressobj(zdict=base or b"")
        body = unpacking.decompress(kept[1:])
        complaint = "" if unpacking.eof else "it ends too early"
    except zlib.error as error:
        body, complaint = b"", str(error)
    if complaint:
        raise StateDamagedError(
            f"the body of a delivered row cannot be unpacked: {complaint}",
            hint="`eventsync state verify` names the row; restore the state DB from a backup",
        )
    return body
