from __future__ import annotations

from datetime import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mappings.reasons import Refusal
from mappings.steps.dates import Time
from mappings.steps.ranges import ClockRange
from mappings.steps.times import Clock
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
        *[
            ("7pm", "19:00"),
            ("7 PM", "19:00"),
            ("7.00pm", "19:00"),
            ("7:30 p.m.", "19:30"),
            ("12am", "00:00"),
            ("12 pm", "12:00"),
        ],
        *[
            ("18h", "18:00"),
            ("18 h", "18:00"),
            ("14h30", "14:30"),
            ("14H30", "14:30"),
            ("14 h 30", "14:30"),
            ("9h05min", "09:05"),
        ],
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
        ("TBA", "says that there is no time yet"),
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


def test_24_00_is_later_than_any_time_of_its_day_and_no_time_of_its_own() -> None:
    assert time(23, 59) < DAY_END
    assert time(0) < DAY_END
    assert max(time(23, 59), DAY_END, time(1)) is DAY_END
    assert time(0) != DAY_END
    assert DAY_END.isoformat() == str(DAY_END) == "24:00:00"
    assert Time(time=["%H.%M", "%H:%M:%S"], day_end="next_day").function()("24:00:00") is DAY_END
    for text in ("24:30", "24:00:01"):
        with pytest.raises(Refusal):
            Time(time=["%H:%M", "%H:%M:%S"], day_end="next_day").function()(text)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        *[
            ("7-9pm", "19:00", "21:00"),
            ("11am-1pm", "11:00", "13:00"),
            ("12-2pm", "12:00", "14:00"),
            ("7 to 9.30 pm", "19:00", "21:30"),
        ],
        *[("19:00-20:00", "19:00", "20:00"), ("19h–20h30", "19:00", "20:30"), ("von 19 bis 21 Uhr", "19:00", "21:00")],
        *[("kl. 19-21", "19:00", "21:00"), ("das 19h às 21h", "19:00", "21:00"), ("de 19h a 21h", "19:00", "21:00")],
        *[
            ("22:00 - 02:00", "22:00", "02:00"),
            ("10am - noon", "10:00", "12:00"),
            ("19:10", "19:10", ""),
            ("10〜17時", "10:00", "17:00"),
        ],
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
        ("11-1pm", "write it like 11am-1pm"),
        ("8-noon", "the start does not say AM or PM"),
        ("8-midnight", "write it like 8pm-midnight"),
        ("7pm-9", "write it like 7pm-9pm"),
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
