"""What a request is told that asks its route's pacer for leave: go now, or never. Who decides that is `pacing`."""

from __future__ import annotations

from dataclasses import dataclass

from mappings.errors import SyncError


@dataclass(frozen=True, slots=True)
class Admitted:
    """Leave now. `wave` numbers the limits met so far, so that late answers to earlier requests are told from new ones.

    `at` is the slot on the pace's own clock, `before` how many requests left since the last pause.
    """

    wave: int
    at: float = 0.0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """Do not leave, now or later: the whole route has stopped for `cause`."""

    cause: SyncError
