"""What goes wrong while Salesforce is read: sessions that end, queries that are forgotten, days that run out of requests."""

from __future__ import annotations

import gzip
import socket
from pathlib import Path
from typing import Any

import pytest
from lookalikes.salesforce_org import SObject, Troubles
from lookalikes.salesforce_reader import event, events, org_of, reader_of, record_id

from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.salesforce.org import POLICY
from connectors.sources.salesforce.source import LONGEST_WAIT_S
from mappings.errors import ConfigError, SyncError
from mappings.spec.source import CsvSource

ALL = [f"Event {number}" for number in range(1, 26)]
WAYS: list[dict[str, Any]] = [
    {"api": "rest"},
    {"api": "rest", "incremental": {}},
    {"api": "bulk"},
    {"query": "SELECT Id, Name FROM Event__c ORDER BY Id", "api": "rest"},
]


@pytest.mark.parametrize("way", WAYS, ids=["pages", "incremental", "bulk", "query"])
@pytest.mark.parametrize("page", range(1, 8))
def test_a_session_that_ends_at_any_page_costs_one_login_and_no_row(way: dict[str, Any], page: int) -> None:
    org = org_of(events(25))
    org.troubles.page_rows, org.troubles.sessions_end_at = 5, {page}
    with reader_of(org) as reader:
        read = reader.read({"Name"}, **way)
    assert read.column("Name") == ALL
    assert org.logins == 1 + (org.data_requests >= page)


@pytest.mark.parametrize("way", [*WAYS[:2], WAYS[3]], ids=["pages", "incremental", "query"])
@pytest.mark.parametrize("dies", ["alone", "with its session", "as if the session had"])
@pytest.mark.parametrize("page", range(2, 8))
def test_a_query_that_is_forgotten_at_any_page_goes_on_after_the_last_record(way: dict[str, Any], dies: str, page: int) -> None:
    org = org_of(events(25))
    org.troubles.page_rows = 5
    if dies == "alone":
        org.troubles.locators_end_at = {page, page + 2}
    else:
        org.troubles.sessions_end_at, org.troubles.locators_die_with_sessions = {page}, dies == "with its session"
        org.troubles.locators_belong_to_sessions = True
    with reader_of(org) as reader:
        read = reader.read({"Name"}, **way)
    assert read.column("Name") == ALL
    assert not read.ending.is_short


def test_records_of_one_moment_are_neither_lost_nor_doubled_when_a_query_is_forgotten_among_them() -> None:
    org = org_of([event(number, minute=5) for number in range(1, 26)])
    org.troubles.page_rows, org.troubles.locators_end_at = 5, {3, 5, 7}
    with reader_of(org) as reader:
        first = reader.read({"Name"}, incremental={})
        org.troubles.locators_end_at = {org.data_requests + 3, org.data_requests + 5}
        again = reader.read({"Name"}, incremental={}, since=first.ending.cursor)
    assert first.column("Name") == ALL
    assert again.column("Name") == ALL, "all are within the overlap"
    assert not again.is_whole


def test_a_query_that_comes_otherwise_the_second_time_ends_in_an_error() -> None:
    org = org_of(events(25))
    org.troubles.page_rows, org.troubles.locators_end_at = 5, {3}

    def edit(number: int) -> None:
        if number == 3:
            org.objects["Event__c"].records = list(reversed(events(25)))

    org.troubles.before_page = edit
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="another order") as caught:
        reader.read(query="SELECT Id, Name FROM Event__c", api="rest")
    assert "ORDER BY Id" in caught.value.hint


def test_a_query_forgotten_again_and_again_ends_in_an_error() -> None:
    org = org_of(events(25))
    org.troubles.page_rows, org.troubles.locators_end_at = 5, set(range(100))
    org.objects["Event__c"].children = {"Sessions__r": ("Session__c", "Event__c")}
    sessions = [event(number, Event__c=record_id(1)) for number in range(1, 9)]
    org.add(SObject("Session__c", parents={"Event__c": ("Event__r", "Event__c")}, records=sessions))
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError):
        reader.read({"Name"}, children={"Sessions__r": ["Name"]})


