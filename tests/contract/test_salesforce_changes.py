"""Reading from Salesforce only what changed: nothing is missed, whatever shows late, is deleted, or changes meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lookalikes.salesforce_org import Org, Troubles
from lookalikes.salesforce_reader import Reader, event, events, moment, org_of, reader_of, record_id

from mappings.errors import ConfigError

CHANGES: dict[str, Any] = {"incremental": {"overlap": "10m"}}


def test_a_change_that_shows_late_is_found_within_the_overlap() -> None:
    org = org_of([event(1, minute=1), event(2, minute=30)])
    reader = reader_of(org)
    cursor = reader.read({"Name"}, **CHANGES).ending.cursor
    org.objects["Event__c"].records.append(event(3, minute=25))  # type: ignore[attr-defined]
    assert "Event 3" in reader.read({"Name"}, **CHANGES, since=cursor).column("Name")
    strict = reader.read({"Name"}, incremental={"overlap": "0s"}, since=cursor)
    assert strict.column("Name") == ["Event 2"], "without an overlap it would be missed; one of the very moment is not"


def test_a_cursor_made_for_other_records_or_columns_or_by_nobody_leads_to_a_whole_reading() -> None:
    reader = reader_of(org_of(events(3), {"City__c": "string"}))
    cursor = reader.read({"Name"}, **CHANGES).ending.cursor
    assert not reader.read({"Name"}, incremental={"overlap": "1d"}, since=cursor).is_whole
    assert reader.read({"Name", "City__c"}, **CHANGES, since=cursor).is_whole
    assert reader.read({"Name"}, **CHANGES, where={"field": "City__c", "value": "x"}, since=cursor).is_whole
    assert reader.read({"Name"}, incremental={"by": "CreatedDate"}, since=cursor).is_whole
    for nonsense in ("2026-05-01 nonsense", "nonsense"):
        assert reader.read({"Name"}, **CHANGES, since=nonsense).is_whole


def in_an_hour() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime(time.time() + 3600))


def test_a_cursor_never_lies_after_the_readings_own_beginning() -> None:
    """A record read last may have changed while the others were read, and those that changed before it were not seen."""
    org = org_of([*events(3), event(4, SystemModstamp=in_an_hour())])
    cursor = reader_of(org).read({"Name"}, **CHANGES).ending.cursor
    assert cursor[:13] <= time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + 5))


def test_a_record_changed_while_a_forgotten_query_is_asked_again_is_left_to_the_next_reading() -> None:
    org = org_of(events(25))
    reader = reader_of(org)
    cursor = reader.read({"Name"}, incremental={"overlap": "1d"}).ending.cursor
    start = org.data_requests

    def edit(number: int) -> None:
        if number == start + 4:
            org.objects["Event__c"].records[0].update(Name="Edited", SystemModstamp=in_an_hour())

    org.troubles = Troubles(page_rows=5, locators_end_at={start + 4}, before_page=edit)
    changed = reader.read({"Name"}, incremental={"overlap": "1d"}, since=cursor)
    after = reader.read({"Name"}, incremental={"overlap": "0s"}, since=changed.ending.cursor)
    assert changed.column("Id") == [record_id(number) for number in range(1, 26)], "no record twice in one reading"
    assert "Edited" in after.column("Name")


@pytest.mark.parametrize(("by", "said"), [("Day__c", "is no moment"), ("Changed__c", "is not there")])
def test_only_a_moment_tells_what_changed(by: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        reader_of(org_of([], {"Day__c": "date"})).read({"Name"}, incremental={"by": by})
    assert "SystemModstamp" in caught.value.hint


class Reading(RuleBasedStateMachine):
    """Whoever reads only changes knows in the end what a whole reading would tell, whatever happened between and during."""

    def __init__(self) -> None:
        super().__init__()
        self.minute = 100
        self.known: dict[str, str] = {}
        self.cursor = ""
        self.is_current = False

    @initialize(count=st.integers(0, 12), page_rows=st.integers(1, 4))
    def open(self, count: int, page_rows: int) -> None:
        self.org: Org = org_of(events(count))
        self.org.troubles.page_rows = page_rows
        self.reader: Reader = reader_of(self.org)

    @property
    def records(self) -> Any:
        return self.org.objects["Event__c"].records

    @rule(late=st.integers(0, 9))
    def insert(self, late: int) -> None:
        self.minute += 1
        self.records.append(event(len(self.records) + 1, minute=self.minute - late))
        self.is_current = False

    @precondition(lambda self: self.records)
    @rule(pick=st.integers(0, 99), late=st.integers(0, 9), deletes=st.booleans())
    def change(self, pick: int, late: int, deletes: bool) -> None:
        self.minute += 1
        record = self.records[pick % len(self.records)]
        stamp = max(record["SystemModstamp"], moment(self.minute - late))
        record.update(Name=f"Change {self.minute}", SystemModstamp=stamp, IsDeleted=deletes)
        self.is_current = False

    @rule(session=st.integers(1, 6), locator=st.integers(1, 6), api=st.sampled_from(["rest", "bulk"]))
    def read(self, session: int, locator: int, api: str) -> None:
        start = self.org.data_requests
        self.org.troubles.sessions_end_at = {start + session}
        self.org.troubles.locators_end_at = {start + locator}
        read = self.reader.read({"Name"}, **CHANGES, api=api, since=self.cursor)
        ids = read.column("Id")
        assert len(ids) == len(set(ids))
        if read.is_whole:
            self.known.clear()
        for row in read.rows:
            self.known.pop(row.cells["Id"], None)
            if not row.is_gone:
                self.known[row.cells["Id"]] = row.cells["Name"]
        self.cursor = read.ending.cursor
        self.is_current = True

    @invariant()
    def knows_all(self) -> None:
        if self.is_current:
            assert self.known == {one["Id"]: one["Name"] for one in self.records if not one["IsDeleted"]}


Reading.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None, derandomize=True)
TestWhoeverReadsOnlyChanges = Reading.TestCase


def test_the_cursor_of_another_org_means_nothing() -> None:
    """Who moves from a sandbox to the real org keeps the state DB: its records may all be older than the cursor."""
    cursor = reader_of(org_of(events(9))).read({"Name"}, incremental={"overlap": "0s"}).ending.cursor
    real = reader_of(org_of(events(3)))
    access = real.access(instance_url=real.server.base_url.replace("127.0.0.1", "localhost"))
    read = real.read({"Name"}, incremental={"overlap": "0s"}, since=cursor, access=access)
    assert (read.is_whole, len(read.rows)) == (True, 3)
