"""A window: the days of a feed's history that one run is limited to, and by what of a row its day is told.

Which rows are in it is `sieves`' matter; how a window is cut into slices `slicing`'s.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, Self, assert_never

from pydantic import Field, model_validator

from mappings.engine import RowMapper
from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from mappings.spec.soql import FieldTest
from mappings.spec.source import FileSource, SalesforceSource, SourceSpec
from mappings.spec.source_words import TheseDays, is_dated
from mappings.strict import Strict

By = Literal["cursor", "file", "event"]
"""What tells a row's day: when it last changed, the file it came in, or when its event starts."""
FIRST_SHOWN = date(2015, 1, 1)
"""The first day that Dagster shows of a feed's past; earlier ones are brought in all the same."""


class Window(Strict):
    """The days `first` to `last`, both included, by what is named."""

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


def usual_way(source: SourceSpec) -> By:
    """Return by what a feed's days are best told: the least that has to be read for a window."""
    if isinstance(source, FileSource) and (is_dated(source.path) or source.files == "new"):
        return "file"
    return "cursor" if isinstance(source, SalesforceSource) and source.incremental else "event"


def has_days(mapping: FeedMapping) -> bool:
    """Whether the source of a feed can be asked for days: by its files, or by when its records changed."""
    return usual_way(mapping.source) != "event"


def check_way(mapping: FeedMapping, window: Window) -> None:
    """Check that the source of a feed can be asked for such a window.

    Raises:
        ConfigError: it cannot; the hint names a way that it can.
    """
    source = mapping.source
    usual = usual_way(source)
    if window.by == "file" and usual != "file":
        message = f"{mapping.feed} cannot be read by file: its source is one file, and none of several days"
        raise ConfigError(message, hint=f'use --by {usual}; or write {{date:%Y%m%d}} into "source.path"')
    if window.by == "cursor" and not window.column and not (isinstance(source, SalesforceSource) and source.incremental):
        message = f"{mapping.feed} cannot be read by cursor: its source does not say when a row changed"
        raise ConfigError(message, hint=f"name the column that does, with --column; or use --by {usual}")


def within(mapping: FeedMapping, window: Window | None, mapper: RowMapper) -> FeedMapping:
    """Return the feed with a source that gives no more than a window needs; which of its rows are in it is still to be asked.

    Raises:
        ConfigError: the source cannot be asked so, or several of its rows make one event, of which a window tears some apart.
    """
    if window is None:
        return mapping
    check_way(mapping, window)
    if mapper.needs_all_rows and window.by != "event":
        message = f"several rows of {mapping.feed} may make one event: a window by {window.by} would tear them apart"
        raise ConfigError(message, hint="use --by event")
    return mapping.model_copy(update={"source": _narrowed(mapping.source, window)})


def _narrowed(source: SourceSpec, window: Window) -> SourceSpec:
    match window.by, source:
        case "event", _:
            return source
        case "cursor", SalesforceSource() if source.incremental and not window.column:
            tests = _changed_in(source.incremental.by, window)
            return source.model_copy(update={"where": (*source.where, *tests), "incremental": None})
        case "cursor", _:
            return source.model_copy(update={"required": (*source.required, window.column)})
        case "file", FileSource():
            days = TheseDays(first=window.first, last=window.last, zone=source.days.zone)
            return source.model_copy(update={"files": "new", "days": days})
        case "file", _:
            return source
        case _:
            assert_never(window.by)


def _changed_in(field: str, window: Window) -> tuple[FieldTest, FieldTest]:
    """Return the conditions for records last changed in the window, whose days are those of UTC."""
    begin, end = (datetime.combine(day, time(), UTC).isoformat() for day in (window.first, window.last + timedelta(days=1)))
    return FieldTest(field=field, op=">=", value=(begin,)), FieldTest(field=field, op="<", value=(end,))
