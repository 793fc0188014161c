"""The table of delivery.md, answer by answer: what the service says, what the worker asks again, what it concludes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest
from unit.connectors_api.wired import SECRET, Scripted, Service, answers_to, ask, created, deliver, intent, page, told
from virtual_time import EPOCH

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    OutageError,
    PausedError,
    RedirectRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.delivery import EventApi
from connectors.retry import RetryPolicy
from mappings.delivery import (
    Answer,
    Blocked,
    Conflict,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)

FIRST = intent()
TIMEOUT = httpx.ReadTimeout("no answer")
RESET = httpx.ReadError("connection reset")
NO_CONNECTION = httpx.ConnectError("connection refused")
CONFLICT = told(409, "conflict", request_id="req_c")
ELSEWHERE = httpx.Response(307, headers={"location": "https://elsewhere.example/x"})
A_DAYS_PAUSE = told(429, "rate_limited", headers={"retry-after": "86400"})
UNREADABLE = [
    httpx.Response(201, content=b""),
    httpx.Response(204),
    httpx.Response(200, content=b"<html>ok</html>", headers={"content-type": "text/html"}),
    httpx.Response(201, content=b'{"doc": {"id": 4'),
    httpx.Response(201, json={"doc": {"id": "41"}}),
    httpx.Response(201, json={"doc": {"id": True}}),
    httpx.Response(201, json={"doc": {"id": 4.0}}),
    httpx.Response(201, json={"doc": None}),
    httpx.Response(201, json={"doc": {"id": 0}}),
    httpx.Response(201, json={"doc": {"id": -41}}),
    httpx.Response(201, json={"doc": {"id": 2**63}}),
    httpx.Response(201, json={"doc": {"id": 10**400}}),
    httpx.Response(201, content=b'{"doc": {"id": NaN}}'),
    httpx.Response(201, json={"doc": [{"id": 41}]}),
    httpx.Response(201, json={"id": 41}),
    httpx.Response(206, content=b'{"doc": {"id": 41'),
    httpx.Response(201, json=41),
    httpx.Response(201, json=[]),
    httpx.Response(201, content=b"\xff\xfe"),
]

ODD_SUCCESSES = {
    "a document with a byte order mark": httpx.Response(201, content=b'\xef\xbb\xbf{"doc": {"id": 41}}'),
    "a document called text": httpx.Response(201, content=b'{"doc": {"id": 41}}', headers={"content-type": "text/html"}),
    "a document without a title": httpx.Response(202, json={"doc": {"id": 41}}),
    "a document with a member that is no number": httpx.Response(201, content=b'{"doc": {"id": 41, "price": NaN}}'),
    "a document whose last id counts": httpx.Response(201, content=b'{"doc": {"id": 40, "id": 41}}'),
    "a document that is called a part": httpx.Response(206, json={"doc": {"id": 41}}),
    "the largest id": httpx.Response(201, json={"doc": {"id": 2**63 - 1}}),
}
AT_WORK = httpx.Response(
    409, json={"error": {"code": "conflict", "message": "The first request with this Idempotency-Key is still in progress."}}
)
LONG_AGO = intent(is_unanswered=True, quiet_s=7200.0)
ASKED = 7
"""How often a bare 409 is met, at growing intervals, until an attempt can be at work no longer."""
WATCHED = 8
"""How often one that tells of a request under way is met, until patience is over."""
DIFFERENT = [told(500, "internal_error", request_id=f"req_{number}") for number in range(5)]


@dataclass(frozen=True)
class Row:
    """Scripted answers (the last one for ever) and what they must add up to."""

    says: list[Scripted]
    verdict: type[Verdict]
    requests: int
    intent: Intent = FIRST
    cause: type[Exception] | None = None


SIX = RetryPolicy().attempts
TABLE = {
    "a document with an id is delivered": Row([created()], Receipt, 1),
    "200 is as good as 201": Row([httpx.Response(200, json={"doc": {"id": 1}})], Receipt, 1),
    **{f"{what} is a document all the same": Row([answer], Receipt, 1) for what, answer in ODD_SUCCESSES.items()},
    "an invalid request is refused at once": Row([told(400, "invalid_request")], Refusal, 1),
    "a body too large is refused at once": Row([told(413, "invalid_request")], Refusal, 1),
    "a wrong media type is refused at once": Row([told(415, "invalid_request")], Refusal, 1),
    "an unprocessable body is refused at once": Row([told(422, "invalid_request")], Refusal, 1),
    "a wrong method is refused at once": Row([told(405, "invalid_request")], Refusal, 1),
    "a resource gone for good is refused at once": Row([told(410, "gone")], Refusal, 1),
    "a rejected key postpones": Row([told(401, "invalid_api_key")], Postponed, 1, cause=KeyRefusedError),
    "a rejected key postpones, even in a stranger's words": Row([page(401)], Postponed, 1),
    "a missing scope postpones": Row([told(403, "insufficient_scope")], Postponed, 1, cause=ScopeMissingError),
    "a forbidden channel blocks": Row([told(403, "forbidden")], Blocked, 1),
    "a 403 of an unknown code blocks": Row([told(403, "no_way")], Blocked, 1),
    "a channel not found blocks": Row([told(404, "not_found")], Blocked, 1),
    "a page not found, on first contact, is another host": Row([page(404)], Postponed, 1, cause=NotTheServiceError),
    "a redirect postpones": Row([ELSEWHERE], Postponed, 1, cause=RedirectRefusedError),
    "not modified postpones as well": Row([httpx.Response(304)], Postponed, 1),
    "a page that forbids, on first contact, is another host": Row([page(403)], Postponed, 1, cause=NotTheServiceError),
    "a limit of a day postpones": Row([A_DAYS_PAUSE], Postponed, 1, cause=PausedError),
    "a conflict without a past is a conflict": Row([CONFLICT], Conflict, 1),
    "a conflict after a timeout of ours is asked about, then unconfirmed": Row([TIMEOUT, CONFLICT], Unconfirmed, 1 + ASKED),
    "a conflict after a reset that ends in the document is delivered": Row([RESET, CONFLICT, CONFLICT, created()], Receipt, 4),
    "a conflict after a 502 is unconfirmed": Row([page(502), CONFLICT], Unconfirmed, 1 + ASKED),
    "a conflict after an unreadable success is unconfirmed": Row([page(200), CONFLICT], Unconfirmed, 1 + ASKED),
    "a conflict after no connection at all is a conflict": Row([NO_CONNECTION, CONFLICT], Conflict, 2),
    "a conflict after a 429 is unconfirmed": Row([told(429, "rate_limited"), CONFLICT], Unconfirmed, 5),
    "a conflict after an earlier run's silence is unconfirmed": Row([CONFLICT], Unconfirmed, ASKED, intent(is_unanswered=True)),
    "a conflict after a silence of long ago is unconfirmed soon": Row([CONFLICT], Unconfirmed, 4, LONG_AGO),
    "a conflict that says that the first request is at work is waited for": Row(
        [TIMEOUT, AT_WORK, AT_WORK, created()], Receipt, 4
    ),
    "a first request that never ends is uncertain": Row([TIMEOUT, AT_WORK], Uncertain, 1 + WATCHED),
    "a first request that never ends is uncertain, long ago as well": Row([AT_WORK], Uncertain, WATCHED, LONG_AGO),
    "a first request at work that no record explains is waited for": Row([AT_WORK, AT_WORK, created()], Receipt, 3),
    "a first request at work that no record explains is a conflict in the end": Row([AT_WORK], Conflict, WATCHED),
    "a first request at work after a refusal is no reason for another key": Row(
        [AT_WORK], Conflict, WATCHED, intent(refused_request_id="req_a")
    ),
    "an earlier run's silence ends in the replayed document": Row([created()], Receipt, 1, intent(is_unanswered=True)),
    "a conflict for a corrected body is superseded": Row([CONFLICT], Superseded, 1, intent(refused_request_id="req_a")),
    "a corrected body that meets its old refusal is superseded": Row(
        [told(400, "invalid_request", request_id="req_a")], Superseded, 1, intent(refused_request_id="req_a")
    ),
    "a corrected body that is refused anew is refused": Row(
        [told(400, "invalid_request", request_id="req_b")], Refusal, 1, intent(refused_request_id="req_a")
    ),
    "a refusal without a request id is never a replay": Row([told(400, "invalid_request", request_id="")], Refusal, 1),
    "a conflict after a corrected body's timeout may mean the old refusal or the new event": Row(
        [TIMEOUT, CONFLICT], Conflict, 1 + ASKED, intent(refused_request_id="req_a")
    ),
    "a limit is waited out": Row([told(429, "rate_limited"), created()], Receipt, 2),
    "a timeout is asked again": Row([TIMEOUT, created()], Receipt, 2),
    "a reset is asked again": Row([RESET, created()], Receipt, 2),
    "no connection is tried again": Row([NO_CONNECTION, created()], Receipt, 2),
    "a refusal after a timeout is a refusal": Row([TIMEOUT, told(400, "invalid_request")], Refusal, 2),
    "timeouts to the end are uncertain": Row([TIMEOUT], Uncertain, SIX),
    "resets to the end are uncertain": Row([RESET], Uncertain, SIX),
    "no connection to the end is postponed": Row([NO_CONNECTION], Postponed, SIX, cause=ServiceUnavailableError),
    "no connection after one timeout is uncertain": Row([TIMEOUT, NO_CONNECTION], Uncertain, SIX),
    "a protocol error is uncertain": Row([httpx.RemoteProtocolError("no HTTP")], Uncertain, SIX),
    "a rejected key after a timeout leaves the row pending": Row([TIMEOUT, told(401, "invalid_api_key")], Postponed, 2),
    "a missing scope after a timeout leaves the row pending": Row([TIMEOUT, told(403, "insufficient_scope")], Postponed, 2),
    "a forbidden channel after a timeout blocks": Row([TIMEOUT, told(403, "forbidden")], Blocked, 2),
    "a failure that is kept under the key is asked about thrice": Row([told(500, "internal_error")], Uncertain, 3),
    "failures that are not the same are asked to the end": Row([*DIFFERENT, told(500, "x", request_id="")], Uncertain, SIX),
    "a failure that is kept for a while only ends in the document": Row([told(500, "x"), told(500, "x"), created()], Receipt, 3),
    "a login that a proxy wants reaches nobody": Row([page(407)], Postponed, SIX),
    "a misdirected request reached nobody": Row([told(421, "misdirected"), created()], Receipt, 2),
    "a misdirected request to the end reached nobody": Row([page(421)], Postponed, SIX),
    "a legal objection is refused at once": Row([told(451, "unavailable")], Refusal, 1),
    "a request that the server's own side gave up is asked again": Row([page(499), created()], Receipt, 2),
    **{
        f"{status} is asked again": Row([told(status, "x"), created()], Receipt, 2)
        for status in (101, 408, 425, 460, 499, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 522, 529, 599, 999)
    },
    **{f"{status} to the end is uncertain": Row([page(status)], Uncertain, SIX) for status in (408, 425, 500, 503)},
    **{f"an unreadable success is uncertain ({n})": Row([body], Uncertain, SIX) for n, body in enumerate(UNREADABLE)},
    **{f"an unreadable success is asked again ({n})": Row([body, created()], Receipt, 2) for n, body in enumerate(UNREADABLE)},
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_every_answer_leads_to_its_verdict_by_repeating_one_request(row: Row) -> None:
    verdict, service = answers_to(*row.says, row=row.intent)
    assert isinstance(verdict, row.verdict), verdict
    assert len(service.requests) == row.requests
    if row.cause:
        assert isinstance(verdict, Postponed)
        assert isinstance(verdict.cause, row.cause)
        assert verdict.cause.hint
    limited = sum(isinstance(one, httpx.Response) and one.status_code == 429 for one in row.says)
    assert verdict.attempts == row.requests - limited, "attempts count what was not paced away"
    sent = {
        (one.method, str(one.url), one.headers["idempotency-key"], one.headers["authorization"], one.content)
        for one in service.requests
    }
    expected = ("POST", "https://events.example.org/api/public/v1/events", row.intent.key, f"Bearer {SECRET}", row.intent.body)
    assert sent == {expected}


def test_a_refusal_keeps_what_a_person_needs() -> None:
    verdict, _ = answers_to(told(400, "invalid_request", request_id="req_77", field="classifications", issue="no slug `jaz`"))
    assert verdict == Refusal(
        Answer(400, "invalid_request", "invalid_request it is", "req_77", "classifications", "no slug `jaz`"), attempts=1
    )


@pytest.mark.parametrize("stopper", [told(401, "invalid_api_key"), httpx.Response(302), page(404)])
def test_what_concerns_everyone_stops_the_route_for_everyone(stopper: httpx.Response) -> None:
    service = Service([stopper])

    async def five(api: EventApi) -> tuple[list[Verdict], bool]:
        return [await api.deliver(intent(number=number)) for number in range(5)], api.stopped is not None

    verdicts, is_stopped = ask(service, five)
    assert (len(service.requests), is_stopped) == (1, True)
    assert all(isinstance(verdict, Postponed) and verdict.attempts == (not number) for number, verdict in enumerate(verdicts))


def test_a_blocked_channel_and_a_refused_row_leave_the_route_open() -> None:
    service = Service([told(403, "forbidden"), told(400, "invalid_request"), CONFLICT, created()])
    verdicts = deliver(service, *(intent(number=number) for number in range(4)))
    assert [type(verdict) for verdict in verdicts] == [Blocked, Refusal, Conflict, Receipt]


@pytest.mark.parametrize(("status", "verdict"), [(413, Refusal), (400, Refusal), (404, Uncertain), (403, Uncertain)])
def test_once_acquainted_a_proxys_page_is_no_other_host(status: int, verdict: type[Verdict]) -> None:
    verdicts = deliver(Service([created(), page(status)]), intent(number=1), intent(number=2))
    assert isinstance(verdicts[1], verdict)


def test_a_pause_beyond_the_feeds_patience_says_when_to_come_back() -> None:
    verdict, service = answers_to(told(429, "rate_limited", headers={"retry-after": "3600"}), max_pause_s=900)
    assert isinstance(verdict, Postponed)
    assert isinstance(verdict.cause, PausedError)
    assert (verdict.cause.resume_at - EPOCH).total_seconds() == pytest.approx(3600)
    assert len(service.requests) == 1


def test_limits_do_not_count_as_attempts() -> None:
    many = [told(429, "rate_limited", headers={"retry-after": "2"})] * 20
    verdict, service = answers_to(*many, TIMEOUT, created(981_273), policy=RetryPolicy(attempts=2))
    assert isinstance(verdict, Receipt)
    assert (verdict.attempts, verdict.event_id) == (2, 981_273)
    assert len(service.requests) == 22


def test_a_service_that_only_ever_limits_is_given_up_within_the_patience() -> None:
    verdict, service = answers_to(told(429, "rate_limited", headers={"retry-after": "0"}), max_pause_s=600)
    assert isinstance(verdict, Postponed)
    assert isinstance(verdict.cause, PausedError)
    assert service.times[-1] <= 600 + 60
    assert len(service.requests) < 250


def test_maintenance_announced_by_a_503_pauses_the_route() -> None:
    verdict, service = answers_to(told(503, "down", headers={"retry-after": "120"}), created())
    assert isinstance(verdict, Receipt)
    assert service.times[1] == pytest.approx(120)


def test_maintenance_beyond_the_patience_ends_the_asking_and_the_row_stays_pending_as_unanswered() -> None:
    verdict, service = answers_to(told(503, "down", headers={"retry-after": "7200"}))
    assert isinstance(verdict, Postponed)
    assert verdict.is_unanswered
    assert isinstance(verdict.cause, PausedError)
    assert len(service.requests) == 1


def test_the_budget_of_time_ends_the_asking_before_the_attempts_do() -> None:
    verdict, service = answers_to(TIMEOUT, policy=RetryPolicy(attempts=100, budget_s=60, first_wait_s=8, longest_wait_s=16))
    assert isinstance(verdict, Uncertain)
    assert service.times[-1] <= 60


def test_waits_grow_and_are_bounded() -> None:
    _, service = answers_to(RESET, policy=RetryPolicy(attempts=7, budget_s=900, first_wait_s=1, longest_wait_s=10))
    waits = [after - before for before, after in pairwise(service.times)]
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10])


def test_a_pause_is_not_charged_to_the_rows_budget() -> None:
    limited = told(429, "rate_limited", headers={"retry-after": "500"})
    verdict, _ = answers_to(TIMEOUT, limited, TIMEOUT, created(), policy=RetryPolicy(budget_s=30))
    assert isinstance(verdict, Receipt)


def test_a_cancelled_delivery_is_cancelled_and_nothing_else() -> None:
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        return created()

    async def cancelled(api: EventApi) -> None:
        task = asyncio.ensure_future(api.deliver(intent()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    ask(hang, cancelled, policy=RetryPolicy(attempt_s=9999))


def test_an_outage_stops_the_route_instead_of_burning_through_every_row() -> None:
    service = Service([page(503)])
    *_, last = deliver(service, *(intent(number=number) for number in range(200)))
    assert isinstance(last, Postponed)
    assert isinstance(last.cause, OutageError)
    assert len(service.requests) == 2 * RetryPolicy().attempts


LIST = httpx.Response(200, json={"version": "2026-01-01", "docs": []})
STRANGERS = {
    "a page": page(400),
    "plain text": httpx.Response(413, content=b"too large"),
    "a list": httpx.Response(422, json=["title is bad"]),
    "an envelope without a code": httpx.Response(400, json={"error": {"message": "bad"}}),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("listed", [LIST, told(401, "invalid_api_key")], ids=["lists are open", "lists want a key"])
def test_the_very_first_row_may_be_refused_by_a_proxy_and_the_others_go_on(
    stranger: httpx.Response, listed: httpx.Response
) -> None:
    async def service(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return LIST if "authorization" in request.headers else listed
        return stranger if request.headers["idempotency-key"] == intent(number=1).key else created()

    verdicts = deliver(service, intent(number=1), intent(number=2))
    assert [type(verdict) for verdict in verdicts] == [Refusal, Receipt]


def test_another_host_that_refuses_everything_stops_the_route_and_is_not_given_the_key_again() -> None:
    asked: list[httpx.Request] = []

    async def host(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return page(400)

    verdicts = deliver(host, intent(number=1), intent(number=2))
    assert [type(verdict) for verdict in verdicts] == [Postponed, Postponed]
    assert sum("authorization" in request.headers for request in asked) == 1
