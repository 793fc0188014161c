"""The memory of images: what was uploaded where, and what lay at an address when it was last fetched.

Fetching and uploading is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, delete, select

from state.conflicts import put
from state.database import reading, writing
from state.tables import MEDIA, MEDIA_ADDRESS


@dataclass(frozen=True, slots=True)
class KnownAddress:
    """What lay at an address: the digest of the bytes, the `ETag` header ("" if there was none), and when it was seen."""

    content_digest: bytes
    etag: str
    seen_at: datetime


class MediaMemory:
    """The images of one destination. Losing it costs uploads, never an event."""

    def __init__(self, engine: Engine, destination: str) -> None:
        self._engine = engine
        self._destination = destination

    def known_content(self, digest: bytes) -> int | None:
        """Return the id that the service gave to these bytes, None if they were never uploaded."""
        media_id = select(MEDIA.c.media_id).where(MEDIA.c.destination == self._destination, MEDIA.c.content_digest == digest)
        with reading(self._engine) as connection:
            return connection.execute(media_id).scalar()

    def known_address(self, url: str) -> KnownAddress | None:
        """Return what lay at an address when it was last fetched, None if it never was."""
        found = select(MEDIA_ADDRESS.c.content_digest, MEDIA_ADDRESS.c.etag, MEDIA_ADDRESS.c.seen_at).where(
            MEDIA_ADDRESS.c.destination == self._destination, MEDIA_ADDRESS.c.url == url
        )
        with reading(self._engine) as connection:
            row = connection.execute(found).one_or_none()
        return None if row is None else KnownAddress(row.content_digest, row.etag, row.seen_at)

    def forget(self, media_id: int) -> None:
        """Forget the image that the service gave this id to: it may be there no longer."""
        gone = delete(MEDIA).where(MEDIA.c.destination == self._destination, MEDIA.c.media_id == media_id)
        with writing(self._engine) as connection:
            connection.execute(gone)

    def remember(self, url: str, digest: bytes, media_id: int, *, etag: str, seen_at: datetime) -> None:
        """Record that the bytes at `url` have this digest and, at the service, this id."""
        content = {"destination": self._destination, "content_digest": digest}
        address = {"destination": self._destination, "url": url}
        with writing(self._engine) as connection:
            put(connection, MEDIA, content, {"media_id": media_id, "uploaded_at": seen_at})
            put(connection, MEDIA_ADDRESS, address, {"content_digest": digest, "etag": etag, "seen_at": seen_at})
