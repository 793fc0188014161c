"""Days, clocks, ranges and lists of days as people write them, stamps as machines do, and how zones make moments of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.mappings.conftest import Mapper, Row, cases, check_case, event_of, outcome_of, rejected, said, step

from mappings.errors import MappingFileError
from mappings.outcome import MappedRow
from mappings.reasons import Refusal
from mappings.steps.formats import compile_format, read_format
from mappings.steps.zones import localiser
from mappings.zones import find_zone, zone_names

CLOCKS = cases("""
{clock: any} | 00:00 ~ 12am => 00:00:00 | 7:05 => 07:05:00 | 9h05min => 09:05:00 | 12 pm ~ noon ~ Midi ~ meio-dia => 12:00:00
{clock: any} | 14h30 ~ 14H30 ~ 14 h 30 => 14:30:00 | 18h ~ 18 h ~ godz. 18 => 18:00:00 | 20.15 uur => 20:15:00
{clock: any} | 7pm ~ 7 PM ~ 7.00pm ~ 19 Uhr ~ um 19 Uhr ~ kl. 19 ~ klo 19 ~ a las 19:00 ~ at 7pm => 19:00:00 | 0:30 am => ! not 0
{clock: any} | 19:30 ~ 19.30 ~ 7:30 p.m. ~ 19.30 Uhr ~ 19 Uhr 30 ~ kl 19.30 ~ \u00a019:30\u00a0 => 19:30:00 | 19:30:15 => 19:30:15
{clock: any} | 19:30h ~ 19時30分 ~ 19시 30분 => 19:30:00 | às 21h ~ ore 21 => 21:00:00 | 25:00 => ! hours go from 0 to 23
{clock: any} | 20:00 AM => ! AM and PM follow an hour from 1 to 12, not 20 | 19:60 => ! minutes and seconds from 0 to 59
{clock: any} | 24:00 ~ midnight => ! midnight is 00:00 of the day that begins | TBA => ! write it like
{clock: any} | 19 ~ 1930 ~ 7 ~ 19:3 ~ evening ~ 19:00 - 20:00 ~ EMPTY ~ 19:00 (doors 18:30) => ! write it like
{clock: any} | 오후 7:30 ~ 오후 7시 30분 ~ 下午7:30 ~ 下午 7點30分 ~ 午後7時30分 => 19:30:00
{clock: any} | PM 7:30 => 19:30:00 | 오전 10:30 ~ 上午10:30 => 10:30:00
{clock: any} | 오후 19:30 => ! AM and PM follow an hour from 1 to 12 | 오후 7:30 pm => ! write it like
{clock: any} | 8:00~ ~ 8:00 ～ ~ 8:00 – => 08:00:00
{clock: any} | １９：３０ ~ 19\u200b:\u00ad3\u20600\ufe0f ~ \u202d19:30\u202c => 19:30:00
{clock: any} | 7:30\u202fPM ~ 7:30\u2009\u2066p.m.\u2069 ~ ١٩:٣٠ => 19:30:00
{clock: any} | 12/30/1899 19:30:00 ~ 1899-12-30 19:30:00 ~ 1899-12-30T19:30:00 ~ 30.12.1899 7:30 PM ~ 1/0/1900 19:30 => 19:30:00
{clock: any} | 1970-01-01 19:30:00 ~ 2000-01-01T19:30:00 ~ 0001-01-01T19:30:00 => 19:30:00
{clock: any} | 午前0時 => 00:00:00 | 午後0時30分 => 12:30:00 | from 7 ~ od 19 => ! write it like
{clock: any} | od 19:00 ~ from 7pm ~ à partir de 19h ~ a partir das 19h ~ desde las 19:00 ~ 19.00 horas ~ 19:00 hs. => 19:00:00
{clock: any} | 19:00 - open end ~ ab 19 Uhr – open end ~ 19.00 น. => 19:00:00
{clock: any} | 1899-12-30T19:30:00Z ~ 5/3/2027 19:30:00 ~ 12/30/1899 => ! write it like
{time: "%H:%M:%S"} | 12/30/1899 19:30:00 ~ 1900-01-01 19:30:00 => 19:30:00
{time: "%I:%M %p", locale: es} | 7:30 p.\u00a0m. ~ 7:30 p. m. => 19:30:00
{clock: any, day_end: next_day} | 24:00 ~ 24h ~ 24.00 Uhr ~ midnight ~ Mitternacht ~ meia-noite => 24:00:00
{clock: am_pm} | 19:30 ~ 7:30pm => 19:30:00 | 7:30 ~ 12:00 ~ kl. 9 => ! AM or PM
{time: "%I:%M %p"} | 12:30 AM => 00:30:00 | 12:30 pm => 12:30:00
{time: "%I %p"} | 7 p.m. => 19:00:00
{time: "%I%p"} | 7 pm => ! write it like
{time: "%H:%M"} | noon ~ 7.00 => ! write it like | 24:00 => ! midnight is 00:00 of the day that begins: write that, with its date
{time: ["%H.%M", "%H:%M:%S"], day_end: next_day} | 24:00:00 => 24:00:00 | 24:30 ~ 24:00:01 => ! write it like
{time: "%p %I시 %M분", locale: ko} | 오후 7시 30분 => 19:30:00
{time: "%p %I시", locale: ko} | 오전 12시 => 00:00:00 | TBA => ! "오후 07시"
{time: "%p%I:%M", locale: zh} | 下午7:30 => 19:30:00
{time: "%p%I時%M分", locale: ja} | 午後7時30分 => 19:30:00
{time: "%I:%M %p", locale: ko} | 7:30 PM => 19:30:00
{clock_range: WHICH, day_end: next_day} | 7-9pm ~ kl. 19-21 ~ das 19h às 21h ~ de 19h a 21h => 19:00:00 to 21:00:00
{clock_range: WHICH, day_end: next_day} | von 19 bis 21 Uhr => 19:00:00 to 21:00:00 | 11am-1pm => 11:00:00 to 13:00:00
{clock_range: WHICH, day_end: next_day} | 12-2pm => 12:00:00 to 14:00:00 | 19:00-20:00 => 19:00:00 to 20:00:00
{clock_range: WHICH, day_end: next_day} | 19h–20h30 => 19:00:00 to 20:30:00 | 22:00 - 02:00 => 22:00:00 to 02:00:00
{clock_range: WHICH, day_end: next_day} | 10am - noon => 10:00:00 to 12:00:00 | 7 to 9.30 pm => 19:00:00 to 21:30:00
{clock_range: WHICH, day_end: next_day} | 19:10 => 19:10:00 to nothing | 7pm-midnight => 19:00:00 to 24:00:00
{clock_range: WHICH, day_end: next_day} | 10〜17時 => 10:00:00 to 17:00:00
{clock_range: WHICH, day_end: next_day} | 19:00- ~ 19:00~ => 19:00:00 to nothing
{clock_range: WHICH, day_end: next_day} | 19:00 ∼ 21:00 ~ １９：００～２１：００ => 19:00:00 to 21:00:00
{clock_range: WHICH, day_end: next_day} | 오후 2~4시 ~ 下午2:00-4:00 => 14:00:00 to 16:00:00
{clock_range: WHICH, day_end: next_day} | 오전 11시~1시 => ! does not say AM or PM
{clock_range: WHICH, day_end: next_day} | 11-1pm ~ 8-midnight ~ 7pm-9 => ! does not say AM or PM
{clock_range: WHICH, day_end: next_day} | 8-noon => ! one of the two does not say AM or PM: write it like 11am-1pm
{clock_range: WHICH, day_end: next_day} | 7-9 ~ 19:00-20:00-21:00 ~ ~21:00 ~ from 7 ~ TBA - 9pm => ! write it like
""")
STAMPS = cases("""
{iso: moment} | 2026-07-01T18:00:00+01:00 ~ 2026-07-01 18:00:00+01 ~ 2026-07-01T18:00:00+0100 => 2026-07-01T18:00:00+01:00
{iso: moment} | 2026-07-01 18:00 +01:00 ~ 20260701T180000+0100 ~ 2026-07-01T18+01 => 2026-07-01T18:00:00+01:00
{iso: moment} | 2026-07-01T18:00:00.000000000+01:00 ~ 2026-07-01T18:00:00,0+01:00 => 2026-07-01T18:00:00+01:00
{iso: moment} | 2026-07-01T17:00:00Z ~ 2026-07-01t17:00:00z ~ 2026-07-01T17:00 UTC => 2026-07-01T17:00:00+00:00
{iso: moment} | 2026-07-01T12:00:00−05:00 => 2026-07-01T12:00:00-05:00 | 2026-07-01T18:00:00 => ! it has no offset
{iso: moment} | 2026-07-01T18:00:00+24:00 ~ 2026-07-01T18:00:00+99:00 => ! write it like
{iso: moment} | 0026-07-01T18:00:00Z => ! from 1900 to 9999 | 2026-07-01T18.5Z => ! follows seconds only
{iso: moment} | 2026-07-01T18:00:60Z => ! hours go from 0 to 23 | 2026-02-29T18:00:00Z => ! there is no day 29 in month 2 of 2026
{iso: moment} | 2026-07-01T24:00:00Z => ! midnight is 00:00 of the day that begins
{iso: moment, day_end: next_day} | 2026-12-31T24:00:00Z => 2027-01-01T00:00:00+00:00
{iso: wall} | 2026-07-01T18:00:00Z => ! it carries an offset
{iso: wall, day_end: next_day} | 9999-12-31T24:00 => ! 9999
{iso: time} | 19 => 19:00:00 | 7pm => ! write it like
{iso: time, day_end: next_day} | 24:00 => 24:00:00
{iso: date} | 2026-07-01T18:00:00 => ! write it like | TBC => ! with on_error or a skip rule
{iso: date} | 2027-W53-1 ~ 2026-366 ~ 2026000 => ! write it like "2026-12-31"
{epoch: s} | 1782928800000 => ! this number of seconds after 1970 is not a date from 1973 to 9999: write it like 1782928800
{epoch: s} | -1 => ! is not a date from 1973 | 1.78E+09 => ! write it like
{epoch: ms} | 1782928800 => ! this number of milliseconds after 1970 | 99999999999999999999 => ! write it like
{serial: 1900} | 1 => 1900-01-01T00:00:00 | 59 => 1900-02-28T00:00:00 | 61 => 1900-03-01T00:00:00 | 2958465 => 9999-12-31T00:00:00
{serial: 1900} | 46204,770833333 => 2026-07-01T18:30:00 | 46204.999999 => 2026-07-02T00:00:00 | 0.5 => ! a part of a day is a time
{serial: 1900} | 60.5 => ! 29 February 1900, which did not exist | 2026-07-01 => ! write it like
{serial: 1900} | 2958466 ~ 99999999999999999999 => ! a day up to 9999-12-31
{serial: 1904} | 0 => 1904-01-01T00:00:00 | 44742.5 => 2026-07-01T12:00:00 | -1 => ! days are counted from 0
{serial: time} | 1 ~ -0.5 => ! a part of one day
""")
DAYS = cases("""
{date: "%Y-%m-%d"} | \u00a02026-07-01\u00a0 => 2026-07-01 | 2026-W53-1 => ! write it like | 1899-12-31 => ! from 1900
{date: "%d.%m.%y"} | 1.7.26 => 2026-07-01 | 1.7.69 => 1969-07-01
{date: "%Y-%j"} | 2024-366 => 2024-12-31 | 2025-366 => ! not_a_date
{date: "%d/%m/%Y"} | 29/02/2024 => 2024-02-29 | 01/07/0026 ~ 01/05/2026 extra ~ 13/13/2026 => ! not_a_date
{date: "%d %B %Y"} | 1 July 0026 => ! not_a_date
{date: "%d %B %Y", locale: pl} | 3 maja 2026 ~ 3 MAJ 2026 => 2026-05-03
{date: "%d. %b %Y", locale: de} | 3. Okt. 2026 ~ 3. Okt 2026 => 2026-10-03
{date: "%A, %d de %B de %Y", locale: pt} | sexta-feira, 1 de maio de 2026 => 2026-05-01
{date: "%d de %B de %Y", locale: pt} | TBA => ! "31 de março de 2026"
{date: "%a %d %b %Y", locale: de} | TBA => ! "Di. 31 März 2026"
{date: "%d %B %Y", locale: fr} | 1 aou\u0302t 2026 => ! not_a_date | 1 août 2026 => 2026-08-01
{date: "%d %B %Y", locale: tr} | 5 KASIM 2026 ~ 5 kasım 2026 => 2026-11-05 | 5 EKİM 2026 => 2026-10-05
{date: "%Y-%m-%d"} | ２０２６-07-01 ~ \u200e2026\u201107\u201101\u200e ~ 2026-07\ufeff-01 => 2026-07-01
{date: "%Y年%m月%d日"} | ２０２６年７月１日 => 2026-07-01
{dates: "%d/%m/%Y", by: "；"} | 3/5/2026；\u200b10/5/2026 => 2026-05-03 · 2026-05-10
{datetime: "%Y-%m-%dT%H:%M%z"} | TBA => ! "2026-03-31T19:30+01:00"
{date: "%d %B", year: 2026-09-01} | 1 September => 2026-09-01 | 31 August => 2027-08-31
{date: "%d %B", year: 2026-09-01} | 29 February => ! there is no day 29 in month 2 of 2027
{date: ["%d.%m.%Y", "%d.%m."], year: 2026-09-01} | 5.2. => 2027-02-05 | 5.2.2026 => 2026-02-05
{date: "%d %B", year: 2027-09-01} | 29 February => 2028-02-29
{date: "%a %d %b", year: 2026-09-01} | Sat 5 Feb => ! 2027-02-05 is a Friday, and the text says Saturday
{date: "%d %B", year: 2026} | 29 February => ! there is no day 29 in month 2 of 2026
{date: "%d %B", year: 26} | 1 May => ! has no year
{date: "%d %B", year: next} | 1 May => ! has no year
{date: "%d %B", year: 2026-13-01} | 1 May => ! has no year
{date: "%d %B", year: 0026} | 1 May => ! has no year
{date_range: WHICH, formats: "%d %b %Y"} | 28 Dec 2026 – 2 Jan 2027 => 2026-12-28 to 2027-01-02
{date_range: WHICH, formats: "%d %b %Y"} | 28 Dec - 2 Jan 2027 => ! before it begins on 2027-12-28: write both years
{date_range: WHICH, formats: "%d.%m.%Y", locale: de} | 12.-14.06.2026 => 2026-06-12 to 2026-06-14
{date_range: WHICH, formats: "%d.%m.%Y", locale: de} | 12.06. bis 14.07.2026 => 2026-06-12 to 2026-07-14
{date_range: WHICH, formats: "%d. %B %Y", locale: de} | vom 3. bis 5. März 2026 => 2026-03-03 to 2026-03-05
{date_range: WHICH, formats: "%d de %B de %Y", locale: pt} | de 3 a 5 de maio de 2026 => 2026-05-03 to 2026-05-05
{date_range: WHICH, formats: "%d de %B de %Y", locale: es} | del 28 de abril al 2 de mayo de 2026 => 2026-04-28 to 2026-05-02
{date_range: WHICH, formats: "%Y年%m月%d日", locale: ja} | 2026年5月3日～5日 => 2026-05-03 to 2026-05-05
{date_range: WHICH, formats: "%d %B", year: 2026-09-01} | 28 December - 2 January => 2026-12-28 to 2027-01-02
{date_range: WHICH, formats: "%d%m%Y"} | 11-12052026 => ! it can be read as more than one range
{date_range: WHICH, formats: "%d %B %Y"} | Ongoing => ! write it like | Permanent => ! with on_error or a skip rule
{date_range: WHICH, formats: "%d %B %Y"} | May 2026 ~ 3 May - 5 May ~ 31-32 May 2026 ~ 3 or 5 May 2026 => ! write it like
{date_range: WHICH, formats: "%d %B %Y"} | 3-5-7 May 2026 => ! write it like | 30-31 April 2026 => ! there is no day 31 in month 4
{dates: ["%Y-%m-%d", "%d/%m/%Y"]} | 3/5/2026, 10/5/2026;17/5/2026; => 2026-05-03 · 2026-05-10 · 2026-05-17 | EMPTY ~ ; => nothing
{dates: ["%Y-%m-%d", "%d/%m/%Y"]} | 3/5/2026; ?; 17/5/2026 => ! item 2 of 3, "?", is not a date
{dates: ["%Y-%m-%d", "%d/%m/%Y"]} | 3/5/2026; 31/4/2026 => ! "31/4/2026": there is no day 31
{dates: "%d %B %Y", by: [",", " and "]} | 30 April, 3 May 2026 => 2026-04-30 · 2026-05-03 | 3 May 2026, 5 => ! item 2 of 2
{dates: "%B %d, %Y"} | May 3, 2026 => ! has "," within a day
{dates: "%B %d, %Y", by: ";"} | May 3, 2026; May 5, 2026 => 2026-05-03 · 2026-05-05
""")
LENGTHS = cases("""
{duration: any} | 00:45 ~ 0:45 ~ 0:45:00 ~ 45 min ~ 45 Minuten ~ 45' ~ PT45M ~ 0.75 h ~ 45分 ~ 45분 ~ ４５ min => PT45M
{duration: any} | 1:30 ~ 01:30:00 ~ 90 min. ~ 1h30 ~ 1 h 30 min ~ 1h 30m ~ 1 Std. 30 Min. => PT1H30M
{duration: any} | 1,5 Stunden ~ 1.5 hours ~ 5400 s => PT1H30M
{duration: any} | 1 hour and 30 minutes ~ 1 hora y 30 minutos ~ 1 godz. 30 min ~ 1時間30分 ~ 1시간 30분 => PT1H30M
{duration: any} | PT90M ~ PT1.5H => PT1H30M
{duration: any} | P1DT2H ~ 1 day, 2 hours => P1DT2H | 36:00:00 => P1DT12H | 0:00 => PT0S
{duration: any} | 90:00 => ! it may count hours or minutes | 30 min 1 h ~ 1.5 h 30 min ~ 1 h 1 h => ! units go from the largest
{duration: any} | 90 ~ 1:60 ~ P1M ~ P1Y ~ PT ~ P ~ 60-90 min ~ ca. 90 min ~ -30 min ~ 30 m x ~ TBA ~ h => ! write it like
{duration: minutes} | 90 ~ 90 min ~ 1:30 => PT1H30M | 1h => PT1H
{duration: hours} | 1,5 => PT1H30M
""")


@pytest.mark.parametrize(("written", "cell", "becomes"), [*CLOCKS, *STAMPS, *DAYS, *LENGTHS])
def test_a_time_is_read_as_agreed_or_refused_with_what_would_be_accepted(written: str, cell: str, becomes: str) -> None:
    check_case(written, cell, becomes)
    hint = outcome_of(written, cell)
    assert "%" not in hint or hint.startswith("mistake: ")
    for shown in re.findall(r'write it like "([^"]+)"$', hint):
        assert not outcome_of(written, shown).startswith("refused: ")


def test_no_blanks_and_no_length_make_reading_days_slow() -> None:
    assert "write it like" in outcome_of('{date_range: start, formats: "%d %B %Y"}', "3 - 5 May 2026" + " " * 300 + "x")
    assert "at most 1000 days" in outcome_of('{dates: "%d/%m/%Y"}', "3/5/2026;" * 1001)


@given(st.times(), st.sampled_from(["%H:%M", "%H.%M", "%I:%M %p", "%I.%M%p", "%Hh%M", "%H Uhr %M", "kl. %H.%M"]))
def test_what_is_written_in_a_listed_way_is_read_back(clock: time, spelling: str) -> None:
    assert step("clock")(clock.strftime(spelling)) == clock.replace(second=0, microsecond=0)


OFFSETS = st.integers(-15 * 60, 15 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30), timezones=OFFSETS)  # noqa: DTZ001 - hypothesis adds them


@given(MOMENTS, st.sampled_from(["T", " "]), st.sampled_from(["auto", "seconds", "milliseconds", "microseconds"]))
def test_what_python_writes_in_iso_8601_is_read_back(moment: datetime, between: str, precision: str) -> None:
    text = moment.isoformat(between, precision)
    for spelling in (text, text.replace("+00:00", "Z")):
        assert step("{iso: moment}")(spelling) == datetime.fromisoformat(text)


@given(st.text(max_size=30) | st.from_regex(r"\A[0-9TWZ:. +-]{1,30}\Z"), st.sampled_from(["moment", "wall", "date", "time"]))
def test_any_text_is_an_iso_stamp_or_refused(text: str, kind: Any) -> None:
    with suppress(Refusal):
        assert step(f"{{iso: {kind}, day_end: next_day}}")(text) is not None


@given(st.integers(10**8, 253_402_300_799))
def test_an_epoch_is_the_moment_so_long_after_1970(seconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert step("{epoch: s}")(f"{seconds}.0") == step("{epoch: ms}")(str(seconds * 1000)) == moment


@given(st.times())
def test_a_part_of_a_day_is_the_time_that_was_typed(clock: time) -> None:
    typed = clock.replace(microsecond=0)
    part = (typed.hour * 3600 + typed.minute * 60 + typed.second) / 86_400
    assert step("{serial: time}")(f"{part:.15f}") == typed
    assert step("{serial: 1900}")(f"{46204 + part:.10f}").time() == typed


SPELLINGS = "%Y-%m-%d %H:%M:%S|%d/%m/%y %H.%M|%d %B %Y, %I:%M %p|%a %d %b %Y %H:%M|%Y%m%d%H%M%S|%j.%Y %H:%M|%m/%d/%Y %H:%M%z"
FORMATS = st.sampled_from(SPELLINGS.split("|"))


@given(FORMATS, st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)))  # noqa: DTZ001 - wall times
def test_what_python_writes_in_a_format_is_read_as_python_reads_it(spelling: str, moment: datetime) -> None:
    text = moment.strftime(spelling.replace("%z", "+05:30"))
    assert read_format(compile_format(spelling), text) == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above


@given(st.text(max_size=20), FORMATS)
def test_no_text_is_read_that_python_would_not_read(text: str, spelling: str) -> None:
    found = read_format(compile_format(spelling), text)
    assert found is None or found == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above


@given(st.dates(date(1990, 1, 1), date(2060, 1, 1)), st.integers(0, 27), st.sampled_from(["%d %B %Y", "%d.%m.%Y", "%B %d, %Y"]))
def test_a_range_is_read_back_however_much_its_neighbour_shares(first: date, days: int, spelling: str) -> None:
    last = first + timedelta(days=days)
    texts = [f"{first.strftime(spelling)} - {last.strftime(spelling)}"]
    if spelling == "%d %B %Y" and (first.year, first.month) == (last.year, last.month):
        texts.append(f"{first.day}-{last.strftime(spelling)}")
    for text in texts:
        assert outcome_of(f'{{date_range: WHICH, formats: "{spelling}"}}', text) == f"{first} to {last}"


@pytest.mark.parametrize(("zone", "wall"), [("Europe/Paris", "1905-01-01T12:00"), ("Africa/Monrovia", "1960-01-01T12:00")])
def test_a_time_when_a_zone_had_seconds_in_its_offset_is_refused(zone: str, wall: str) -> None:
    place = find_zone(zone)
    assert place is not None
    with pytest.raises(Refusal, match="not_a_date"):
        localiser(place)(datetime.fromisoformat(wall))


@pytest.mark.slow
def test_zones_come_from_the_projects_own_packages_whatever_the_machine_has() -> None:
    """A machine whose own database is missing, whose zone is odd and whose language is another reads the same."""
    code = (
        "from datetime import datetime\n"
        "from mappings.zones import find_zone\n"
        "from mappings.steps.zones import localiser\n"
        "from mappings.steps.dates import Date\n"
        "print(localiser(find_zone('Europe/Lisbon'))(datetime(2025, 7, 1, 18)).isoformat())\n"
        "print(Date(date='%d %B %Y').function()('3 May 2026'))"
    )
    odd = {"PYTHONTZPATH": "", "TZ": "Pacific/Apia", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    shown = subprocess.run([sys.executable, "-c", code], env=os.environ | odd, capture_output=True, text=True, check=True)
    assert shown.stdout == "2025-07-01T18:00:00+01:00\n2026-05-03\n"


def test_every_zone_of_the_database_opens_and_nothing_else_does() -> None:
    assert all(find_zone(name) is not None for name in zone_names())
    for name in ("", "europe/lisbon", "Europe", "../zones", "Europe/../Europe/Lisbon", "/etc/localtime", "EST5", "tzdata.zi"):
        assert find_zone(name) is None


CHANGES = """
gap Europe/Lisbon 2025-03-30T01:30 2025-03-30T00:30+00:00 2025-03-30T02:30+01:00
gap America/New_York 2025-03-09T02:30 2025-03-09T01:30-05:00 2025-03-09T03:30-04:00
gap Australia/Lord_Howe 2025-10-05T02:15 2025-10-05T01:45+10:30 2025-10-05T02:45+11:00
gap America/Sao_Paulo 2018-11-04T00:30 2018-11-03T23:30-03:00 2018-11-04T01:30-02:00
gap Africa/Casablanca 2025-04-06T02:30 2025-04-06T01:30+00:00 2025-04-06T03:30+01:00
gap Asia/Tehran 2022-03-22T00:30 2022-03-21T23:30+03:30 2022-03-22T01:30+04:30
gap Europe/Dublin 2025-03-30T01:30 2025-03-30T00:30+00:00 2025-03-30T02:30+01:00
gap Pacific/Apia 2011-12-30T12:00 2011-12-29T12:00-10:00 2011-12-31T12:00+14:00
gap Antarctica/Troll 2025-03-30T02:00 2025-03-30T00:00+00:00 2025-03-30T04:00+02:00
overlap Europe/Lisbon 2025-10-26T01:30 2025-10-26T01:30+01:00 2025-10-26T01:30+00:00
overlap America/New_York 2025-11-02T01:30 2025-11-02T01:30-04:00 2025-11-02T01:30-05:00
overlap Australia/Lord_Howe 2025-04-06T01:45 2025-04-06T01:45+11:00 2025-04-06T01:45+10:30
overlap America/Sao_Paulo 2019-02-16T23:30 2019-02-16T23:30-02:00 2019-02-16T23:30-03:00
overlap Africa/Casablanca 2025-02-23T02:30 2025-02-23T02:30+01:00 2025-02-23T02:30+00:00
overlap Asia/Tehran 2022-09-21T23:30 2022-09-21T23:30+04:30 2022-09-21T23:30+03:30
overlap Europe/Dublin 2025-10-26T01:30 2025-10-26T01:30+01:00 2025-10-26T01:30+00:00
overlap Antarctica/Troll 2025-10-26T02:00 2025-10-26T02:00+02:00 2025-10-26T02:00+00:00
""".strip().splitlines()


@pytest.mark.parametrize("change", CHANGES)
def test_a_time_that_clocks_skip_or_repeat_is_moved_as_asked_or_refused(change: str) -> None:
    choice, name, wall, *expected = change.split(" ")
    zone, moment = find_zone(name), datetime.fromisoformat(wall)
    assert zone is not None
    found = [localiser(zone, **{choice: way})(moment).isoformat(timespec="minutes") for way in ("earlier", "later")]
    assert found == expected
    with pytest.raises(Refusal):
        localiser(zone, **{choice: "reject"})(moment)


DAY = "{from: DAY, do: [{date: '%Y-%m-%d'}]}"
STARTS = f"let:\n  starts: {{at: {{day: {DAY}, clock: {{from: FROM, do: [clock]}}, zone: Europe/Lisbon}}}}\n"
ENDS = """startAt: $starts
endAt:
  at:
    day: {from: LAST, do: [{date: '%Y-%m-%d'}]}
    clock: {from: TO, do: [{clock: any, day_end: next_day}]}
    zone: Europe/Lisbon
