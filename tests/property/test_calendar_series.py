"""Generated series of calendars: each event starts and ends when recurring-ical-events, called directly, says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from calendars import Span, library_spans, overlapping, read_calendar
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2027, 6, 1, tzinfo=UTC)
YEARS = 1
REACH: Span = (NOW - timedelta(days=366), NOW + timedelta(days=366))
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
RULES = (
    "FREQ=DAILY;COUNT=6",
    "FREQ=DAILY;INTERVAL=3;COUNT=5",
    "FREQ=WEEKLY;COUNT=5",
    "FREQ=WEEKLY;BYDAY=TU,SA;COUNT=6",
    "FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=SU,MO;COUNT=6",
    "FREQ=MONTHLY;BYDAY=-1FR,2MO;COUNT=5",
    "FREQ=MONTHLY;BYMONTHDAY=-1,31;COUNT=4",
    "FREQ=YEARLY;BYMONTH=3,10;BYDAY=-1SU;COUNT=3",
    "FREQ=HOURLY;INTERVAL=12;COUNT=5",
)
LENGTHS = (timedelta(), timedelta(minutes=90), timedelta(hours=26), timedelta(days=3, hours=1))


def stamp(moment: datetime, zone: str, form: str) -> str:
    """Return a property's parameters and value for a moment: in its zone, or in UTC."""
    if form == "day":
        return f";VALUE=DATE:{moment:%Y%m%d}"
    local = moment.replace(tzinfo=ZoneInfo(zone))
    if form == "utc" or zone == "UTC":
        return f":{local.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    return f";TZID={zone}:{moment:%Y%m%dT%H%M%S}"


@st.composite
def series(draw: st.DrawFn) -> str:
    """Draw the events with one UID: a series of times in a zone or of days, with exceptions, additions and moved occurrences."""
    zone, is_daily = draw(st.sampled_from(ZONES)), draw(st.booleans())
    form = "day" if is_daily else "local"
    start = datetime(2027, 3, 1) + timedelta(days=draw(st.integers(0, 250)), hours=0 if is_daily else draw(st.integers(4, 23)))  # noqa: DTZ001
    length = timedelta(days=draw(st.integers(1, 3))) if is_daily else draw(st.sampled_from(LENGTHS))
    rule = draw(st.sampled_from([rule for rule in RULES if "HOURLY" not in rule] if is_daily else RULES))
    other = lambda: "day" if is_daily else draw(st.sampled_from(("local", "utc")))  # noqa: E731
    if draw(st.booleans()):
        last = start + timedelta(days=draw(st.integers(0, 60)))
        end = f"{last:%Y%m%d}" if is_daily else stamp(last, zone, "utc").removeprefix(":")
        rule = f"{rule.partition(';COUNT')[0]};UNTIL={end}"
    lines = ["UID:series", f"DTSTART{stamp(start, zone, form)}", f"RRULE:{rule}"]
    if length:
        lines.append(f"DTEND{stamp(start + length, zone, form)}")
    for name in draw(st.lists(st.sampled_from(("EXDATE", "RDATE")), max_size=3)):
        day = start + timedelta(days=draw(st.integers(0, 12)), hours=0 if is_daily else draw(st.sampled_from((0, 0, 2))))
        lines.append(f"{name}{stamp(day, zone, other())}")
    events = [lines]
    for day in draw(st.lists(st.integers(0, 12), unique=True, max_size=2)):
        original = start + timedelta(days=day)
        moved = original + timedelta(days=draw(st.integers(-3, 3)), hours=0 if is_daily else draw(st.integers(-3, 3)))
        parts = [f"RECURRENCE-ID{stamp(original, zone, other())}", f"DTSTART{stamp(moved, zone, form)}"]
        events.append(["UID:series", *parts, f"DTEND{stamp(moved + (length or timedelta(hours=1)), zone, form)}"])
    made = ["\r\n".join(["BEGIN:VEVENT", *event, "END:VEVENT"]) for event in events]
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", *made, "END:VCALENDAR", ""])


@given(series())
def test_each_event_of_a_series_starts_and_ends_as_the_library_says(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.ics"
        path.write_bytes(text.encode())
        ours = read_calendar(path, NOW, YEARS)
        assert not ours.rejected
        assert overlapping(ours.spans, REACH) == library_spans(path, REACH)
        keys = [key for key, _ in ours.events]
        assert len(keys) == len(set(keys))