@pytest.mark.parametrize(
    "answer",
    [
        (500, "UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access"),
        (400, "QUERY_TIMEOUT", "Your query request was running for too long."),
        (503, "SERVER_UNAVAILABLE", "Server is unavailable"),
        (403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests (Concurrent API Requests) Limit exceeded."),
        (502, "", "bad gateway"),
    ],
)
def test_a_busy_org_is_asked_again_a_few_times_and_then_later(answer: tuple[int, str, str]) -> None:
    org = org_of(events(8))
    org.troubles.page_rows, org.troubles.answers = 5, [answer] * 3
    with reader_of(org) as reader:
        assert len(reader.read({"Name"}, api="rest").rows) == 8
        assert len(reader.clock.slept) == 3
        org.troubles.answers = [answer] * 50
        with pytest.raises(SourceUnavailableError, match=answer[1] or "502"):
            reader.read({"Name"}, api="rest")
        assert reader.clock.now <= 2 * POLICY.budget_s
        assert len(org.troubles.answers) == 50 - POLICY.attempts


@pytest.mark.parametrize(("told", "wait_s"), [("17", 17.0), ("17.5", 17.5), ("5, 17", 17.0)])
def test_a_wait_that_salesforce_names_is_waited_or_left_to_the_next_run(told: str, wait_s: float) -> None:
    org = org_of(events(3))
    org.troubles.answers, org.troubles.retry_after = [(503, "SERVER_UNAVAILABLE", "")], told
    with reader_of(org) as reader:
        reader.read({"Name"})
        assert reader.clock.slept == [wait_s]
        org.troubles.answers, org.troubles.retry_after = [(503, "SERVER_UNAVAILABLE", "")] * 9, "900"
        with pytest.raises(SourceUnavailableError) as caught:
            reader.read({"Name"})
        assert caught.value.retry_after_s == 900.0


MAINTENANCE = "<html><style>p {}</style><body><p>Down for <b>maintenance</b></p></body></html>"
LATER, BAD = SourceUnavailableError, BadSourceError
LASTING: dict[str, tuple[str, dict[str, Any], type[SyncError], str]] = {
    "results that are always an empty text": ("bulk", {"bare_results": 99}, LATER, "how many they are"),
    "results that always break off": ("bulk", {"cut_after": [30] * 99}, LATER, "results"),
    "a forgotten place": ("bulk", {"answers": [(400, "INVALID_QUERY_LOCATOR", "")]}, LATER, "INVALID_QUERY_LOCATOR"),
    "pages without an end": ("rest", {"page_rows": 5, "pages_lead_nowhere": True}, LATER, "leads to itself"),
    "a page that lacks records": ("rest", {"page_rows": 5, "lost_from_pages": 1}, LATER, "announced 25 records and sent 20"),
    "a gateway": ("rest", {"answers": [(503, "", MAINTENANCE)] * 99}, LATER, "to the query: Down for maintenance$"),
    "an answer that unpacks without end": (
        *("rest", {"packed": [gzip.compress(b" " * 140 * 10**6, 1)]}),
        *(BAD, "Salesforce: an answer is larger than 128 million bytes"),
    ),
    "a job that cannot be": ("bulk", {"fails_as": "InvalidBatch : MALFORMED_QUERY: unexpected token"}, BAD, "unexpected token"),
    "a job that fails": ("bulk", {"fails_as": "InternalServerError : Retried too often"}, LATER, "Retried too often"),
}


@pytest.mark.parametrize("what", LASTING)
def test_what_does_not_get_better_ends_in_an_error_that_says_why_and_leaves_no_job_behind(what: str) -> None:
    api, troubles, kind, said = LASTING[what]
    org = org_of(events(25))
    org.troubles = Troubles(**troubles)
    with reader_of(org) as reader, pytest.raises(kind, match=said) as caught:
        reader.read({"Name"}, api=api)
    assert kind is not LATER or "later" in caught.value.hint
    assert org.jobs == {}


def test_the_days_requests_used_up_come_back_in_an_hour() -> None:
    org = org_of(events(25))
    org.troubles.page_rows, org.allowed, org.used = 5, 7, 2
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="REQUEST_LIMIT_EXCEEDED") as caught:
        reader.read({"Name"}, stop_at="off", api="rest")
    assert caught.value.retry_after_s == 3600.0
    assert "in an hour" in caught.value.hint
    assert reader.clock.slept == []


