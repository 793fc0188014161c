from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mappings.reasons import Refusal
from mappings.steps.catalogue import AnyStep
from mappings.steps.dates import compile_format, read_datetime
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
        ("%d/%m/%Y", "en", "29/02/2025", None),
        ("%Y-%j", "en", "2025-366", None),
        ("%A %d/%m/%Y", "en", "Monday 01/05/2026", None),
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
        ("%Hh", "18h", "18:00:00"),
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
    assert refused.value.hint == "midnight is 00:00 of the day that begins"


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
    assert read_datetime(compile_format(spelling), text) == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above


@given(st.text(max_size=20), st.sampled_from(FORMATS))
def test_no_text_is_read_that_python_would_not_read(text: str, spelling: str) -> None:
    found = read_datetime(compile_format(spelling), text)
    assert found is None or found == datetime.strptime(text, spelling)  # noqa: DTZ007 - as above
