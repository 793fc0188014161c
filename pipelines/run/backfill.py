"""Plans of backfills: a window of a feed's past, cut into slices."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, get_args

from pydantic import ValidationError

from mappings.compiler.mapper import RowMapper
from mappings.errors import ConfigError
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.source import SourceSpec
from mappings.spec.source_base import FileSource
from mappings.spec.source_words import TheseDays, is_dated
from mappings.strict import Strict
from pipelines.clock import now
from pipelines.run.options import By, Window
from state.backfills import BackfillRecord, SliceRecord

FIRST_SHOWN = date(2015, 1, 1)
DAYS_AHEAD = 731
"""Dagster shows a partition for each day from the first to today, and for days to come if a row's day is that of its event."""
DAYS_OF_A_RUN = 31
"""Days of one run of a backfill in Dagster: its process takes seconds to start, and a failed one reads all its days again."""
MOST_SLICES = 5_000
_DAYS = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_DRAFTS = ", as drafts"


def default_way(source: SourceSpec) -> By:
    """Return the way to decide a row's day that reads least: by change time (cursor), by the file's date, or by the event's
    start.
    """
    if isinstance(source, FileSource) and (is_dated(source.path) or source.files == "new"):
        return "file"
    return "cursor" if source.changed_by else "event"


def days_ahead(source: SourceSpec) -> int:
    """Return for how many days after today Dagster shows partitions of a feed."""
    return DAYS_AHEAD if default_way(source) == "event" else 0


def is_shown(mapping: FeedMapping, window: Window) -> bool:
    """Return whether all days of a window are partitions in Dagster; others can be backfilled without it."""
    last = now().date() + timedelta(days=days_ahead(mapping.source))
    return window.first >= FIRST_SHOWN and window.last <= last


def check_way(mapping: FeedMapping, window: Window) -> None:
    """Check that the feed's source can be read for this kind of window.

    Raises:
        ConfigError: it cannot; the hint names a way that works.
    """
    usual = default_way(mapping.source)
    if window.by == "file" and usual != "file":
        message = f"{mapping.feed} cannot be read by file: its source is a single file, not one per day"
        raise ConfigError(message, hint=f'use --by {usual}; or write {{date:%Y%m%d}} into "source.path"')
    if window.by == "cursor" and not window.column and usual != "cursor":
        message = f"{mapping.feed} cannot be read by cursor: its source does not record when a row changed"
        raise ConfigError(message, hint=f"name a column with the time of change, with --column; or use --by {usual}")


def narrow_to(mapping: FeedMapping, window: Window | None, mapper: RowMapper) -> FeedMapping:
    """Return the feed with its source narrowed to the window as far as possible; its rows must still be filtered.

    Days of changed records are UTC days.

    Raises:
        ConfigError: the source cannot be read so, or the window would separate rows that together make one event.
    """
    if window is None:
        return mapping
    check_way(mapping, window)
    if mapper.needs_all_rows and window.by != "event":
        message = f"several rows of {mapping.feed} may make one event: a window by {window.by} would separate them"
        raise ConfigError(message, hint="use --by event")
    source, update = mapping.source, dict[str, object]()
    if window.by == "cursor" and window.column:
        update = {"required": (*source.required, window.column)}
    elif window.by == "cursor":
        begin, end = (datetime.combine(day, time(), UTC) for day in (window.first, window.last + timedelta(days=1)))
        return mapping.model_copy(update={"source": source.changed_between(begin, end)})
    elif window.by == "file" and isinstance(source, FileSource):
        update = {"files": "new", "days": TheseDays(first=window.first, last=window.last, zone=source.days.zone)}
    return mapping.model_copy(update={"source": source.model_copy(update=update)})


