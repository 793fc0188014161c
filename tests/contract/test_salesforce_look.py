"""What `check --live` can say of an org before anything is read from it."""

from __future__ import annotations

from typing import Any

from lookalikes.salesforce_reader import Reader, event, events, org_of, reader_of

from connectors.sources.catalogue import probe_org
from connectors.sources.salesforce.source import OrgProbe
from mappings.spec.source import SalesforceSource


def _look(reader: Reader, columns: set[str], **words: Any) -> OrgProbe:
    spec = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c"} | words)
    return probe_org(spec, frozenset(columns), access=reader.access(), clock=reader.clock.clockwork)


def test_a_look_counts_the_records_and_the_days_requests_and_reads_none() -> None:
    with reader_of(org_of([*events(25), event(26, IsDeleted=True)])) as reader:
        reader.org.used = 100
        told = str(_look(reader, {"Name"}))
        assert told == (
            "Event__c: 2 columns, 25 records, read in pages by about 1 requests; the org has 14898 of its 15000 requests of the"
            " day left, 750 of which we leave to others (`stop_at`)"
        )
        assert reader.queries == ["SELECT COUNT() FROM Event__c"]
        assert reader.org.jobs == {}


def test_a_look_tells_of_many_records_that_they_come_in_bulk_and_when_the_day_is_too_short() -> None:
    with reader_of(org_of(events(25))) as reader:
        assert "read in bulk by about 7 requests" in str(_look(reader, {"Name"}, bulk_above=20))
        reader.org.used = 14_300
        assert not _look(reader, {"Name"}).is_enough
        assert _look(reader, {"Name"}, stop_at="off").is_enough


def test_a_look_leaves_columns_to_the_cells_and_tables_that_they_come_from() -> None:
    org = org_of(events(2), children={"Sessions__r": ("Event__c", "Name")})
    with reader_of(org) as reader:
        words = {"children": {"Sessions__r": ["Name"]}, "json_columns": ["Sessions__r"]}
        assert _look(reader, {"Name", "Sessions__r[0].Name"}, **words).columns == 3
