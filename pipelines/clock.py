"""The wall clock and the monotonic clock: the only place where either is read. Other modules take a clock as an argument."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from functools import partial

now = partial(datetime.now, UTC)  # noqa: TID251  # the one place where the clock is read
"""Return the current time, aware, in UTC."""
monotonic_s = time.monotonic
"""Return seconds of the monotonic clock."""


def new_backfill_id(at: datetime) -> str:
    """Return a new id for a backfill: sortable by time, unique across machines."""
    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
