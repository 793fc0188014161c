from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sources.formats.records import Number
from connectors.sources.salesforce.query import convert_for, long_id


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("00Dx0000000BV7z", "00Dx0000000BV7zEAG"),
        ("701E0000000JuFH", "701E0000000JuFHIA0"),
        ("001000000000001", "001000000000001AAA"),
        ("ABCDEFGHIJKLMNO", "ABCDEFGHIJKLMNO555"),
    ],
)
def test_an_id_of_15_characters_gets_the_three_that_tell_its_capitals(short: str, long: str) -> None:
    assert long_id(short) == long
    assert long_id(long) == long


@given(st.text("abcXYZ019", min_size=15, max_size=15), st.text("abcXYZ019", min_size=15, max_size=15))
def test_ids_that_differ_in_their_case_only_differ_in_their_long_forms_whatever_the_case(one: str, other: str) -> None:
    assert (long_id(one).casefold() == long_id(other).casefold()) == (one == other)


@pytest.mark.parametrize("text", ["", "001", "not an id at all", "001-00000000001", "００１０００００００００００１"])
def test_what_is_no_id_stays_as_it_is(text: str) -> None:
    assert convert_for("reference")(text) == text


@pytest.mark.parametrize(
    ("kind", "sent", "cell"),
    [
        ("datetime", "2026-05-03T17:30:00.000+0000", "2026-05-03T17:30:00Z"),
        ("datetime", "2026-05-03T17:30:00.000Z", "2026-05-03T17:30:00Z"),
        ("datetime", "2026-05-03T17:30:00.250+00:00", "2026-05-03T17:30:00.250Z"),
        ("date", "2026-05-03", "2026-05-03"),
        ("time", "19:30:00.000Z", "19:30:00"),
        ("time", "19:30:00.500Z", "19:30:00.500"),
        ("currency", Number("12.50"), "12.50"),
        ("currency", "12.50", "12.50"),
        ("double", Number("300.0"), "300"),
        ("double", "1.25E7", "12500000"),
        ("double", Number("-1.0E-5"), "-0.000010"),
        ("double", Number("0.1234567890123456789"), "0.1234567890123456789"),
        ("int", 12345678901234567890, "12345678901234567890"),
        ("percent", "", ""),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("boolean", "true", "true"),
        ("multipicklist", "Music;Open air", "Music;Open air"),
        ("string", "2026-05-03T17:30:00.000+0000", "2026-05-03T17:30:00.000+0000"),
        ("string", "1.0E7", "1.0E7"),
        ("string", None, ""),
        ("id", None, ""),
        ("datetime", None, ""),
        ("", "2026-05-03T17:30:00.000+0000", "2026-05-03T17:30:00Z"),
        ("", Number("7.0"), "7"),
        ("", 7, "7"),
        ("", True, "true"),
        ("", {"attributes": {"type": "X"}, "city": "Lyon", "at": Number("4.50")}, '{"city": "Lyon", "at": "4.50"}'),
    ],
)
def test_a_value_becomes_the_cell_of_its_fields_type(kind: str, sent: object, cell: str) -> None:
    assert convert_for(kind)(sent) == cell
