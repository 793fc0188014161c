"""Dates and times in the formats that a feed names, with their words in many languages."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from unit.mappings.conftest import Mapper, Row, mapped

from mappings.reasons import Refusal
from mappings.spec.values import AnyStep
from mappings.steps.dates import Date, DateRange, Dates, Datetime, Time
from mappings.steps.formats import compile_format, read_format
from mappings.steps.step import Step

ADAPTER: TypeAdapter[Step] = TypeAdapter(AnyStep)


def read(step: str, formats: str, text: str, **parameters: str) -> Any:
    return ADAPTER.validate_python({step: formats, **parameters}).compile({})(text)


@pytest.mark.parametrize(
    ("formats", "language", "text", "iso"),
    [
        ("%Y-%m-%d", "en", "\u00a02026-07-01 ", "2026-07-01"),
        ("%d.%m.%y", "en", "1.7.26", "2026-07-01"),
        ("%d.%m.%y", "en", "1.7.69", "1969-07-01"),
        ("%Y-%j", "en", "2024-366", "2024-12-31"),
        ("%d/%m/%Y", "en", "29/02/2024", "2024-02-29"),
        ("%d %B %Y", "pl", "3 maja 2026", "2026-05-03"),
        ("%d %B %Y", "pl", "3 MAJ 2026", "2026-05-03"),
        ("%d. %b %Y", "de", "3. Okt. 2026", "2026-10-03"),
        ("%d. %b %Y", "de", "3. Okt 2026", "2026-10-03"),
        ("%A, %d de %B de %Y", "pt", "sexta-feira, 1 de maio de 2026", "2026-05-01"),
        ("%d %B %Y", "fr", "1 aou\u0302t 2026", None),
        ("%d %B %Y", "fr", "1 août 2026", "2026-08-01"),
        ("%d %B %Y", "tr", "5 KASIM 2026", "2026-11-05"),
        ("%d %B %Y", "tr", "5 EKİM 2026", "2026-10-05"),
        ("%d %B %Y", "tr", "5 kasım 2026", "2026-11-05"),
        ("%Y-%m-%d", "en", "2026-W53-1", None),
        ("%Y-%m-%d", "en", "1899-12-31", None),
        ("%d/%m/%Y", "en", "01/07/0026", None),
        ("%d %B %Y", "en", "1 July 0026", None),
        ("%Y-%j", "en", "2025-366", None),
        ("%d/%m/%Y", "en", "01/05/2026 extra", None),
        ("%d/%m/%Y", "en", "0１/05/2026", None),
        ("%d/%m/%Y", "en", "13/13/2026", None),
    ],
)
def test_a_date_is_read_strictly_or_not_at_all(formats: str, language: str, text: str, iso: str | None) -> None:
    if iso is not None:
        assert read("date", formats, text, locale=language).isoformat() == iso
        return
    with pytest.raises(Refusal):
        read("date", formats, text, locale=language)


@pytest.mark.parametrize(
    ("formats", "text", "iso"),
    [
        ("%I:%M %p", "12:30 AM", "00:30:00"),
        ("%I:%M %p", "12:30 pm", "12:30:00"),
        ("%I%p", "7 pm", None),
        ("%I %p", "7 p.m.", "19:00:00"),
        ("%H:%M:%S", "19:00:00", "19:00:00"),
        ("%H:%M", "24:00", None),
        ("%H:%M", "noon", None),
        ("%H:%M", "7.00", None),
    ],
)
def test_a_time_is_read_strictly_or_not_at_all(formats: str, text: str, iso: str | None) -> None:
    if iso is not None:
        assert read("time", formats, text).isoformat() == iso
        return
    with pytest.raises(Refusal) as refused:
        read("time", formats, text)
    assert refused.value.hint


def test_midnight_written_as_24_is_told_how_to_be_written() -> None:
    with pytest.raises(Refusal) as refused:
        read("time", "%H:%M", "24:00")
    assert refused.value.hint == "midnight is 00:00 of the day that begins: write that, with its date"


FORMATS = (
    "%Y-%m-%d %H:%M:%S",
    "%d/%m/%y %H.%M",
    "%d %B %Y, %I:%M %p",
    "%a %d %b %Y %H:%M",
    "%Y%m%d%H%M%S",
    "%j.%Y %H:%M",
    "%m/%d/%Y %H:%M%z",
)


@given(st.sampled_from(FORMATS), st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)))  # noqa: DTZ001 - wall times
def test_what_python_writes_in_a_format_is_read_as_python_reads_it(spelling: str, moment: datetime) -> None:
    text = moment.strftime(spelling.replace("%z", "+05:30"))
    assert read_format(compile_format(spelling), text) == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above


@given(st.text(max_size=20), st.sampled_from(FORMATS))
def test_no_text_is_read_that_python_would_not_read(text: str, spelling: str) -> None:
    found = read_format(compile_format(spelling), text)
    assert found is None or found == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above


@pytest.mark.parametrize(
    ("form", "language", "text", "clock"),
    [
        ("%p %I시 %M분", "ko", "오후 7시 30분", "19:30:00"),
        ("%p %I시", "ko", "오전 12시", "00:00:00"),
        ("%p%I:%M", "zh", "下午7:30", "19:30:00"),
        ("%p%I時%M分", "ja", "午後7時30分", "19:30:00"),
        ("%I:%M %p", "ko", "7:30 PM", "19:30:00"),
    ],
)
def test_both_halves_of_the_day_are_read_in_words_of_their_language(form: str, language: str, text: str, clock: str) -> None:
    assert Time(time=form, locale=language).function()(text).isoformat() == clock


@pytest.mark.parametrize(
    ("step", "parameters", "shown"),
    [
        (Date, {"date": "%d de %B de %Y", "locale": "pt"}, '"31 de março de 2026"'),
        (Date, {"date": "%a %d %b %Y", "locale": "de"}, '"Di. 31 März 2026"'),
        (Time, {"time": "%p %I시", "locale": "ko"}, '"오후 07시"'),
        (Datetime, {"datetime": "%Y-%m-%dT%H:%M%z"}, '"2026-03-31T19:30+01:00"'),
    ],
)
def test_what_a_hint_shows_would_itself_be_accepted(step: Any, parameters: dict[str, str], shown: str) -> None:
    read = step(**parameters).function()
    with pytest.raises(Refusal) as refused:
        read("TBA")
    assert shown in refused.value.hint
    assert read(shown.strip('"'))


def test_the_first_of_several_dates_is_still_a_date(mapper: Mapper, row: Row) -> None:
    days = '{from: DAYS, do: [{split: ";"}, {date: "%Y-%m-%d", on_error: omit}, first]}'
    feed = mapper(event=f'startAt: {{at: {{day: {days}, zone: Europe/Lisbon, all_day: "00:00"}}}}')
    event = mapped(feed(row(DAYS="TBA; 2026-05-08; 2026-05-15")))
    assert b'"startAt":"2026-05-08T00:00:00+01:00"' in event.body


def span(formats: Any, text: str, **parameters: str) -> tuple[str, str]:
    start, end = (DateRange(date_range=which, formats=formats, **parameters).function()(text) for which in ("start", "end"))
    return start.isoformat(), end and end.isoformat()


def refusal(run: Any, text: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        run(text)
    assert refused.value.code == "not_a_date"
    return refused.value


@pytest.mark.parametrize(
    ("formats", "locale", "text", "start", "end"),
    [
        ("%d %b %Y", "en", "28 Dec 2026 – 2 Jan 2027", "2026-12-28", "2027-01-02"),
        ("%d.%m.%Y", "de", "12.-14.06.2026", "2026-06-12", "2026-06-14"),
        ("%d.%m.%Y", "de", "12.06. bis 14.07.2026", "2026-06-12", "2026-07-14"),
        ("%d. %B %Y", "de", "vom 3. bis 5. März 2026", "2026-03-03", "2026-03-05"),
        ("%d de %B de %Y", "pt", "de 3 a 5 de maio de 2026", "2026-05-03", "2026-05-05"),
        ("%d de %B de %Y", "es", "del 28 de abril al 2 de mayo de 2026", "2026-04-28", "2026-05-02"),
        ("%B %d, %Y", "en", "May 30 - June 2, 2026", "2026-05-30", "2026-06-02"),
        ("%Y-%m-%d", "en", "2026-05-03 - 2026-05-05", "2026-05-03", "2026-05-05"),
        ("%Y年%m月%d日", "ja", "2026年5月3日～5日", "2026-05-03", "2026-05-05"),
    ],
)
def test_a_day_takes_from_its_neighbour_what_it_leaves_out(formats: str, locale: str, text: str, start: str, end: str) -> None:
    assert span(formats, text, locale=locale) == (start, end)


@pytest.mark.parametrize(
    ("formats", "text", "told"),
    [
        ("%d %b %Y", "28 Dec - 2 Jan 2027", "before it begins on 2027-12-28: write both years"),
        ("%d %B %Y", "May 2026", "write it like"),
        ("%d %B %Y", "Ongoing", "says no date: write it like"),
        ("%d %B %Y", "Permanent", "with on_error or a skip rule"),
        ("%d%m%Y", "11-12052026", "it can be read as more than one range"),
        ("%d %B %Y", "3 May - 5 May", "write it like"),
        ("%d %B %Y", "31-32 May 2026", "write it like"),
        ("%d %B %Y", "30-31 April 2026", "there is no day 31 in month 4"),
        ("%d %B %Y", "3 or 5 May 2026", "write it like"),
        ("%d %B %Y", "3-5-7 May 2026", "write it like"),
        ("%d %B %Y", "3 - 5 May 2026" + " " * 300 + "x", "write it like"),
    ],
)
def test_a_range_that_cannot_be_completed_is_refused(formats: str, text: str, told: str) -> None:
    assert told in refusal(DateRange(date_range="start", formats=formats).function(), text).hint


@given(st.dates(date(1990, 1, 1), date(2060, 1, 1)), st.integers(0, 27), st.sampled_from(["%d %B %Y", "%d.%m.%Y", "%B %d, %Y"]))
def test_a_range_is_read_back_however_much_its_neighbour_shares(first: date, days: int, spelling: str) -> None:
    last = first + timedelta(days=days)
    whole = f"{first.strftime(spelling)} - {last.strftime(spelling)}"
    assert span(spelling, whole) == (first.isoformat(), last.isoformat())
    if spelling == "%d %B %Y" and (first.year, first.month) == (last.year, last.month):
        assert span(spelling, f"{first.day}-{last.strftime(spelling)}") == (first.isoformat(), last.isoformat())


def test_a_list_of_days_is_read_whole_or_refused_with_the_item_named() -> None:
    dates = Dates(dates=["%Y-%m-%d", "%d/%m/%Y"]).function()
    assert dates("3/5/2026, 10/5/2026;\n17/5/2026;") == [date(2026, 5, 3), date(2026, 5, 10), date(2026, 5, 17)]
    assert dates("") == []
    assert 'item 2 of 3, "?", is no date' in refusal(dates, "3/5/2026; ?; 17/5/2026").hint
    assert '"31/4/2026": there is no day 31' in refusal(dates, "3/5/2026; 31/4/2026").hint
    assert "at most 1000 days" in refusal(dates, "3/5/2026;" * 1001).hint


def test_days_of_a_list_share_the_month_and_the_year_that_stand_at_its_end() -> None:
    dates = Dates(dates="%d %B %Y", by=[",", " and "]).function()
    assert dates("3, 5 and 7 May 2026") == [date(2026, 5, 3), date(2026, 5, 5), date(2026, 5, 7)]
    assert dates("30 April, 3 May 2026") == [date(2026, 4, 30), date(2026, 5, 3)]
    assert "item 2 of 2" in refusal(dates, "3 May 2026, 5").hint


def test_a_separator_that_stands_within_a_day_is_the_authors_mistake() -> None:
    with pytest.raises(ValidationError, match='has "," within a day'):
        Dates(dates="%B %d, %Y")
    assert Dates(dates="%B %d, %Y", by=";").function()("May 3, 2026; May 5, 2026") == [date(2026, 5, 3), date(2026, 5, 5)]


@pytest.mark.parametrize(
    ("year", "formats", "text", "day"),
    [
        ("2026-09-01", "%d %B", "1 September", "2026-09-01"),
        ("2026-09-01", "%d %B", "31 August", "2027-08-31"),
        ("2026-09-01", ["%d.%m.%Y", "%d.%m."], "5.2.", "2027-02-05"),
        ("2026-09-01", ["%d.%m.%Y", "%d.%m."], "5.2.2026", "2026-02-05"),
        ("2027-09-01", "%d %B", "29 February", "2028-02-29"),
    ],
)
def test_a_year_is_supplied_only_as_the_author_says(year: str, formats: Any, text: str, day: str) -> None:
    assert Date(date=formats, year=year).function()(text).isoformat() == day


@pytest.mark.parametrize(
    ("year", "formats", "text", "told"),
    [
        ("2026-09-01", "%a %d %b", "Sat 5 Feb", "2027-02-05 is a Friday, and the text says Saturday"),
        ("2026-09-01", "%d %B", "29 February", "there is no day 29 in month 2 of 2027"),
        ("2026", "%d %B", "29 February", "there is no day 29 in month 2 of 2026"),
    ],
)
def test_a_day_that_the_year_does_not_have_is_refused(year: str, formats: str, text: str, told: str) -> None:
    assert told in refusal(Date(date=formats, year=year).function(), text).hint


@pytest.mark.parametrize("year", ["26", "next", "2026-13-01", "0026", "run"])
def test_a_rule_that_says_no_year_is_the_authors_mistake(year: str) -> None:
    with pytest.raises(ValidationError, match="says no year"):
        Date(date="%d %B", year=year)


def test_a_range_without_years_may_cross_the_new_year_of_its_season() -> None:
    assert span("%d %B", "28 December - 2 January", year="2026-09-01") == ("2026-12-28", "2027-01-02")
