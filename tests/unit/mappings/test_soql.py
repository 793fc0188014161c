from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_core import PydanticCustomError
from unit.mappings.conftest import EVENT, HEAD, cases

from mappings.errors import MappingFileError
from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource
from mappings.yaml.loader import parse_feed

QUERIES = cases("""
plain | SELECT Id, Venue__r.City__c FROM Event__c => Id, Venue__r.City__c
plain | select id from Event__c where Name = 'a, (b) FROM c' order by Name => id
plain | SELECT e.Id, e.Name FROM Event__c e WHERE e.Name != null => Id, Name
other | SELECT Id, (SELECT Name, Fee__c FROM Sessions__r WHERE Fee__c > 1) FROM Event__c => Id, Sessions__r
other | SELECT toLabel(Stage__c), FORMAT(Fee__c) Fee FROM Event__c => Stage__c, Fee | SELECT Id FROM Event__c LIMIT 5 => Id
other | SELECT City__c, COUNT(Id), MAX(Fee__c) top FROM Event__c GROUP BY City__c => City__c, expr0, top
""")


@pytest.mark.parametrize(("kind", "soql", "columns"), QUERIES)
def test_a_query_tells_its_columns_and_whether_its_rows_can_be_counted(kind: str, soql: str, columns: str) -> None:
    query = parse_query(f"  {soql}\n")
    assert (", ".join(query.columns), query.is_plain, query.text) == (columns, kind == "plain", soql)


def test_a_plain_query_is_counted_without_its_columns_and_order() -> None:
    soql = "SELECT Id FROM Event__c WHERE Name = 'order by' ORDER BY Name DESC"
    assert parse_query(soql).counting == "SELECT COUNT() FROM Event__c WHERE Name = 'order by'"


REFUSED = """
EMPTY ~ DELETE FROM Event__c ~ SELECT Id FROM A; SELECT Id FROM B ~ SELECT Id FROM A SELECT Id FROM B => only a query that reads
SELECT FROM Event__c ~ SELECT Id => lacks its columns
SELECT Id, FROM Event__c => missing between two commas
SELECT Id FROM Event__c FOR UPDATE => leaves marks or locks
SELECT Id FROM Event__c WHERE Name = 'x ~ SELECT Id FROM Event__c WHERE (Name = 'x' ~ LONG => never closed
SELECT Id) FROM Event__c => never opened
SELECT FIELDS(ALL) FROM Event__c LIMIT 200 ~ SELECT TYPEOF What WHEN Account THEN Phone END FROM Event => cannot be told
SELECT Id, id FROM Event__c => one name
SELECT Id FROM Event__c, Other__c => several objects
SELECT Id a b FROM Event__c => not a column
SELECT (SELECT Name) FROM Event__c => lacks FROM
"""
LONG = "SELECT Id FROM Event__c WHERE Name = '" + "\\'" * 50_000


@pytest.mark.parametrize(("_", "soql", "said"), cases("".join(f"- | {one}\n" for one in REFUSED.strip().split("\n"))))
def test_what_is_not_one_query_that_reads_is_refused_at_once(_: str, soql: str, said: str) -> None:
    with pytest.raises(PydanticCustomError, match=said):
        parse_query(LONG if soql == "LONG" else soql)


CONTRADICTIONS = cases("""
api | api: rest => names an object or a query
api | object: Event__c, query: SELECT Id FROM Event__c => names an object or a query
api | query: SELECT Id FROM E, where: {field: Name, value: x} => where cannot stand beside a query
api | query: SELECT Id FROM E, incremental: {} => incremental cannot stand beside a query
api | object: E, api: bulk, children: {Sessions__r: [Name]} ~ query: SELECT COUNT(Id) FROM E, api: bulk => cannot be read in bulk
api | object: Event__c; DROP => is not an API name | object: Event__c, fields: ["Name, (SELECT"] => is not a field
api | object: E, where: {field: Name} => = needs a value
api | object: E, where: {field: Name, op: missing, value: x} => compares with nothing
api | object: E, where: {field: Name, value: [x, y]} => compares with one value
api | object: E, where: {field: Name, op: inclueds, value: x} => is not a comparison … did you mean "includes"
api | object: E, incremental: {overlapp: 5m} => did you mean "overlap"
api | object: E, incremental: {overlap: -5m} => without the minus
api | object: E, incremental: {full_every: 0s} => longer than nothing
""")


@pytest.mark.parametrize(("words", "problem"), [case[1:] for case in CONTRADICTIONS])
def test_a_source_that_contradicts_itself_is_refused(words: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MappingFileError) as refused:
        parse_feed(HEAD.replace("kind: csv, path: sample.csv", f"kind: salesforce, {words}") + EVENT, tmp_path / "a.yaml")
    assert all(part in str(refused.value) for part in problem.split(" … "))


def test_how_often_everything_is_read_is_known_of_incremental_sources_only() -> None:
    plain = SalesforceSource(kind="salesforce", object="Event__c")
    changing = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c", "incremental": {"full_every": "6h"}})
    assert plain.full_every is None
    assert str(changing.full_every) == "6:00:00"
    assert plain.place == "Event__c"
