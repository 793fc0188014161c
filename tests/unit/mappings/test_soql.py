from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError
from unit.mappings.conftest import cases

from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource

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
EMPTY ~ DELETE FROM Event__c ~ SELECT Id FROM A; SELECT Id FROM B ~ SELECT Id FROM A SELECT Id FROM B => only one SELECT
SELECT FROM Event__c ~ SELECT Id => lacks its columns
SELECT Id, FROM Event__c => missing between two commas
SELECT Id FROM Event__c FOR UPDATE => marks or locks
SELECT Id FROM Event__c WHERE Name = 'x ~ SELECT Id FROM Event__c WHERE (Name = 'x' ~ LONG => never closed
SELECT Id) FROM Event__c => never opened
SELECT FIELDS(ALL) FROM Event__c LIMIT 200 ~ SELECT TYPEOF What WHEN Account THEN Phone END FROM Event => are not known before
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


def test_how_often_everything_is_read_is_known_of_incremental_sources_only() -> None:
    plain = SalesforceSource(kind="salesforce", object="Event__c")
    changing = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c", "incremental": {"full_every": "6h"}})
    assert plain.full_every is None
    assert str(changing.full_every) == "6:00:00"
    assert plain.place == "Event__c"
