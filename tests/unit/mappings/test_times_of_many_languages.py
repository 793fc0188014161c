from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mappings.compiler.mapper import RowMapper
from mappings.outcome import MappedRow, SourceRow
from mappings.reasons import Refusal
from mappings.steps.dates import Date, Datetime, Time


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


def test_the_first_of_several_dates_is_still_a_date(mapper: Callable[..., RowMapper], row: Callable[..., SourceRow]) -> None:
    days = '{from: DAYS, do: [{split: ";"}, {date: "%Y-%m-%d", on_error: omit}, first]}'
    feed = mapper(event=f'startAt: {{at: {{day: {days}, zone: Europe/Lisbon, all_day: "00:00"}}}}')
    event = feed(row(DAYS="TBA; 2026-05-08; 2026-05-15"))
    assert isinstance(event, MappedRow)
    assert b'"startAt":"2026-05-08T00:00:00+01:00"' in event.body