"""
ENDINGS = cases("""
next_day | 07-01 22:00 07-01 02:00 => 2026-07-02T02:00 | 07-01 20:00 07-01 22:00 => 2026-07-01T22:00
next_day | 07-01 20:00 07-01 20:00 => 2026-07-01T20:00 | 07-01 20:00 07-01 24:00 => 2026-07-02T00:00
next_day | 03-28 22:00 03-28 01:30 => endAt no_such_time TO | 07-01 ? 07-01 02:00 => startAt not_a_time FROM
next_day | 07-02 20:00 07-01 19:00 => endAt end_before_start TO
reject | 07-01 22:00 07-01 02:00 => endAt end_before_start TO
nothing | 07-01 22:00 07-01 02:00 => endAt end_before_start LAST
omit | 07-01 22:00 07-01 02:00 => left out
warn | 07-01 22:00 07-01 02:00 => left out endAt end_before_start
draft | 07-01 22:00 07-01 02:00 => left out draft endAt end_before_start
""")


@pytest.mark.parametrize(("before_start", "cells", "expected"), ENDINGS)
def test_an_end_before_the_start_is_the_next_days_or_dropped_where_the_mapping_says_so(
    mapper: Mapper, row: Row, before_start: str, cells: str, expected: str
) -> None:
    more = "" if before_start == "nothing" else f"    start: $starts\n    before_start: {before_start}\n"
    day, start, last, end = cells.split(" ")
    outcome = mapper(top=STARTS, event=ENDS + more)(row(DAY=f"2026-{day}", FROM=start, LAST=f"2026-{last}", TO=end))
    found = [said(outcome)]
    if isinstance(outcome, MappedRow):
        event = event_of(outcome)
        found = [event.get("endAt", "left out").removesuffix(":00+01:00"), *([event["status"]] if "status" in event else [])]
        found += [f"{warning.field} {warning.code}" for warning in outcome.warnings]
    assert " ".join(found) == expected


WHOLE_DAYS = cases("""
all_day: "00:00" | Africa/Cairo 2025-04-25 => 2025-04-25T01:00:00+03:00 | Africa/Cairo 2025-04-26 => 2025-04-26T00:00:00+03:00
all_day: "00:00" | America/Sao_Paulo 2018-11-04 => 2018-11-04T01:00:00-02:00
all_day: "00:00" | Pacific/Apia 2011-12-30 => 2011-12-31T00:00:00+14:00
clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00' | UTC 2026-07-01 24:00 => 02T00
clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00' | UTC 2026-07-01 00:00 => 01T09
clock: "19:30" | Europe/Lisbon 2026-07-01 => 2026-07-01T19:30:00+01:00
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 => 01T19:30
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 TBA => 01T20:00
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 18h => 01T18:00
""")


@pytest.mark.parametrize(("more", "cells", "expected"), WHOLE_DAYS)
def test_a_day_without_a_clock_begins_when_the_mapping_says_or_when_the_clocks_show_a_time_again(
    mapper: Mapper, row: Row, more: str, cells: str, expected: str
) -> None:
    zone, day, clock = f"{cells} ".split(" ")[:3]
    feed = mapper(event=f"startAt: {{at: {{day: {DAY}, zone: $zone, {more}}}}}", top="let: {zone: {from: ZONE}}\n")
    assert expected in said(feed(row(DAY=day, ZONE=zone, FROM=clock)), "startAt")


WALL = "{day: {from: DAY, do: [{date: '%d/%m/%Y'}]}, clock: {from: HOUR, do: [{time: '%H:%M'}]MORE}, zone: Europe/Lisbon}"
BAD = cases("""
31/04/2026 | 24:00 => startAt not_a_time HOUR; startAt not_a_date DAY | 20:00 => startAt not_a_date DAY
30/04/2026 | 24:00 => startAt not_a_time HOUR
29/03/2026 | 01:30 => startAt no_such_time HOUR
EMPTY | EMPTY => startAt required DAY
""")


@pytest.mark.parametrize(("day", "hour", "reported"), BAD)
def test_a_bad_day_and_a_bad_clock_are_reported_at_once(mapper: Mapper, row: Row, day: str, hour: str, reported: str) -> None:
    cells = {"DAY": day, "HOUR": hour}
    strict = WALL.replace("MORE}", ", on_empty: omit}").removesuffix("}") + ', all_day: "00:00"}'
    assert said(mapper(event=f"startAt: {{at: {strict}}}")(row(**cells))) == reported
    choices = f"[{{when: {{column: DAY, is: present}}, then: {{at: {WALL.replace('MORE', '')}}}}}]"
    lenient = mapper(event=f"endAt: {{choose: {choices}, on_error: omit}}")
    assert isinstance(lenient(row(**cells)), MappedRow)


FRAB = Path(__file__).parents[2] / "field_cases" / "frab-rooms.json"
"""A schedule as frab and pretalx export it."""
LASTING = """
startAt: $starts
endAt: {plus: {moment: $starts, length: {from: duration, do: [duration]}}, on_empty: omit}
"""
LASTS = "let: {starts: {from: date, do: [{iso: moment}]}}\n"


def test_an_event_ends_when_the_length_in_its_row_has_passed(mapper: Mapper, row: Row) -> None:
    feed = mapper(event=LASTING, top=LASTS)
    days = json.loads(FRAB.read_text("utf-8"))["schedule"]["conference"]["days"]
    talks = [talk for day in days for talks in day["rooms"].values() for talk in talks]
    assert [said(feed(row(date=talk["date"], duration=talk["duration"])), "endAt") for talk in talks] == [
        "2027-05-03T10:30:00+02:00", "2027-05-03T12:00:00+02:00", "2027-05-04T10:45:00+02:00"
    ]  # fmt: skip
    assert said(feed(row(date="2027-05-03T23:30:00+02:00", duration="PT1H30M")), "endAt") == "2027-05-04T01:00:00+02:00"
    assert said(feed(row(date="2027-05-03T10:00:00+02:00", duration="")), "endAt") == ""
    assert said(feed(row(date="2027-05-03T10:00:00+02:00", duration="all evening"))) == "endAt not_a_duration duration"
    assert said(feed(row(date="soon", duration="0:45"))) == "startAt not_a_date date"
    assert said(feed(row(date="9999-12-31T23:30:00+00:00", duration="2 h"))) == "endAt not_a_date duration"


@pytest.mark.parametrize(
    ("end", "mistake"),
    [
        ("{plus: {moment: $starts, length: {from: duration}}}", "a text does not fit here"),
        (
            "{plus: {moment: {from: date, do: [{iso: date}]}, length: {from: duration, do: [duration]}}}",
            "a date does not fit here",
        ),
        ("{from: duration, do: [duration]}", "length of time"),
    ],
)
def test_what_is_no_moment_or_no_length_cannot_make_an_end(end: str, mistake: str, mapper: Mapper) -> None:
    with pytest.raises(MappingFileError, match=mistake):
        mapper(event=f"startAt: $starts\nendAt: {end}\n", top=LASTS)


INSTANT = """
startAt: {in_zone: {moment: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}, zone: $zone}}
timezone: $zone
"""
ZONE = "let: {zone: {from: ZONE, do: [zone]}}\n"


def test_an_instant_is_shown_by_the_clocks_of_the_rows_own_zone(mapper: Mapper, row: Row) -> None:
    feed = mapper(event=INSTANT, top=ZONE)
    outcome = feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcutta"))
    assert said(outcome, "startAt", "timezone") == "2026-07-01T23:30:00+05:30 | Asia/Kolkata"
    (reason,) = rejected(feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcuta"))).reasons
    assert (reason.code, reason.column, reason.found, reason.step) == ("not_a_zone", "ZONE", "Asia/Calcuta", "zone")
    assert reason.hint == 'did you mean "Asia/Kolkata"?'
