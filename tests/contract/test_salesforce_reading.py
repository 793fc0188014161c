"""What a record of Salesforce becomes, by either API, and what is asked to get it; against a server that answers as it does."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lookalikes.salesforce_org import Org, SObject
from lookalikes.salesforce_reader import Reader, event, events, org_of, reader_of, record_id

from connectors.sources.contract import (
    BadSourceError,
    MissingColumnsError,
    RepeatedColumnsError,
    SourceRefusedError,
    SourceUnavailableError,
)
from connectors.sources.rows import NumberText
from connectors.sources.salesforce.org import POLICY
from connectors.sources.salesforce.query import convert_for, long_id
from mappings.errors import ConfigError

FIELDS = {
    "Start__c": "datetime", "Day__c": "date", "Opens__c": "time", "Price__c": "currency", "CurrencyIsoCode": "picklist",
    "Seats__c": "double", "Open__c": "boolean", "Kinds__c": "multipicklist", "Text__c": "textarea", "Address__c": "address",
    "Place__c": "location", "BillingAddress": "address",
}  # fmt: skip
FULL = {
    "Start__c": "2026-05-03T17:30:00.000+0000", "Day__c": "2026-05-03", "Opens__c": "19:00:00.000Z", "Price__c": Decimal("12.5"),
    "CurrencyIsoCode": "EUR", "Seats__c": Decimal(12000000), "Open__c": True, "Kinds__c": "Music;Open air",
    "Text__c": 'One, "two"\r\nthree\n\u2028 2026-05-03T17:30:00.000+0000 \t', "Address__City__s": "Lyon", "BillingCity": "Paris",
    "Place__Latitude__s": Decimal("45.764"),
}  # fmt: skip
PARTS = {"Address__City__s", "Place__Latitude__s", "billingcity"}
COLUMNS = {*FIELDS} - {"Address__c", "Place__c", "BillingAddress"} | PARTS


def _org(**rest: Any) -> Org:
    parents = {"Venue__c": ("Venue__r", "Venue__c"), "OwnerId": ("Owner", "Group,User")}
    children = {"Sessions__r": ("Session__c", "Event__c")}
    records = [event(1, Venue__c="a02000000000001", **FULL), event(2)]
    org = org_of(records, FIELDS, parents=parents, children=children, **rest)
    names = [{"Id": "a02000000000001AAA", "Name": "Grande Salle", "City__c": "Lyon", "Region__c": "a03000000000001AAA"}]
    sessions = [
        {"Id": f"a04{number:012}AAA", "Event__c": record_id(1), "Name": f"S{number}", "Fee__c": Decimal("5.0")}
        for number in range(7, 0, -1)
    ]
    return org.add(
        SObject("Venue__c", {"City__c": "string"}, {"Region__c": ("Region__r", "Region__c")}, records=names),
        SObject("Region__c", records=[{"Id": "a03000000000001AAA", "Name": "Rhône"}]),
        SObject("Session__c", {"Fee__c": "currency"}, {"Event__c": ("Event__r", "Event__c")}, records=sessions),
        SObject("Name"),
    )


@pytest.mark.parametrize("api", ["rest", "bulk"])
def test_a_record_has_the_same_cells_whichever_way_it_comes(api: str) -> None:
    full, bare = reader_of(_org()).read(COLUMNS, api=api).cells
    assert full == {
        "Id": record_id(1),
        "Start__c": "2026-05-03T17:30:00Z", "Day__c": "2026-05-03", "Opens__c": "19:00:00", "Price__c": "12.5",
        "CurrencyIsoCode": "EUR", "Seats__c": "12000000", "Open__c": "true", "Kinds__c": "Music;Open air",
        "Text__c": 'One, "two"\r\nthree\n\u2028 2026-05-03T17:30:00.000+0000 \t', "Address__City__s": "Lyon",
        "billingcity": "Paris", "Place__Latitude__s": "45.764",
    }  # fmt: skip
    assert set(bare.values()) == {"", record_id(2)}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2000])
def test_results_come_packed_and_in_pieces_or_plain_and_at_once(at_once: bool, count: int) -> None:
    org = org_of(events(count))
    org.troubles.sends_at_once = at_once
    assert len(reader_of(org).read({"Name"}, api="bulk").rows) == count


@pytest.mark.parametrize("api", ["rest", "bulk"])
def test_parents_are_columns_and_a_missing_parent_is_empty(api: str) -> None:
    rows = reader_of(_org()).read({"Name", "venue__R.name", "Venue__r.Region__r.Name", "Venue__c", "Owner.Name"}, api=api)
    assert rows.column("venue__R.name") == ["Grande Salle", ""]
    assert rows.column("Venue__r.Region__r.Name") == ["Rhône", ""]
    assert rows.column("Venue__c") == ["a02000000000001AAA", ""], "a reference has 18 characters, even if it was sent with 15"
    assert rows.column("Owner.Name") == ["", ""]


def test_each_row_is_at_the_page_of_its_record() -> None:
    reader = reader_of(_org())
    rows = reader.read({"Name"}).rows
    assert [row.location.place for row in rows] == [f"{reader.server.base_url}/{record_id(number)}" for number in (1, 2)]


def was_in_bulk(reader: Reader) -> bool:
    return any(asked.startswith("job query") for _, asked in reader.org.asked)


@pytest.mark.parametrize(("count", "in_bulk"), [(10_000, False), (10_001, True)])
def test_the_number_of_records_chooses_the_way(count: int, in_bulk: bool) -> None:
    reader = reader_of(org_of(events(count)))
    assert reader.read({"Name"}).column("Name") == [f"Event {number}" for number in range(1, count + 1)]
    assert reader.org.jobs == {}, "no job is left behind"
    assert was_in_bulk(reader) is in_bulk


def test_what_cannot_be_read_in_bulk_is_read_in_pages_and_said_so() -> None:
    org = org_of(events(10_001))
    org.troubles.not_in_bulk = True
    rows = reader_of(org).read({"Name"})
    with pytest.raises(BadSourceError, match="not supported by the Bulk API"):
        reader_of(org).read({"Name"}, api="bulk")
    assert len(rows.rows) == 10_001
    assert "read in pages" in rows.ending.notices[0]


def test_records_that_are_too_many_to_be_counted_are_read_in_bulk() -> None:
    org = org_of(events(30))
    slow = [(400, "QUERY_TIMEOUT", "Your query request was running for too long.")] * POLICY.attempts
    reader, org.troubles.answers = reader_of(org), [*slow]
    assert len(reader.read({"Name"}).rows) == 30
    assert was_in_bulk(reader)
    org.troubles.answers = [*slow]
    with pytest.raises(SourceUnavailableError, match="QUERY_TIMEOUT") as caught:
        reader.read({"Name"}, api="rest")
    assert "api: bulk" in caught.value.hint


def test_an_empty_object_is_a_reading_without_rows_that_has_its_columns() -> None:
    for api in ("auto", "rest", "bulk"):
        read = reader_of(org_of([])).read({"Name"}, api=api)
        assert (read.rows, read.columns, read.is_whole) == ([], ("Name", "Id"), True)


def test_all_fields_that_are_missing_are_told_at_once_with_the_nearest() -> None:
    wanted = {"Nmae", "Venue__r.Cty__c", "BillingAddress.City", "BillingAddress"}
    with pytest.raises(MissingColumnsError) as caught:
        reader_of(_org()).read(wanted, where={"field": "Statrt__c", "value": "x"})
    assert set(caught.value.missing) == wanted | {"Statrt__c"}
    assert caught.value.nearest["Nmae"] == "Name"
    assert caught.value.nearest["Venue__r.Cty__c"] == "Venue__r.City__c"
    assert caught.value.nearest["BillingAddress.City"] == "BillingCity"
    assert "may not see" in caught.value.hint


def test_a_field_that_may_be_absent_is_empty() -> None:
    reader = reader_of(org_of(events(1)))
    assert reader.read({"Name", "Hidden__c"}, optional=["Hidden__c"]).column("Hidden__c") == [""]
    assert reader.read({"TITLE"}, columns={"TITLE": ["Title__c", "name"]}).column("TITLE") == ["Event 1"]


def test_two_fields_for_one_name_stop_the_reading() -> None:
    reader = reader_of(_org())
    for words in ({}, {"query": "SELECT Name, Start__c, Id FROM Event__c"}):
        with pytest.raises(RepeatedColumnsError) as caught:
            reader.read({"Name", "id"}, columns={"Name": ["Title__c"], "id": ["start__c"]}, **words)
        assert caught.value.columns == {"id": ['"Id"', '"Start__c"']}


def test_an_object_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(SourceRefusedError) as caught:
        reader_of(_org()).read({"Name"}, object="Evnet__c")
    assert "Evnet__c" in str(caught.value)
    assert "did you mean Event__c" in caught.value.hint


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_text_is_quoted_so_that_it_is_found_and_nothing_else(text: str) -> None:
    text += "x'\\"
    reader = reader_of(org_of([event(1, Name=text), event(2, Name="other")]))
    assert reader.read({"Name"}, where={"field": "Name", "value": text}).column("Name") == [text]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"field": "Seats__c", "op": ">", "value": "12"}, [2]),
        ({"field": "Open__c", "value": "TRUE"}, [1]),
        ({"field": "Day__c", "op": ">=", "value": "2026-05-04"}, [2]),
        ({"field": "Start__c", "op": "<", "value": "2026-05-03T19:30:01+02:00"}, [1]),
        ({"field": "Name", "op": "LIKE", "value": "Event%"}, [1, 2]),
        ({"field": "Name", "op": "in", "value": ["Event 1", "Event 3"]}, [1]),
        ({"field": "Name", "op": "not in", "value": ["Event 1"]}, [2]),
        ({"field": "Kinds__c", "op": "includes", "value": ["Music;Talk", "Film"]}, [2]),
        ({"field": "Text__c", "op": "missing"}, [1]),
        ([{"field": "Text__c", "op": "present"}, {"field": "Name", "op": "!=", "value": "x"}], [2]),
        ({"field": "Id", "value": record_id(2)[:15]}, [2]),
    ],
)
def test_conditions_are_written_as_their_fields_types_ask(where: Any, found: list[int]) -> None:
    names = ("Seats__c", "Open__c", "Day__c", "Start__c", "Kinds__c")
    one = dict(zip(names, (12, True, "2026-05-03", "2026-05-03T17:30:00.000+0000", "Music"), strict=True))
    two = dict(zip(names, (13, False, "2026-05-04", "2026-05-03T17:31:00.000+0000", "Film"), strict=True))
    read = reader_of(org_of([event(1, **one), event(2, **two, Text__c="x")], FIELDS)).read({"Name"}, where=where)
    assert read.column("Id") == [record_id(number) for number in found]


def test_values_that_do_not_suit_their_fields_are_told_all_at_once() -> None:
    where = [
        {"field": "Open__c", "value": "yes"},
        {"field": "Seats__c", "value": "12,5"},
        {"field": "Day__c", "value": "03.05.2026"},
        {"field": "Start__c", "value": "2026-05-03T17:30:00"},
        {"field": "Day__c", "op": ">", "value": "LAST_N_DAYS:30"},
    ]
    with pytest.raises(ConfigError) as caught:
        reader_of(_org()).read({"Name"}, where=where)
    assert [f"source.where {number}" in str(caught.value) for number in (1, 2, 3, 4, 5)] == [True] * 4 + [False]


def test_a_query_is_asked_as_it_stands_and_its_columns_are_those_it_names() -> None:
    soql = "SELECT Name, Start__c, Venue__r.City__c, (SELECT Name FROM Sessions__r) FROM Event__c WHERE Name = 'Event 1' LIMIT 5"
    reader = reader_of(_org())
    reader.org.troubles.page_rows = 3  # the child rows come in three pages
    read = reader.read({"Name", "venue__r.city__c", "Sessions__r"}, query=soql)
    assert soql in reader.queries
    with pytest.raises(MissingColumnsError, match="the query lacks"):
        reader.read({"Title"}, query=soql)
    assert read.cells[0]["venue__r.city__c"] == "Lyon"
    assert read.cells[0]["Start__c"] == "2026-05-03T17:30:00Z"
    assert [child["Name"] for child in json.loads(read.cells[0]["Sessions__r"])] == [f"S{number}" for number in range(7, 0, -1)]
    assert read.rows[0].location.place == "Event__c (row 1)"


def test_a_plain_query_of_many_records_is_read_in_bulk() -> None:
    reader = reader_of(org_of(events(10_001)))
    read = reader.read(query="SELECT Id, Name FROM Event__c WHERE Name != 'x' ORDER BY Name")
    assert "SELECT COUNT() FROM Event__c WHERE Name != 'x'" in reader.queries
    assert was_in_bulk(reader)
    assert len(read.rows) == 10_001


def test_a_refused_query_tells_what_salesforce_said() -> None:
    with pytest.raises(BadSourceError, match=r"INVALID_FIELD.*No such column 'Nmae' on entity 'Event__c'") as caught:
        reader_of(_org()).read(query="SELECT Nmae FROM Event__c LIMIT 1")
    assert caught.value.hint.startswith("did you mean Name?")


def test_archived_records_are_records_and_deleted_ones_are_not() -> None:
    records = [event(1, IsArchived=True), event(2, IsDeleted=True), event(3)]
    for api in ("rest", "bulk"):
        assert reader_of(org_of(records, archives=True)).read({"Name"}, api=api).column("Name") == ["Event 1", "Event 3"]


@pytest.mark.parametrize("long", ["00Dx0000000BV7zEAG", "701E0000000JuFHIA0", "001000000000001AAA", "ABCDEFGHIJKLMNO555"])
def test_an_id_of_15_characters_gets_the_three_that_tell_its_capitals(long: str) -> None:
    assert long_id(long[:15]) == long_id(long) == long


@given(st.text("abcXYZ019", min_size=15, max_size=15), st.text("abcXYZ019", min_size=15, max_size=15))
def test_ids_that_differ_in_their_case_only_differ_in_their_long_forms_whatever_the_case(one: str, other: str) -> None:
    assert (long_id(one).casefold() == long_id(other).casefold()) == (one == other)


CELLS: dict[str, list[tuple[object, str]]] = {
    "datetime": [
        *((f"2026-05-03T17:30:00.000{zone}", "2026-05-03T17:30:00Z") for zone in ("+0000", "Z")),
        *(("2026-05-03T17:30:00.250+00:00", "2026-05-03T17:30:00.250Z"), (None, "")),
    ],
    "date": [("2026-05-03", "2026-05-03")],
    "time": [("19:30:00.000Z", "19:30:00"), ("19:30:00.500Z", "19:30:00.500")],
    "currency": [(NumberText("12.50"), "12.50"), ("12.50", "12.50")],
    "double": [
        *((NumberText("300.0"), "300"), ("1.25E7", "12500000"), (NumberText("-1.0E-5"), "-0.000010")),
        (NumberText("0.1234567890123456789"), "0.1234567890123456789"),
    ],
    "int": [(12345678901234567890, "12345678901234567890")],
    "percent": [("", "")],
    "boolean": [(True, "true"), (False, "false"), ("true", "true")],
    "multipicklist": [("Music;Open air", "Music;Open air")],
    "string": [("2026-05-03T17:30:00.000+0000", "2026-05-03T17:30:00.000+0000"), ("1.0E7", "1.0E7"), (None, "")],
    "id": [(None, "")],
    "reference": [
        (no_id, no_id) for no_id in ("", "001", "not an id at all", "001-00000000001", "００１０００００００００００１")
    ],
    "": [
        *(("2026-05-03T17:30:00.000+0000", "2026-05-03T17:30:00Z"), (NumberText("7.0"), "7"), (7, "7"), (True, "true")),
        ({"attributes": {"type": "X"}, "city": "Lyon", "at": NumberText("4.50")}, '{"city": "Lyon", "at": "4.50"}'),
    ],
}


@pytest.mark.parametrize("kind", CELLS)
def test_a_value_becomes_the_cell_of_its_fields_type(kind: str) -> None:
    assert [convert_for(kind)(sent) for sent, _ in CELLS[kind]] == [cell for _, cell in CELLS[kind]]
