"""How often one recipient may be told: a few messages an hour, and none for a while after one that was not accepted.

What is held back is told with the next message. Where the times are kept is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

MOST_AN_HOUR = 6
HOUR = timedelta(hours=1)
FIRST_PAUSE = timedelta(minutes=5)
"""How long a recipient that cannot be reached is left alone; twice as long after each further failure, up to an hour."""


@dataclass(frozen=True, slots=True)
class Post:
    """What went to one recipient: when messages of the last hour were accepted, how many were not since, and when last."""

    accepted: tuple[datetime, ...] = ()
    failures: int = 0
    failed_at: datetime | None = None

    def may_go(self, now: datetime) -> bool:
        """Whether another message may go now; a failure in the future is that of a clock that was set back since."""
        if self.failed_at is not None and self.failed_at <= now < self.failed_at + min(
            FIRST_PAUSE * 2 ** (self.failures - 1), HOUR
        ):
            return False
        return len(self._of_the_hour(now)) < MOST_AN_HOUR

    def went(self, now: datetime) -> Post:
        """Return the same after a message that was accepted."""
        return Post((*self._of_the_hour(now), now))

    def failed(self, now: datetime) -> Post:
        """Return the same after a message that was not."""
        return replace(self, failures=min(self.failures + 1, 10), failed_at=now)

    def __str__(self) -> str:
        accepted = [at.isoformat() for at in self.accepted]
        failed_at = self.failed_at.isoformat() if self.failed_at else ""
        return json.dumps({"accepted": accepted, "failures": self.failures, "failed_at": failed_at})

    def _of_the_hour(self, now: datetime) -> tuple[datetime, ...]:
        """Return the messages that still count; one of a clock that was wrong does not."""
        return tuple(at for at in self.accepted if now - HOUR < at <= now)


def post_of(text: str | None) -> Post:
    """Return what `str` wrote; nothing where it was not written, or cannot be read."""
    try:
        kept: Mapping[str, Any] = json.loads(text or "{}")
        failed_at = datetime.fromisoformat(kept["failed_at"]) if kept.get("failed_at") else None
        return Post(tuple(map(datetime.fromisoformat, kept.get("accepted", ()))), int(kept.get("failures", 0)), failed_at)
    except (ValueError, TypeError, AttributeError):
        return Post()
