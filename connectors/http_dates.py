"""The dates in the headers of answers, in any of the three forms of RFC 9110, 5.6.7. What follows from one is its reader's."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_date(text: str) -> datetime | None:
    """Return the instant that a date names, in UTC; None where it is none. One without a zone means UTC: HTTP knows no other."""
    try:
        told = parsedate_to_datetime(text)
        return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
