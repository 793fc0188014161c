"""How long an answer asks us to wait: every form of `Retry-After`, read or left, never guessed.

What is done about it is `pacing`'s for a route, `case`'s for one row, and each source's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from connectors.http_dates import http_date

_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_FAR_FUTURE_S = 366 * 86_400.0
_WITHIN_THE_SECOND = timedelta(seconds=1)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that `Retry-After` asks for, None where it is absent, negative or garbage. Names in `headers`
    know no case.

    Seconds may have a fraction; an HTTP date in any of its three forms (RFC 9110, 5.6.7) is measured from `now` where that
    agrees with the answer's own `Date`, which knows whole seconds only, and else from that: a clock that is wrong, theirs
    or ours, does not matter. Where there is neither, a date says nothing. Of several headers, which arrive as one joined by
    commas, the longest wait counts. Absurd values are cut to a year, which nobody waits for.
    """
    told = headers.get("retry-after", "").strip()
    seconds = [one.strip() for one in told.split(",")]
    if all(_SECONDS.fullmatch(one) for one in seconds):
        return min(max(map(float, seconds)), _FAR_FUTURE_S)
    until, dated = http_date(told), http_date(headers.get("date", "")) or now
    if until is None or dated is None:
        return None
    since = now if now is not None and dated <= now < dated + _WITHIN_THE_SECOND else dated
    return min(max((until - since).total_seconds(), 0.0), _FAR_FUTURE_S)