def test_nothing_is_asked_where_others_have_used_the_days_requests() -> None:
    org = org_of(events(3))
    org.allowed, org.used = 100, 94
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="95 of its 100") as caught:
        reader.read({"Name"})
    assert reader.queries == []
    assert "stop_at" in caught.value.hint


def test_a_whole_reading_that_the_day_does_not_suffice_for_is_an_error_and_never_fewer_rows() -> None:
    org = org_of(events(25))
    org.troubles.page_rows, org.allowed, org.used = 5, 100, 90

    def others(number: int) -> None:
        org.used += number * 2

    org.troubles.before_page = others
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="requests of the day"):
        reader.read({"Name"}, api="rest")


def test_changes_that_the_day_does_not_suffice_for_are_read_as_far_as_it_goes_and_the_rest_later() -> None:
    org = org_of(events(25))
    org.troubles.page_rows = 5
    with reader_of(org) as reader:
        whole = reader.read({"Name"}, incremental={"overlap": "0s"})
        org.objects["Event__c"].records = [event(number, minute=100 + number) for number in range(1, 26)]
        org.allowed = int((org.used + 4.5) / 0.95)
        part = reader.read({"Name"}, incremental={"overlap": "0s"}, since=whole.ending.cursor, api="rest")
        assert part.ending.is_short
        assert "goes on from there" in part.ending.notices[0]
        assert 0 < len(part.rows) < 25
        org.allowed = 15_000
        rest = reader.read({"Name"}, incremental={"overlap": "0s"}, since=part.ending.cursor)
    assert part.column("Name")[:-1] + rest.column("Name") == ALL
    assert not rest.ending.is_short


def test_more_records_than_the_day_has_pages_for_come_in_the_order_of_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.salesforce.source.PAGE_ROWS", 5)
    org = org_of([event(26 - number, minute=number, IsDeleted=number == 2) for number in range(1, 26)])
    org.troubles.page_rows, org.allowed, org.used = 5, 100, 90
    with reader_of(org) as reader:
        part = reader.read({"Name"}, incremental={"overlap": "0s"}, api="rest")
        org.used = 5
        rest = reader.read({"Name"}, incremental={"overlap": "0s"}, api="rest", since=part.ending.cursor)
    assert part.ending.is_short
    assert part.column("Name") == ALL[::-1][: len(part.rows)]
    assert [row.is_gone for row in part.rows[:3]] == [False, True, False], "the next reading begins behind the deleted one"
    assert set(part.column("Name")) | set(rest.column("Name")) == set(ALL)


def test_a_query_forgotten_among_records_that_tell_no_change_goes_on_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.salesforce.source.PAGE_ROWS", 1)
    seen = [None] * 19 + [f"2021-01-{day}T10:00:00.000Z" for day in range(20, 26)]
    org = org_of([event(number, Seen__c=stamp) for number, stamp in enumerate(seen, start=1)], {"Seen__c": "datetime"})
    org.troubles.page_rows, org.allowed, org.used, org.troubles.locators_end_at = 5, 100, 75, {3, 5}
    with reader_of(org) as reader:
        read = reader.read({"Name"}, incremental={"by": "Seen__c"}, api="rest")
    assert read.column("Name") == ALL


def test_a_reading_in_bulk_is_not_counted_first() -> None:
    org = org_of(events(3))
    with reader_of(org) as reader:
        reader.read({"Name"}, api="bulk", incremental={})
    assert not [asked for _, asked in org.asked if "COUNT()" in asked]


def test_a_second_table_that_the_day_does_not_suffice_for_is_an_error_as_joined_rows_would_lack_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.sources.salesforce.source.PAGE_ROWS", 5)
    (tmp_path / "agenda.csv").write_text("REF,EVENT\n1,Event 24\n")
    table = {"kind": "salesforce", "object": "Event__c", "api": "rest", "incremental": {}, "stop_at": "95%"}
    join = {"source": table, "by": {"EVENT": "Name"}, "prefix": "event."}
    spec = CsvSource.model_validate({"kind": "csv", "path": "agenda.csv", "join": join})
    org = org_of(events(25))
    org.troubles.page_rows = 5
    with reader_of(org) as reader:
        source = open_source(spec, tmp_path, frozenset({"REF", "event.Id"}), access=reader.access(), clock=reader.clock.clockwork)
        with source.read() as reading:
            assert [row.cells["event.Id"] for row in reading.rows] == [record_id(24)]
        org.allowed, org.used = 100, 90
        with pytest.raises(SourceUnavailableError, match="must be whole"), source.read():
            pytest.fail("the block was entered")


