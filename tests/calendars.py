"""Calendars read by us, through the mapping that `init` drafts, and by recurring-ical-events called directly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import icalendar
import orjson
import recurring_ical_events

from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.draft.draft import SourceSample, draft_feed
from mappings.draft.source import guess_source
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, Skipped, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed

Span = tuple[datetime, datetime]
"""Start and end in UTC; the end is the start if the event has none."""
PUBLISHED = Path(recurring_ical_events.__file__).parent / "test" / "calendars"
"""The calendars that people reported to the authors of recurring-ical-events, as their package ships them."""


@dataclass(frozen=True)
class Read:
    """What a calendar gives: spans by row key, and the sentences of rejections and labels of what is left out."""

    events: Sequence[tuple[str, Span]]
    rejected: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def spans(self) -> list[Span]:
        return sorted(span for _, span in self.events)


@lru_cache
def drafted(years: int, zone: str = "UTC") -> FeedMapping:
    """Return the mapping that `init` drafts for a calendar, without rules that leave events out, for so many years."""
    cells = {"UID": "1", "SUMMARY": "Evening", "DTSTART": "2027-01-01", "RECURRENCE-ID": ""}
    guess = guess_source("events.ics", b"BEGIN:VCALENDAR\r\n", is_whole=True)
    text = draft_feed(SourceSample("events.ics", "events.ics", guess, tuple(cells), [cells]), "calendar", zone=zone).text
    text = re.sub(r"\nrows:\n.*?\n\nevent:", "\n\nevent:", text, flags=re.DOTALL)
    text = text.replace("from: -30d, to: 365d", f"from: -{366 * years}d, to: {366 * years}d")
    text = text.replace("title: {from: SUMMARY, do: [collapse]}", "title: Evening") + "\npublish: {years_ahead: 100}\n"
    return parse_feed(text, Path("events.yaml"))


def read_calendar(path: Path, now: datetime, years: int = 9) -> Read:
    """Read and map a calendar."""
    mapping = drafted(years)
    mapper = compile_feed(mapping, Directory(), now)
    try:
        rows = rows_of(mapping, path, mapper, now)
    except BadSourceError as error:
        return Read((), (str(error),))
    events: list[tuple[str, Span]] = []
    rejected, left_out = [], []
    for row in rows:
        # Calendars of single events need no UID to be compared.
        named = row if row.cells.get("UID") else replace(row, cells={**row.cells, "UID": str(row.location)})
        for outcome in mapper.outcomes(named):
            match outcome:
                case MappedRow():
                    event = orjson.loads(outcome.body)
                    start = datetime.fromisoformat(event["startAt"]).astimezone(UTC)
                    end = datetime.fromisoformat(event["endAt"]).astimezone(UTC) if "endAt" in event else start
                    events.append((outcome.row_key, (start, end)))
                case Rejection():
                    rejected.extend(f"{outcome.location}: {reason.field} {reason.hint}" for reason in outcome.reasons)
                case Skipped():
                    left_out.append(outcome.because)
    return Read(events, rejected, left_out)


def rows_of(mapping: FeedMapping, path: Path, mapper: RowMapper, now: datetime) -> list[SourceRow]:
    """Read the rows of a calendar."""
    spec = mapping.source.model_copy(update={"path": path.name})
    with open_source(spec, path.parent, mapper.columns, now=now).read() as reading:
        return list(reading.rows)


def library_spans(path: Path, span: Span) -> list[Span]:
    """Return what the library gives for a calendar in a span, with the ends of whole days as the drafted mapping writes them."""
    found = []
    for calendar in icalendar.Calendar.from_ical(path.read_bytes(), multiple=True):
        zone = ZoneInfo(str(calendar.get("X-WR-TIMEZONE", "UTC")))
        events = recurring_ical_events.of(calendar).between(*span)
        found += [(_in_utc(event["DTSTART"].dt, zone), _in_utc(event["DTEND"].dt, zone, is_end=True)) for event in events]
    return sorted(found)


def _in_utc(moment: Any, zone: tzinfo, *, is_end: bool = False) -> datetime:
    if not isinstance(moment, datetime):
        midnight = datetime(moment.year, moment.month, moment.day, tzinfo=zone)
        return (midnight - timedelta(minutes=1) if is_end else midnight).astimezone(UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def overlapping(spans: Sequence[Span], within: Span) -> list[Span]:
    """Return the spans that overlap another."""
    first, end = within
    return [(start, stop) for start, stop in spans if (first <= start if start == stop else first < stop) and start < end]
