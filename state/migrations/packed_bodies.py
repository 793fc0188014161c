"""Bodies as version 0.1 packed them: deflated with a body of their feed as the preset dictionary (RFC 1950, FDICT)."""

from __future__ import annotations

import zlib

from state.trouble import StateDamagedError

PACKED = b"\x01"
"""The first byte of a packed body; no JSON begins with it."""


def unpacked(kept: bytes, base: bytes | None) -> bytes:
    """Return a body as it was sent. `base`: the dictionary of its feed; a body that is not packed needs none.

    Raises `StateDamagedError` where the body cannot be restored; zlib checks the sums of both.
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
            f"the body of a delivered row cannot be unpacked: {complaint}", hint="restore the state DB from a backup"
        )
    return body
