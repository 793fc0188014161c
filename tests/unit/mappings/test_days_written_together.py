from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mappings.reasons import Refusal
from mappings.steps.dates import Date
from mappings.steps.ranges import DateRange, Dates


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
        ("%d %B %Y", "en", "3-5 May 2026", "2026-05-03", "2026-05-05"),
        ("%d %b %Y", "en", "28 Feb - 2 Mar 2026", "2026-02-28", "2026-03-02"),
        ("%d %b %Y", "en", "28 Dec 2026 – 2 Jan 2027", "2026-12-28", "2027-01-02"),
        ("%d.%m.%Y", "de", "12.-14.06.2026", "2026-06-12", "2026-06-14"),
        ("%d.%m.%Y", "de", "12.06. bis 14.07.2026", "2026-06-12", "2026-07-14"),
        ("%d. %B %Y", "de", "vom 3. bis 5. März 2026", "2026-03-03", "2026-03-05"),
        ("%d %B %Y", "fr", "du 3 au 5 mai 2026", "2026-05-03", "2026-05-05"),
        ("%d de %B de %Y", "pt", "de 3 a 5 de maio de 2026", "2026-05-03", "2026-05-05"),
        ("%d de %B de %Y", "es", "del 28 de abril al 2 de mayo de 2026", "2026-04-28", "2026-05-02"),
        ("%B %d, %Y", "en", "May 3-5, 2026", "2026-05-03", "2026-05-05"),
        ("%B %d, %Y", "en", "May 30 - June 2, 2026", "2026-05-30", "2026-06-02"),
        ("%Y-%m-%d", "en", "2026-05-03 - 2026-05-05", "2026-05-03", "2026-05-05"),
        ("%Y年%m月%d日", "ja", "2026年5月3日～5日", "2026-05-03", "2026-05-05"),
        ("%d/%m/%Y", "en", "3/5/2026", "2026-05-03", ""),
    ],
)
def test_a_day_takes_from_its_neighbour_what_it_leaves_out(formats: str, locale: str, text: str, start: str, end: str) -> None:
    assert span(formats, text, locale=locale) == (start, end)


@pytest.mark.parametrize(
    ("formats", "text", "told"),
    [
        ("%d %b %Y", "28 Dec - 2 Jan 2027", "before it begins on 2027-12-28: write both years"),
        ("%d %B %Y", "May 2026", "the day of the month is missing"),
        ("%d %B %Y", "Ongoing", "says that there is no date yet"),
        ("%d %B %Y", "Permanent", "with on_error or a skip rule"),
        ("%d %B %Y", "Wydarzenie stałe", "says that there is no date yet"),
        ("%d%m%Y", "11-12052026", "it can be read as more than one range"),
        ("%d %B %Y", "2026", "the day of the month is missing"),
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
        ("2026", "%d %B", "3 May", "2026-05-03"),
        ("2026-09-01", "%d %B", "1 September", "2026-09-01"),
        ("2026-09-01", "%d %B", "31 August", "2027-08-31"),
        ("2026-09-01", "%a %d %b", "Fri 5 Feb", "2027-02-05"),
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


def test_a_format_without_a_year_needs_one() -> None:
    with pytest.raises(ValidationError, match="does not give a whole date"):
        Date(date="%d %B")


def test_a_range_without_years_may_cross_the_new_year_of_its_season() -> None:
    assert span("%d %B", "28 December - 2 January", year="2026-09-01") == ("2026-12-28", "2027-01-02")
