"""What goes wrong while Salesforce is read: sessions that end, queries that are forgotten, days that run out of requests."""

from __future__ import annotations

import gzip
import socket
from dataclasses import replace
from typing import Any

import pytest
from lookalikes.salesforce_org import Troubles
from lookalikes.salesforce_reader import Reader, event, events, org_of, reader_of

from connectors.sources.contract import BadSourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.salesforce.org import POLICY
from connectors.sources.salesforce.source import LONGEST_WAIT_S
from mappings.errors import ConfigError, SyncError

BUSY = (503, "SERVER_UNAVAILABLE", "")
ALL = [f"Event {number}" for number in range(1, 26)]
WAYS: list[dict[str, Any]] = [
    {"api": "rest"},
    {"api": "rest", "incremental": {}},
    {"api": "bulk"},
    {"query": "SELECT Id, Name FROM Event__c ORDER BY Id", "api": "rest"},
]


def reader_with(
    records: list[dict[str, Any]] | None = None,
    fields: dict[str, str] | None = None,
    *,
    allowed: int = 15_000,
    used: int = 0,
    **troubles: Any,
) -> Reader:
    """Return a reader of these records, or of 25 events; a page holds five of them."""
    org = org_of(events(25) if records is None else records, fields)
    org.allowed, org.used, org.troubles = allowed, used, replace(Troubles(page_rows=5), **troubles)
    return reader_of(org)


@pytest.mark.parametrize("way", WAYS, ids=["pages", "incremental", "bulk", "query"])
@pytest.mark.parametrize("page", range(1, 8))
def test_a_session_that_ends_at_any_page_costs_one_login_and_no_row(way: dict[str, Any], page: int) -> None:
    reader = reader_with(sessions_end_at={page})
    assert reader.read({"Name"}, **way).column("Name") == ALL
    assert reader.org.logins == 1 + (reader.org.data_requests >= page)


FORGOTTEN: dict[str, dict[str, Any]] = {
    "alone": {},
    "with its session": {"locators_die_with_sessions": True, "locators_belong_to_sessions": True},
    "as if the session had": {"locators_belong_to_sessions": True},
}


@pytest.mark.parametrize("way", WAYS[:2], ids=["pages", "incremental"])
@pytest.mark.parametrize("dies", FORGOTTEN)
@pytest.mark.parametrize("page", range(2, 8))
def test_a_query_that_is_forgotten_at_any_page_goes_on_after_the_last_record(way: dict[str, Any], dies: str, page: int) -> None:
    ends: dict[str, Any] = {"locators_end_at": {page, page + 2}} if dies == "alone" else {"sessions_end_at": {page}}
    assert reader_with(**ends, **FORGOTTEN[dies]).read({"Name"}, **way).column("Name") == ALL


def test_records_of_one_moment_are_neither_lost_nor_doubled_when_a_query_is_forgotten_among_them() -> None:
    reader = reader_with([event(number, minute=5) for number in range(1, 26)], locators_end_at={3, 5, 7})
    first = reader.read({"Name"}, incremental={})
    reader.org.troubles.locators_end_at = {reader.org.data_requests + 3, reader.org.data_requests + 5}
    again = reader.read({"Name"}, incremental={}, since=first.ending.cursor)
    assert first.column("Name") == ALL
    assert (again.column("Name"), again.is_whole) == (ALL, False), "all are within the overlap"


def test_an_authors_query_that_is_forgotten_is_for_a_later_run() -> None:
    with pytest.raises(SourceUnavailableError, match="INVALID_QUERY_LOCATOR") as caught:
        reader_with(locators_end_at={3}).read({"Name"}, **WAYS[3])
    assert "later" in caught.value.hint


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
    reader = reader_with(events(8), answers=[answer] * 3)
    assert len(reader.read({"Name"}, api="rest").rows) == 8
    assert len(reader.clock.slept) == 3
    reader.org.troubles.answers = [answer] * 50
    with pytest.raises(SourceUnavailableError, match=answer[1] or "502"):
        reader.read({"Name"}, api="rest")
    assert reader.clock.now <= 2 * POLICY.budget_s
    assert len(reader.org.troubles.answers) == 50 - POLICY.attempts


@pytest.mark.parametrize(("told", "wait_s"), [("17", 17.0), ("17.5", 17.5), ("5, 17", 17.0)])
def test_a_wait_that_salesforce_names_is_waited_or_left_to_the_next_run(told: str, wait_s: float) -> None:
    reader = reader_with(answers=[BUSY], retry_after=told)
    reader.read({"Name"})
    assert reader.clock.slept == [wait_s]
    reader.org.troubles.answers, reader.org.troubles.retry_after = [BUSY] * 9, "900"
    with pytest.raises(SourceUnavailableError) as caught:
        reader.read({"Name"})
    assert caught.value.retry_after_s == 900.0


