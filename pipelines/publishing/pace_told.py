"""The pace of a drain as numbers, for the books, scripts and plots, and as a line for people.

How the pace is found is `connectors.pacing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.pace_report import Pace


def pace_numbers(pace: Pace, rows: int, duration_s: float) -> dict[str, float]:
    """Return the numbers of a drain that settled so many rows; without the rate and its share where no limit is known."""
    numbers: dict[str, float] = {
        "rows_per_s": round(rows / duration_s, 1) if duration_s else 0.0,
        "limited": pace.limited,
        "pauses": pace.pauses,
        "paused_s": round(pace.paused_s, 1),
        "most_under_way": pace.most_under_way,
        "workers": pace.workers,
    }
    if pace.rate_per_s is not None and pace.used_share is not None:
        numbers |= {"rate_per_s": round(pace.rate_per_s, 4), "used_share": round(pace.used_share, 3)}
    return numbers


def pace_line(numbers: Mapping[str, float]) -> str:
    """Return the numbers as one line, "" where there are none, or nothing was sent."""
    if not numbers or not numbers["most_under_way"]:
        return ""
    said = [f"{numbers['rows_per_s']:,} rows/s", f"up to {numbers['most_under_way']:.0f} at a time"]
    if "rate_per_s" in numbers:
        said.append(f"{numbers['used_share']:.0%} of the {numbers['rate_per_s']:.3g}/s that the service allows")
    if numbers["limited"]:
        said.append(f"answered 429: {numbers['limited']:,.0f}, paused {numbers['paused_s']:,.1f} s")
    if numbers["workers"] > 1:
        said.append(f"shared by {numbers['workers']:.0f} workers")
    return f"pace: {', '.join(said)}"
