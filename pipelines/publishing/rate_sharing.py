"""The pace that all workers of one key share, kept in the state DB: the bridge between the pacer and its book.

What a pace is and how it is shared is `connectors`'; how it is kept is `state`'s.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime

import structlog

from connectors.rate_limit import OpenSharing, Pace
from connectors.rate_limit_state import Sharing
from mappings.errors import SyncError
from mappings.measures import written, written_rate
from pipelines.clock import monotonic_s, now
from pipelines.settings import Settings
from state.database import StateDb
from state.holders import this_process
from state.pace import PaceBook


def sharing_over(engine: StateDb, settings: Settings, now: Callable[[], datetime] = now) -> OpenSharing:
    """Return what opens a route's shared pace, for one worker: one open client of the service. `now` is the time of day."""
    worker, limited = str(this_process(secrets.token_hex(8))), limited_together(settings)
    return lambda route: Sharing(PaceBook(engine, limited, route, worker, now), monotonic_s, _log_once)


def limited_together(settings: Settings) -> str:
    """Name what a limit is counted for, the service and the key: namespaces do not matter to it.

    The key appears as four bytes of a digest salted with the address: enough to tell a few keys apart, far too little to
    find one by.
    """
    service = settings.service_url
    salt = hashlib.blake2b(service.encode(), digest_size=16).digest()
    key = settings.api_key.get_secret_value().encode()
    return f"{service} {hashlib.blake2b(key, digest_size=4, salt=salt).hexdigest()}"


def _log_once(trouble: SyncError) -> None:
    structlog.get_logger().warning("the pace is not shared any more: this run goes on alone", trouble=str(trouble))


_MOST_USED = 1.05


"""A bucket that was full lets through a little more than its rate."""


def pace_numbers(pace: Pace, rows: int, duration_s: float) -> dict[str, float]:
    """Return the numbers of a drain that settled so many rows; without the rate and its share where no limit is known.

    The share is left out where it says nothing: the rate was learned too late in the drain to compare it with.
    """
    numbers: dict[str, float] = {
        "rows_per_s": round(rows / duration_s, 1) if duration_s else 0.0,
        "limited": pace.limited,
        "pauses": pace.pauses,
        "paused_s": round(pace.paused_s, 1),
        "most_under_way": pace.most_under_way,
        "workers": pace.workers,
    }
    if pace.rate_per_s is not None and pace.used_share is not None:
        numbers["rate_per_s"] = round(pace.rate_per_s, 6)
        if pace.used_share <= _MOST_USED:
            numbers["used_share"] = round(pace.used_share, 3)
    return numbers


def pace_line(numbers: Mapping[str, float]) -> str:
    """Return the numbers as one line, "" where there are none, or nothing was sent."""
    if not numbers or not numbers["most_under_way"]:
        return ""
    said = [f"{written(numbers['rows_per_s'])} rows/s", f"up to {written(numbers['most_under_way'])} at a time"]
    if "rate_per_s" in numbers:
        said.append(_allowed(numbers["rate_per_s"], numbers.get("used_share")))
    if numbers["limited"]:
        said.append(f"answered 429: {written(numbers['limited'])}, paused {written(numbers['paused_s'])} s")
    if numbers["workers"] > 1:
        said.append(f"shared by {written(numbers['workers'])} workers")
    return f"pace: {', '.join(said)}"


def _allowed(rate_per_s: float, used_share: float | None) -> str:
    allowed = f"the {written_rate(rate_per_s)} that the service allows"
    if used_share is None or used_share > _MOST_USED:  # accounts of earlier versions have any share
        return f"found {allowed}"
    return f"{written(min(used_share, 1.0) * 100)}% of {allowed}"
