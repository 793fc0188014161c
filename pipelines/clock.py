"""The only clocks: the time of day, and seconds that never go back. Everything else has its clock handed in."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from functools import partial

now = partial(datetime.now, UTC)  # noqa: TID251  # the one place where the clock is read
"""Returns the time of day, aware, in UTC."""
monotonic_s = time.monotonic
"""Returns seconds on a clock that never goes back."""


def new_backfill_id(at: datetime) -> str:
    """Return an id for a backfill: sortable by time, unique among machines."""
    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
