"""The options of one run, the same on the command line and in Dagster's launchpad.

Settings that hold for all runs of a feed are in its mapping file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from mappings.strict import Strict
from mappings.zones import find_zone

BrakeName = Literal["rejected", "shrink", "left_out", "new", "copies", "scope", "keys", "changed"]
BRAKE_TEXTS: Mapping[BrakeName, str] = {
    "rejected": "No more rows are rejected than the feed allows.",
    "shrink": "The source is not suddenly empty or much smaller than in the read before.",
    "left_out": "The rules do not suddenly leave out many delivered rows with upcoming events.",
    "new": "There are not far more new rows than the feed's history explains.",
    "copies": "The new rows are not mostly copies of events sent under other keys.",
    "scope": "No other feed or namespace has delivered these rows.",
    "keys": "The definition of the row key has not changed.",
    "changed": "Most delivered rows with upcoming events have not changed in the same field at once.",
}
By = Literal["cursor", "file", "event"]
Advance = Callable[[int], None]
"""Callback with the number of rows just read or settled."""


def as_of_moment(text: str, mapping: FeedMapping) -> datetime:
    """Parse --as-of: a moment, or a day, which means its start.

    Without an offset, the time zone is that of the feed's events, else that of its schedule, else UTC.

    Raises:
        ConfigError: the text is neither a day nor a moment, or its year is out of range.
    """
    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or not _EARLIEST <= moment.year <= _LATEST:
        message = f"--as-of {text}: neither a date nor a time in the years {_EARLIEST} to {_LATEST}"
        raise ConfigError(message, hint="write it like 2026-05-01 or 2026-05-01T18:00")
    scheduled = find_zone(mapping.schedule.timezone) if mapping.schedule else None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=mapping.zone_of_events or scheduled or UTC)


_EARLIEST, _LATEST = 1970, 2999


class Window(Strict):
    """The days `first` to `last`, both included."""

    by: By = Field(description="What decides a row's day: cursor, file or event.")
    first: date = Field(description="The first day.")
    last: date = Field(description="The last day, included.")
    column: str = Field(default="", description="With cursor: the column with the time of a row's last change.")

    @model_validator(mode="after")
    def _holds_a_day(self) -> Self:
        if self.first > self.last:
            raise ValueError(f"the window begins on {self.first} and ends before, on {self.last}")
        if self.column and self.by != "cursor":
            raise ValueError(f"a column can be named only with cursor, not with {self.by}")
        return self

    def __str__(self) -> str:
        """Return the days as text for people."""
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    def holds(self, day: date) -> bool:
        """Return whether the window includes a day."""
        return self.first <= day <= self.last


class RunOptions(Strict):
    """The options of one run. The defaults are those of a scheduled run."""

    limit: int | None = Field(
        default=None, ge=1, description="Send at most this many rows; the rest stay pending for the next run."
    )
    keys: tuple[str, ...] = Field(
        default=(),
        description="Only these row keys, as `eventsync rows` shows them; the key of an expanded row includes all of its events.",
    )
    status: Literal["draft"] | None = Field(default=None, description="Send every event as a draft, whatever the mapping says.")
    accept: tuple[BrakeName, ...] = Field(default=(), description="Brakes that this one run may pass.")
    stage_only: bool = Field(default=False, description="Read and stage; send nothing.")
    publish_only: bool = Field(default=False, description="Only send what is staged; do not read the source.")
    full: bool = Field(default=False, description="Read the whole source, even if it is normally read incrementally.")
    wait: bool = Field(default=False, description="If another run holds the feed, wait for it to end.")
    window: Window | None = Field(
        default=None, description="Only rows of these days; no bookmark moves, and no row counts as vanished."
    )

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        """Refuse options without effect: staged rows keep the body they have."""
        if self.publish_only and self.status is not None:
            raise ValueError("status cannot be combined with publish_only: staged rows keep their status; stage them again")
        if self.publish_only and self.stage_only:
            raise ValueError("stage_only cannot be combined with publish_only: a run with both does nothing")
        if self.publish_only and (self.full or self.window):
            raise ValueError("full and window cannot be combined with publish_only: nothing is read")
        return self
