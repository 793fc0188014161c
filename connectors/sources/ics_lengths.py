"""How long an event of a calendar lasts, and when it ends by that: the DURATION of RFC 5545, section 3.3.6.

Which events say it in place of an end is `ics_records`'s.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

_LENGTH = re.compile(r"\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?")


def end_after(start: object, length: object) -> str:
    """Return the ISO form of the day or moment at which an event ends, "" where its start or its length cannot be read.

    An hour is one on the clocks of the start's zone: in the night in which they change, it may be off by what they skip.
    """
    if not isinstance(start, str) or not isinstance(length, str):
        return ""
    match = _LENGTH.fullmatch(length.strip().upper())
    if match is None or not any(match.groups()):
        return ""
    weeks, days, _, hours, minutes, seconds = (int(part) if part and part[0] != "T" else 0 for part in match.groups())
    lasting = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        return _moved(start, lasting)
    except (ValueError, OverflowError):
        return ""


def _moved(start: str, lasting: timedelta) -> str:
    """Return a start that is as much later: in UTC, on a clock, or a day, which lasts whole days."""
    if "T" in start:
        moment = datetime.fromisoformat(start.removesuffix("Z")) + lasting
        return moment.isoformat() + ("Z" if start.endswith("Z") else "")
    return "" if lasting % timedelta(days=1) else (date.fromisoformat(start) + lasting).isoformat()
