from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource


@pytest.mark.parametrize(
    ("soql", "columns", "is_plain"),
    [
        ("SELECT Id, Venue__r.City__c FROM Event__c", ("Id", "Venue__r.City__c"), True),
        ("select id from Event__c where Name = 'a, (b) FROM c' order by Name", ("id",), True),
        ("SELECT e.Id, e.Name FROM Event__c e WHERE e.Name != null", ("Id", "Name"), True),
        ("SELECT Id, (SELECT Name, Fee__c FROM Sessions__r WHERE Fee__c > 1) FROM Event__c", ("Id", "Sessions__r"), False),
        ("SELECT toLabel(Stage__c), FORMAT(Fee__c) Fee FROM Event__c", ("Stage__c", "Fee"), False),
        ("SELECT City__c, COUNT(Id), MAX(Fee__c) top FROM Event__c GROUP BY City__c", ("City__c", "expr0", "top"), False),
        ("SELECT Id FROM Event__c LIMIT 5", ("Id",), False),
    ],
)  # fmt: skip
def test_a_query_tells_its_columns_and_whether_its_rows_can_be_counted(
    soql: str, columns: tuple[str, ...], is_plain: bool
) -> None:
    query = parse_query(f"  {soql}\n")
    assert (query.columns, query.is_plain, query.text) == (columns, is_plain, soql)


def test_a_plain_query_is_counted_without_its_columns_and_order() -> None:
    soql = "SELECT Id FROM Event__c WHERE Name = 'order by' ORDER BY Name DESC"
    assert parse_query(soql).counting == "SELECT COUNT() FROM Event__c WHERE Name = 'order by'"


REFUSED = {
    "only a query that reads": (
        *("", "DELETE FROM Event__c", "SELECT Id FROM A; SELECT Id FROM B", "SELECT Id FROM A SELECT Id FROM B"),
    ),
    "lacks its columns": ("SELECT FROM Event__c", "SELECT Id"),
    "missing between two commas": ("SELECT Id, FROM Event__c",),
    "leaves marks or locks": ("SELECT Id FROM Event__c FOR UPDATE",),
    "never closed": ("SELECT Id FROM Event__c WHERE Name = 'x", "SELECT Id FROM Event__c WHERE (Name = 'x'"),
    "never opened": ("SELECT Id) FROM Event__c",),
    "cannot be told": ("SELECT FIELDS(ALL) FROM Event__c LIMIT 200", "SELECT TYPEOF What WHEN Account THEN Phone END FROM Event"),
    "one name": ("SELECT Id, id FROM Event__c",),
    "several objects": ("SELECT Id FROM Event__c, Other__c",),
    "not a column": ("SELECT Id a b FROM Event__c",),
    "lacks FROM": ("SELECT (SELECT Name) FROM Event__c",),
}


@pytest.mark.parametrize(("said", "soql"), [(said, one) for said, soql in REFUSED.items() for one in soql])
def test_what_is_not_one_query_that_reads_is_refused(said: str, soql: str) -> None:
    with pytest.raises(PydanticCustomError, match=said):
        parse_query(soql)


def test_a_long_text_without_end_is_refused_at_once() -> None:
    with pytest.raises(PydanticCustomError, match="never closed"):
        parse_query("SELECT Id FROM Event__c WHERE Name = '" + "\\'" * 50_000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "names an object or a query"),
        ({"object": "Event__c", "query": "SELECT Id FROM Event__c"}, "names an object or a query"),
        ({"query": "SELECT Id FROM Event__c", "where": {"field": "Name", "value": "x"}}, "where cannot stand beside a query"),
        ({"query": "SELECT Id FROM Event__c", "incremental": {}}, "incremental cannot stand beside a query"),
        ({"object": "Event__c", "api": "bulk", "children": {"Sessions__r": ["Name"]}}, "cannot be read in bulk"),
        ({"query": "SELECT COUNT(Id) FROM Event__c", "api": "bulk"}, "cannot be read in bulk"),
        ({"object": "Event__c; DROP"}, "is not an API name"),
        ({"object": "Event__c", "fields": ["Name, (SELECT"]}, "is not a field"),
        ({"object": "Event__c", "where": {"field": "Name"}}, "= needs a value"),
        ({"object": "Event__c", "where": {"field": "Name", "op": "missing", "value": "x"}}, "compares with nothing"),
        ({"object": "Event__c", "where": {"field": "Name", "value": ["x", "y"]}}, "compares with one value"),
        ({"object": "Event__c", "where": {"field": "Name", "op": "inclodes", "value": "x"}}, "is not a comparison"),
        ({"object": "Event__c", "incremental": {"overlap": "-5m"}}, "without the minus|how far to go back"),
        ({"object": "Event__c", "incremental": {"full_every": "0s"}}, "longer than nothing"),
    ],
)
def test_a_source_that_contradicts_itself_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SalesforceSource.model_validate({"kind": "salesforce"} | words)


def test_how_often_everything_is_read_is_known_of_incremental_sources_only() -> None:
    plain = SalesforceSource(kind="salesforce", object="Event__c")
    changing = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c", "incremental": {"full_every": "6h"}})
    assert plain.full_every is None
    assert str(changing.full_every) == "6:00:00"
    assert plain.place == "Event__c"
