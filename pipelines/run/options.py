"""What a person may ask of one run, the same on the command line and in Dagster's launchpad.

What a feed asks of all its runs stands in its mapping file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from mappings.compiler.mapper import zone_of_events
from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from mappings.strict import Strict
from mappings.zones import find_zone

BrakeName = Literal["rejected", "shrink", "left_out", "new", "copies", "scope", "keys"]
BRAKE_TEXTS: Mapping[BrakeName, str] = {
    "rejected": "Not more rejected rows than the feed allows.",
    "shrink": "The source is not suddenly empty or much smaller than the time before.",
    "left_out": "The rules do not suddenly leave out many delivered rows whose events are to come.",
    "new": "Not far more new rows than the feed's history explains.",
    "copies": "The new rows are not mostly copies of events sent under other keys.",
    "scope": "No other feed or namespace delivers these rows already.",
    "keys": "The definition of the key is the one that the ledger knows.",
}
By = Literal["cursor", "file", "event"]
Advance = Callable[[int], None]
"""Called with the number of rows that were read, or settled."""


def as_of_moment(text: str, mapping: FeedMapping) -> datetime:
    """Return the moment at which a rehearsal of a feed pretends to start; of a day, its begin.

    Without an offset the text is meant in the zone that the file names for all of its events, else in its schedule's, else UTC.

    Raises:
        ConfigError: the text is neither a day nor a moment, or lies further off than calendars can count from.
    """
    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or not _EARLIEST <= moment.year <= _LATEST:
        message = f"--as-of {text}: this is neither a day nor a moment from {_EARLIEST} to {_LATEST}"
        raise ConfigError(message, hint="write 2026-05-01, or 2026-05-01T18:00")
    scheduled = find_zone(mapping.schedule.timezone) if mapping.schedule else None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=zone_of_events(mapping) or scheduled or UTC)


_EARLIEST, _LATEST = 1970, 2999


class Window(Strict):
    """The days `first` to `last`, both included."""

    by: By = Field(description="What tells a row's day: cursor, file or event.")
    first: date = Field(description="The first day.")
    last: date = Field(description="The last day; it counts.")
    column: str = Field(default="", description="By cursor: the column that tells when a row last changed.")

    @model_validator(mode="after")
    def _holds_a_day(self) -> Self:
        if self.first > self.last:
            raise ValueError(f"the window begins on {self.first} and ends before, on {self.last}")
        if self.column and self.by != "cursor":
            raise ValueError(f"a column tells a row's day by cursor, and not by {self.by}")
        return self

    def __str__(self) -> str:
        """The days, for people."""
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    def holds(self, day: date) -> bool:
        """Whether a day is one of the window's."""
        return self.first <= day <= self.last


class RunOptions(Strict):
    """The options of one run. The defaults are those of a scheduled run."""

    limit: int | None = Field(
        default=None, ge=1, description="Send at most this many rows; the rest stay pending for the next run."
    )
    keys: tuple[str, ...] = Field(
        default=(), description="Only these row keys, as `eventsync rows` shows them; a row's own means all of its events."
    )
    status: Literal["draft"] | None = Field(default=None, description="Send every event as a draft, whatever the mapping says.")
    accept: tuple[BrakeName, ...] = Field(default=(), description="Brakes that this one run may pass.")
    stage_only: bool = Field(default=False, description="Read and stage; send nothing.")
    publish_only: bool = Field(default=False, description="Send what is already staged; do not read the source.")
    full: bool = Field(default=False, description="Read the source from its start, also where only what changed would be read.")
    wait: bool = Field(default=False, description="Wait for another run of the feed to end, instead of leaving.")
    window: Window | None = Field(default=None, description="Only rows of these days; no bookmark moves, and no row vanishes.")

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        """Refuse what a run could only seem to obey: what is staged already keeps the body that it has."""
        if self.publish_only and self.status is not None:
            raise ValueError("status cannot be asked for with publish_only: what is staged keeps its status; stage it again")
        if self.publish_only and (self.full or self.window):
            raise ValueError("neither full nor a window can be asked for with publish_only: nothing is read")
        return self
