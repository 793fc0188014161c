"""Clocks as people write them, and stamps as machines do."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mappings.reasons import Refusal
from mappings.steps.dates import Time
from mappings.steps.times import Clock, ClockRange, Epoch, Iso, Serial
from mappings.zones import DAY_END


def read(text: str, **parameters: str) -> Any:
    return Clock(clock=parameters.pop("clock", "any"), **parameters).function()(text)


def span(text: str, **parameters: str) -> tuple[Any, Any]:
    start, end = (ClockRange(clock_range=which, **parameters).function()(text) for which in ("start", "end"))
    return start.isoformat("minutes"), end and end.isoformat("minutes")


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        *[("19:30", "19:30"), ("7:05", "07:05"), ("19:30:15", "19:30:15"), ("19.30", "19:30"), ("00:00", "00:00")],
        *[("7pm", "19:00"), ("7 PM", "19:00"), ("7.00pm", "19:00"), ("7:30 p.m.", "19:30"), ("12am", "00:00")],
        *[("12 pm", "12:00"), ("18h", "18:00"), ("18 h", "18:00"), ("14h30", "14:30"), ("14H30", "14:30")],
        *[("14 h 30", "14:30"), ("9h05min", "09:05")],
        *[("19 Uhr", "19:00"), ("19.30 Uhr", "19:30"), ("19 Uhr 30", "19:30"), ("um 19 Uhr", "19:00"), ("20.15 uur", "20:15")],
        *[("kl. 19", "19:00"), ("kl 19.30", "19:30"), ("klo 19", "19:00"), ("às 21h", "21:00"), ("a las 19:00", "19:00")],
        *[("ore 21", "21:00"), ("godz. 18", "18:00"), ("at 7pm", "19:00"), ("19時30分", "19:30"), ("19시 30분", "19:30")],
        *[("noon", "12:00"), ("Midi", "12:00"), ("meio-dia", "12:00"), ("\u00a019:30 ", "19:30"), ("19:30h", "19:30")],
    ],
)
def test_a_time_is_read_in_each_way_of_the_closed_list(text: str, clock: str) -> None:
    assert read(text) == time.fromisoformat(clock)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("20:00 AM", "an hour from 1 to 12 stands before AM and PM, not 20"),
        ("0:30 am", "not 0"),
        ("25:00", "hours go from 0 to 23"),
        ("19:60", "minutes and seconds from 0 to 59"),
        ("24:00", "midnight is 00:00 of the day that begins"),
        ("midnight", "midnight is 00:00 of the day that begins"),
        ("TBA", "says no time: write it like"),
        *[
            (text, "write it like")
            for text in ("19", "1930", "7", "19:3", "evening", "19:00 - 20:00", "", "19:00 (doors 18:30)", "１９：００")
        ],
    ],
)
def test_what_is_no_time_or_an_unclear_one_is_refused_with_an_example(text: str, told: str) -> None:
    with pytest.raises(Refusal) as refused:
        read(text)
    assert refused.value.code == "not_a_time"
    assert told in refused.value.hint
    assert "%" not in refused.value.hint


def test_where_am_and_pm_are_agreed_a_time_must_say_which_up_to_noon() -> None:
    assert read("19:30", clock="am_pm") == time(19, 30)
    assert read("7:30pm", clock="am_pm") == time(19, 30)
    for text in ("7:30", "12:00", "kl. 9"):
        with pytest.raises(Refusal, match="not_a_time") as refused:
            read(text, clock="am_pm")
        assert "AM or PM" in refused.value.hint


@pytest.mark.parametrize("text", ["24:00", "24h", "24.00 Uhr", "midnight", "Mitternacht", "meia-noite"])
def test_midnight_is_the_end_of_the_day_where_the_feed_says_so(text: str) -> None:
    assert read(text, day_end="next_day") is DAY_END


def test_no_time_but_24_00_ends_a_day() -> None:
    assert Time(time=["%H.%M", "%H:%M:%S"], day_end="next_day").function()("24:00:00") is DAY_END
    for text in ("24:30", "24:00:01"):
        with pytest.raises(Refusal):
            Time(time=["%H:%M", "%H:%M:%S"], day_end="next_day").function()(text)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        *[("7-9pm", "19:00", "21:00"), ("11am-1pm", "11:00", "13:00"), ("12-2pm", "12:00", "14:00")],
        *[("19:00-20:00", "19:00", "20:00"), ("19h–20h30", "19:00", "20:30"), ("von 19 bis 21 Uhr", "19:00", "21:00")],
        *[("kl. 19-21", "19:00", "21:00"), ("das 19h às 21h", "19:00", "21:00"), ("de 19h a 21h", "19:00", "21:00")],
        *[("22:00 - 02:00", "22:00", "02:00"), ("10am - noon", "10:00", "12:00"), ("7 to 9.30 pm", "19:00", "21:30")],
        *[("19:10", "19:10", ""), ("10〜17時", "10:00", "17:00")],
    ],
)
def test_the_two_ends_of_a_range_share_what_one_of_them_says(text: str, start: str, end: str) -> None:
    assert span(text) == (start, end)


def test_a_range_may_end_with_the_day() -> None:
    assert span("7pm-midnight", day_end="next_day") == ("19:00", "24:00")
    assert span("20:00-24:00", day_end="next_day") == ("20:00", "24:00")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("11-1pm", "does not say AM or PM"),
        ("8-noon", "one of the two does not say AM or PM: write it like 11am-1pm"),
        ("8-midnight", "does not say AM or PM"),
        ("7pm-9", "does not say AM or PM"),
        *[(text, "write it like") for text in ("7-9", "19:00-20:00-21:00", "19:00-", "from 7", "TBA - 9pm")],
    ],
)
def test_a_range_that_leaves_something_open_is_refused(text: str, told: str) -> None:
    with pytest.raises(Refusal) as refused:
        span(text, day_end="next_day")
    assert told in refused.value.hint


@given(st.times(), st.sampled_from(["%H:%M", "%H.%M", "%I:%M %p", "%I.%M%p", "%Hh%M", "%H Uhr %M", "kl. %H.%M"]))
def test_what_is_written_in_a_listed_way_is_read_back(clock: time, spelling: str) -> None:
    assert read(clock.strftime(spelling)) == clock.replace(second=0, microsecond=0)


def iso(text: str, kind: Any = "moment", **parameters: Any) -> Any:
    return Iso(iso=kind, **parameters).function()(text)


def hint(run: Any, text: str) -> str:
    with pytest.raises(Refusal) as refused:
        run(text)
    return refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-01T18:00:00+01:00",
        "2026-07-01T17:00:00Z",
        "2026-07-01t17:00:00z",
        "2026-07-01 18:00:00+01",
        "2026-07-01T18:00:00+0100",
        "2026-07-01 18:00 +01:00",
        "2026-07-01T17:00 UTC",
        "20260701T180000+0100",
        "2026-07-01T12:00:00−05:00",
        "2026-07-01T18+01",
        "2026-07-01T18:00:00.000000000+01:00",
        "2026-07-01T18:00:00,0+01:00",
    ],
)
def test_an_instant_is_read_in_any_spelling_of_its_offset(text: str) -> None:
    assert iso(text) == datetime(2026, 7, 1, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("moment", "2026-07-01T18:00:00", "it has no offset"),
        ("moment", "2026-07-01T18:00:00+24:00", "write it like"),
        ("moment", "2026-07-01T18:00:00+99:00", "write it like"),
        ("moment", "2026-07-01T18:00:60Z", "hours go from 0 to 23"),
        ("moment", "2026-02-29T18:00:00Z", "there is no day 29 in month 2 of 2026"),
        ("moment", "0026-07-01T18:00:00Z", "a year from 1900 to 9999"),
        ("moment", "2026-07-01T18.5Z", "a fraction stands behind seconds only"),
        ("moment", "2026-07-01T24:00:00Z", "midnight is 00:00 of the day that begins"),
        ("wall", "2026-07-01T18:00:00Z", "it carries an offset"),
        ("date", "2026-07-01T18:00:00", "write it like"),
        ("date", "2026-W53-1", "a day of a week is not agreed here"),
        ("date", "2026-182", "a day of the year is not agreed here"),
        ("date", "TBC", "says no date: write it like"),
        ("time", "19", None),
        ("time", "7pm", "write it like"),
    ],
)
def test_what_is_another_kind_of_stamp_is_told_so(kind: Any, text: str, told: str | None) -> None:
    if told is None:
        assert iso(text, kind) == time(19)
        return
    assert told in hint(Iso(iso=kind).function(), text)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-W53-1", date(2026, 12, 28)),
        ("2026W535", date(2027, 1, 1)),
        ("2027-W53-1", None),
        ("2024-366", date(2024, 12, 31)),
        ("2026-366", None),
        ("2026000", None),
        ("9999-365", date(9999, 12, 31)),
        ("9999-W53-1", None),
    ],
)
def test_days_of_a_week_and_of_the_year_are_read_where_they_are_agreed(text: str, day: date | None) -> None:
    forms = ("week", "ordinal")
    if day is not None:
        assert iso(text, "date", forms=forms) == day
        return
    assert "has no such day" in hint(Iso(iso="date", forms=forms).function(), text)


def test_midnight_at_the_end_of_a_day_is_the_next_days_where_the_feed_says_so() -> None:
    assert iso("2026-12-31T24:00:00Z", day_end="next_day") == datetime(2027, 1, 1, tzinfo=UTC)
    assert iso("24:00", "time", day_end="next_day") is DAY_END
    assert "9999" in hint(Iso(iso="wall", day_end="next_day").function(), "9999-12-31T24:00")


OFFSETS = st.integers(-15 * 60, 15 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30), timezones=OFFSETS)  # noqa: DTZ001 - hypothesis adds them


@given(MOMENTS, st.sampled_from(["T", " "]), st.sampled_from(["auto", "seconds", "milliseconds", "microseconds"]))
def test_what_python_writes_in_iso_8601_is_read_back(moment: datetime, between: str, precision: str) -> None:
    text = moment.isoformat(between, precision)
    assert iso(text) == datetime.fromisoformat(text)
    assert iso(text.replace("+00:00", "Z")) == datetime.fromisoformat(text)


@given(st.text(max_size=30) | st.from_regex(r"\A[0-9TWZ:. +-]{1,30}\Z"), st.sampled_from(["moment", "wall", "date", "time"]))
def test_any_text_is_an_iso_stamp_or_refused(text: str, kind: Any) -> None:
    with suppress(Refusal):
        assert iso(text, kind, forms=("week", "ordinal"), day_end="next_day") is not None


@pytest.mark.parametrize(
    ("unit", "text", "told"),
    [
        ("s", "1782928800000", "so many seconds after 1970 are no date from 1973 to 9999: write it like 1782928800"),
        ("ms", "1782928800", "so many milliseconds after 1970 are no date"),
        ("s", "-1", "are no date from 1973"),
        ("s", "1.78E+09", "write it like"),
        ("ms", "99999999999999999999", "write it like"),
    ],
)
def test_a_count_that_is_no_agreed_epoch_is_refused(unit: Any, text: str, told: str) -> None:
    assert told in hint(Epoch(epoch=unit).function(), text)


@given(st.integers(10**8, 253_402_300_799))
def test_an_epoch_is_the_moment_so_long_after_1970(seconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert Epoch(epoch="s").function()(f"{seconds}.0") == moment
    assert Epoch(epoch="ms").function()(str(seconds * 1000)) == moment


@pytest.mark.parametrize(
    ("system", "text", "wall"),
    [
        ("1900", "1", "1900-01-01T00:00:00"),
        ("1900", "59", "1900-02-28T00:00:00"),
        ("1900", "61", "1900-03-01T00:00:00"),
        ("1900", "46204,770833333", "2026-07-01T18:30:00"),
        ("1900", "46204.999999", "2026-07-02T00:00:00"),
        ("1900", "2958465", "9999-12-31T00:00:00"),
        ("1904", "0", "1904-01-01T00:00:00"),
        ("1904", "44742.5", "2026-07-01T12:00:00"),
    ],
)
def test_a_spreadsheets_number_is_the_day_that_it_shows(system: Any, text: str, wall: str) -> None:
    assert Serial(serial=system).function()(text).isoformat() == wall


@pytest.mark.parametrize(
    ("system", "text", "told"),
    [
        ("1900", "60.5", "29 February 1900, which never was"),
        ("1900", "0.5", "a part of a day is a time"),
        ("1900", "2958466", "a day up to 9999-12-31"),
        ("1900", "99999999999999999999", "a day up to 9999-12-31"),
        ("1900", "2026-07-01", "write it like"),
        ("1904", "-1", "days are counted from 0"),
        ("time", "1", "a part of one day"),
        ("time", "-0.5", "a part of one day"),
    ],
)
def test_a_number_that_no_spreadsheet_shows_as_a_day_is_refused(system: Any, text: str, told: str) -> None:
    assert told in hint(Serial(serial=system).function(), text)


@given(st.times())
def test_a_part_of_a_day_is_the_time_that_was_typed(clock: time) -> None:
    typed = clock.replace(microsecond=0)
    part = (typed.hour * 3600 + typed.minute * 60 + typed.second) / 86_400
    assert Serial(serial="time").function()(f"{part:.15f}") == typed
    assert Serial(serial="1900").function()(f"{46204 + part:.10f}").time() == typed