def cut(window: Window, slice_: str) -> tuple[Window, ...]:
    """Cut a window into slices, oldest first: `day`, `week` (from Monday), `month`, or a number of days.

    Raises:
        ConfigError: `slice_` is none of these, or there would be too many slices.
    """
    if slice_ not in {"day", "week", "month"} and not _DAYS.fullmatch(slice_):
        raise ConfigError(f"--slice {slice_}: not a length of a slice", hint="use day, week, month, or a number of days")
    slices, first = list[Window](), window.first
    while first <= window.last:
        last = min(_last_of(first, slice_), window.last)
        slices.append(window.model_copy(update={"first": first, "last": last}))
        first = last + timedelta(days=1)
        if len(slices) > MOST_SLICES:
            days = (window.last - window.first).days + 1
            message = f"{days:,} days make more than {MOST_SLICES:,} slices with --slice {slice_}"
            raise ConfigError(message, hint="use a longer --slice, such as month")
    return tuple(slices)


def _last_of(first: date, slice_: str) -> date:
    match slice_:
        case "day":
            return first
        case "week":
            return first + timedelta(days=6 - first.weekday())
        case "month":
            return (first.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)
        case days:
            return first + timedelta(days=int(days) - 1)


class BackfillPlan(Strict):
    """A window, the length of its slices, and whether all events go out as drafts."""

    window: Window
    slice: str
    status: Literal["draft"] | None = None

    def __str__(self) -> str:
        """Return the plan as text for people."""
        length = f"{self.slice} days" if self.slice.isdecimal() else f"a {self.slice}"
        return f"{self._rows}, in slices of {length}{_DRAFTS if self.status else ''}"

    @property
    def _rows(self) -> str:
        return " ".join(filter(None, (f"{self.window} by {self.window.by}", self.window.column)))

    @property
    def tag(self) -> str:
        """The plan without its slices as the value of a tag, for people and for `plan_of_tag`."""
        return f"{self._rows}{_DRAFTS if self.status else ''}"

    @property
    def slices(self) -> tuple[Window, ...]:
        """The slices, oldest first."""
        return cut(self.window, self.slice)

    def window_of(self, one: SliceRecord) -> Window:
        """Return the window of a recorded slice."""
        days = {"first": date.fromisoformat(one.first), "last": date.fromisoformat(one.last)}
        return self.window.model_copy(update=days)


def plan_of_record(record: BackfillRecord) -> BackfillPlan:
    """Return the plan of a recorded backfill."""
    return BackfillPlan.model_validate_json(record.plan)


def plan_of_tag(tag: str) -> BackfillPlan:
    """Return the plan that a tag describes, in the slices that Dagster makes."""
    days, _, way = tag.removesuffix(_DRAFTS).partition(" by ")
    first, _, last = days.partition(" to ")
    by, _, column = way.partition(" ")
    window = Window.model_validate({"by": by, "first": first, "last": last or first, "column": column})
    return BackfillPlan(window=window, slice=str(DAYS_OF_A_RUN), status="draft" if tag.endswith(_DRAFTS) else None)


def make_plan(mapping: FeedMapping, days: tuple[date, date], by: str, column: str, slice_: str) -> BackfillPlan:
    """Build the plan for a feed's days; "" means the feed's default.

    Raises:
        ConfigError: the feed cannot be read so, or the values make no window.
    """
    window = window_of(mapping, days, by, column)
    # By event, each slice reads the whole source again, so a few long ones are better.
    plan = BackfillPlan(window=window, slice=slice_ or ("month" if window.by == "event" else "day"))
    cut(window, plan.slice)
    return plan


def window_of(mapping: FeedMapping, days: tuple[date, date], by: str = "", column: str = "") -> Window:
    """Build the window of a feed's days; "" means the feed's default.

    Raises:
        ConfigError: the feed cannot be read so, or the values make no window.
    """
    way = by or ("cursor" if column else default_way(mapping.source))
    if way not in get_args(By):
        hint = did_you_mean(way, get_args(By)) or f"use one of {', '.join(get_args(By))}"
        raise ConfigError(f"--by {way}: not a way to decide a row's day", hint=hint)
    first, last = days
    try:
        window = Window.model_validate({"by": way, "first": first, "last": last, "column": column})
    except ValidationError as error:
        problems = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in error.errors())
        raise ConfigError(
            problems, hint="--from is the first day, --to the last one, and --column goes with --by cursor"
        ) from error
    check_way(mapping, window)
    return window