MAINTENANCE = "<html><style>p {}</style><body><p>Down for <b>maintenance</b></p></body></html>"
LATER, BAD = SourceUnavailableError, BadSourceError
LASTING: dict[str, tuple[str, dict[str, Any], type[SyncError], str]] = {
    "results that are always an empty text": ("bulk", {"bare_results": 99}, LATER, "how many they are"),
    "results that always break off": ("bulk", {"cut_after": [30] * 99}, LATER, "results"),
    "a forgotten place": ("bulk", {"answers": [(400, "INVALID_QUERY_LOCATOR", "")]}, LATER, "INVALID_QUERY_LOCATOR"),
    "pages without an end": ("rest", {"pages_lead_nowhere": True}, LATER, "next page is itself"),
    "a page that lacks records": ("rest", {"lost_from_pages": 1}, LATER, "announced 25 records and sent 20"),
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
    reader = reader_with(**troubles)
    with pytest.raises(kind, match=said) as caught:
        reader.read({"Name"}, api=api)
    assert kind is not LATER or "later" in caught.value.hint
    assert reader.org.jobs == {}


def test_the_days_requests_used_up_come_back_in_an_hour() -> None:
    reader = reader_with(allowed=7, used=2)
    with pytest.raises(SourceUnavailableError, match="REQUEST_LIMIT_EXCEEDED") as caught:
        reader.read({"Name"}, stop_at="off", api="rest")
    assert (caught.value.retry_after_s, reader.clock.slept) == (3600.0, [])
    assert "in an hour" in caught.value.hint


def test_nothing_is_asked_where_others_have_used_the_days_requests() -> None:
    reader = reader_with(allowed=100, used=94)
    with pytest.raises(SourceUnavailableError, match="95 of its 100") as caught:
        reader.read({"Name"})
    assert reader.queries == []
    assert "stop_at" in caught.value.hint


@pytest.mark.parametrize("words", [{}, {"incremental": {}}], ids=["whole", "incremental"])
def test_a_reading_that_the_day_does_not_suffice_for_is_an_error_and_never_fewer_rows(words: dict[str, Any]) -> None:
    def others(number: int) -> None:
        reader.org.used += number * 2

    reader = reader_with(allowed=100, used=90, before_page=others)
    with pytest.raises(SourceUnavailableError, match="requests of the day"):
        reader.read({"Name"}, api="rest", **words)


def test_a_reading_in_bulk_is_not_counted_first() -> None:
    reader = reader_with()
    reader.read({"Name"}, api="bulk", incremental={})
    assert not [asked for _, asked in reader.org.asked if "COUNT()" in asked]


@pytest.mark.parametrize(
    "troubles",
    [*({"cut_after": cuts} for cuts in ([400], [150, 300], [30, 30, 30])), {"lost_rows": [4, 1]}, {"bare_results": 2}],
    ids=str,
)
def test_results_that_break_off_or_end_early_go_on_after_the_last_record(troubles: dict[str, Any]) -> None:
    text = 'a "b"\nc, ' * 5
    records = [event(number, Text__c=text) for number in range(1, 26)]
    read = reader_with(records, {"Text__c": "textarea"}, **troubles).read({"Name", "Text__c"}, api="bulk")
    assert (read.column("Name"), set(read.column("Text__c"))) == (ALL, {text})


def test_a_last_chunk_before_all_records_that_the_job_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sources.salesforce.source.CHUNK_ROWS", 10)
    with pytest.raises(SourceUnavailableError, match="found 25 records and gave 10"):
        reader_with(forgets_chunks=True).read({"Name"}, api="bulk")


@pytest.mark.parametrize(("retry_after", "longest_s"), [("", 1.1 * POLICY.budget_s), ("900", 5.0)])
def test_results_of_a_busy_org_are_insisted_on_no_longer_than_anything_else(retry_after: str, longest_s: float) -> None:
    reader = reader_with(answers=[BUSY] * 99, retry_after=retry_after)
    with pytest.raises(SourceUnavailableError, match="503"):
        reader.read({"Name"}, api="bulk")
    assert reader.clock.now <= longest_s
    assert len(reader.org.troubles.answers) >= 99 - POLICY.attempts
    assert reader.org.jobs == {}


def test_a_job_is_waited_for_ever_longer_but_not_for_ever() -> None:
    reader = reader_with(polls=10**9)
    with pytest.raises(SourceUnavailableError, match="not done after 3 hours"):
        reader.read({"Name"}, api="bulk")
    assert LONGEST_WAIT_S <= reader.clock.now < LONGEST_WAIT_S + 60
    assert len(reader.clock.slept) < 600
    assert ("PATCH", "job") in reader.org.asked, "aborted, so that it can be deleted"
    assert reader.org.jobs == {}


def test_a_reading_given_up_half_way_deletes_its_job() -> None:
    reader = reader_with()
    with reader.source({"Name"}, api="bulk") as reading:
        next(reading.rows)
        assert reader.org.jobs
    assert reader.org.jobs == {}


def test_a_server_that_is_not_there_and_one_that_is_no_salesforce_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    reader = reader_with()
    with pytest.raises(SourceUnavailableError, match="did not answer"):
        reader.read({"Name"}, access=reader.access(instance_url=url))
    with pytest.raises(ConfigError, match="not encrypted"):
        reader.read({"Name"}, access=reader.access(instance_url="http://example.com"))


def test_a_redirect_is_not_followed_as_it_would_lead_our_token_elsewhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        location = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/services"
        with pytest.raises(SourceRefusedError, match="302"):
            reader_with(answers=[(302, "MOVED", "elsewhere")], location=location).read({"Name"})
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_a_session_that_is_refused_as_soon_as_it_is_opened_is_told_and_not_tried_for_ever() -> None:
    reader = reader_with(sessions_die_at_once=True)
    with pytest.raises(SourceRefusedError, match="refused its session"):
        reader.read({"Name"})
    assert reader.org.logins == 2
