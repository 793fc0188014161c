"""The pace of a drain as numbers, for the books, scripts and plots, and as a line for people.

How the pace is found is `connectors.pacing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.rate_limit import Pace
from mappings.measures import written, written_rate

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