@pytest.mark.parametrize(
    "troubles",
    [*({"cut_after": cuts} for cuts in ([400], [150, 300], [30, 30, 30])), {"lost_rows": [4, 1]}, {"bare_results": 2}],
    ids=str,
)
def test_results_that_break_off_or_end_early_go_on_after_the_last_record(troubles: dict[str, Any]) -> None:
    org = org_of([event(number, Text__c='a "b"\nc, ' * 5) for number in range(1, 26)], {"Text__c": "textarea"})
    org.troubles = Troubles(**troubles)
    with reader_of(org) as reader:
        read = reader.read({"Name", "Text__c"}, api="bulk")
    assert read.column("Name") == ALL
    assert set(read.column("Text__c")) == {'a "b"\nc, ' * 5}


def test_a_last_chunk_before_all_records_that_the_job_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.salesforce.source.CHUNK_ROWS", 10)
    org = org_of(events(25))
    org.troubles.forgets_chunks = True
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="found 25 records and gave 10"):
        reader.read({"Name"}, api="bulk")


@pytest.mark.parametrize(("retry_after", "longest_s"), [("", 1.1 * POLICY.budget_s), ("900", 5.0)])
def test_results_of_a_busy_org_are_insisted_on_no_longer_than_anything_else(retry_after: str, longest_s: float) -> None:
    org = org_of(events(25))
    org.troubles.answers, org.troubles.retry_after = [(503, "SERVER_UNAVAILABLE", "")] * 99, retry_after
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="503"):
        reader.read({"Name"}, api="bulk")
    assert reader.clock.now <= longest_s
    assert len(org.troubles.answers) >= 99 - POLICY.attempts
    assert org.jobs == {}


def test_a_job_is_waited_for_ever_longer_but_not_for_ever() -> None:
    org = org_of(events(3))
    org.troubles.polls = 10**9
    with reader_of(org) as reader, pytest.raises(SourceUnavailableError, match="not done after 3 hours"):
        reader.read({"Name"}, api="bulk")
    assert LONGEST_WAIT_S <= reader.clock.now < LONGEST_WAIT_S + 60
    assert len(reader.clock.slept) < 600
    assert ("PATCH", "job") in org.asked, "aborted, so that it can be deleted"
    assert org.jobs == {}


def test_a_reading_given_up_half_way_deletes_its_job() -> None:
    org = org_of(events(25))
    with reader_of(org) as reader:
        with reader.source({"Name"}, api="bulk") as reading:
            next(reading.rows)
            assert org.jobs
        assert org.jobs == {}


def test_a_server_that_is_not_there_and_one_that_is_no_salesforce_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with reader_of(org_of([])) as reader:
        with pytest.raises(SourceUnavailableError, match="did not answer"):
            reader.read({"Name"}, access=reader.access(instance_url=url))
        with pytest.raises(ConfigError, match="not encrypted"):
            reader.read({"Name"}, access=reader.access(instance_url="http://example.com"))


def test_a_redirect_is_not_followed_as_it_would_lead_our_token_elsewhere() -> None:
    org = org_of(events(3))
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, reader_of(org) as reader:
        elsewhere.settimeout(0)
        org.troubles.answers = [(302, "MOVED", "elsewhere")]
        org.troubles.location = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/services"
        with pytest.raises(SourceRefusedError, match="302"):
            reader.read({"Name"})
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_a_session_that_is_refused_as_soon_as_it_is_opened_is_told_and_not_tried_for_ever() -> None:
    org = org_of(events(3))
    org.troubles.sessions_die_at_once = True
    with reader_of(org) as reader, pytest.raises(SourceRefusedError, match="does not know the session a moment later"):
        reader.read({"Name"})
    assert org.logins == 2
