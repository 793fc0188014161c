"""The table of answers, one by one: what the service says, what the worker asks again, what it concludes.

Also what bounds a row's retries: the budget, the service's memory of keys, a 409 that says that the first attempt is under way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
from unit.connectors_api.wired import SECRET, Scripted, Service, answers_to, ask, created, deliver, intent, page, told
from unit.pipelines.publishing import published
from unit.state.world import World, row
from virtual_time import clock

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
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
UNREADABLE = [
    httpx.Response(204),
    httpx.Response(200, content=b"<html>ok</html>", headers={"content-type": "text/html"}),
    httpx.Response(206, content=b'{"doc": {"id": 41'),
    *(httpx.Response(201, content=body) for body in (b"", b'{"doc": {"id": 4', b"\xff\xfe")),
    *(httpx.Response(201, json=odd) for odd in ({"doc": None}, {"doc": [{"id": 41}]}, {"id": 41}, 41, [])),
]

ODD_SUCCESSES = {
    "a document with a byte order mark": httpx.Response(201, content=b'\xef\xbb\xbf{"doc": {"id": 41}}'),
    "a document called text": httpx.Response(201, content=b'{"doc": {"id": 41}}', headers={"content-type": "text/html"}),
    "a document without a title": httpx.Response(202, json={"doc": {"id": 41}}),
    "a document with a member that is no number": httpx.Response(201, content=b'{"doc": {"id": 41, "price": NaN}}'),
    "a document whose last id counts": httpx.Response(201, content=b'{"doc": {"id": 40, "id": 41}}'),
    "a document that is called a part": httpx.Response(206, json={"doc": {"id": 41}}),
    "an id that is a text of digits": httpx.Response(201, json={"doc": {"id": "41"}}),
    "the largest id": httpx.Response(201, json={"doc": {"id": 2**63 - 1}}),
}
WITHOUT_ID = {
    "a text": "ev_41",
    "true or false": True,
    "a fraction": 4.0,
    "missing": None,
    "a list": [41],
    **dict.fromkeys(["out of range"], 2**63),
}
AT_WORK = httpx.Response(
    409, json={"error": {"code": "conflict", "message": "The first request with this Idempotency-Key is still in progress."}}
)
LONG_AGO = intent(is_unanswered=True, quiet_s=7200.0)
UNDER_WAY = told(409, "conflict", headers={"retry-after": "5"})
ASKED = 7
"""How often a bare 409 is met, at growing intervals, until an attempt can be at work no longer."""
WATCHED = 8
"""How often one that tells of a request under way is met, until patience is over."""
LIMITED = replace(intent(is_unanswered=True, unanswered_s=90_000), is_limited=True)
DIFFERENT = [told(500, "internal_error", request_id=f"req_{number}") for number in range(5)]


def limited(seconds: int) -> httpx.Response:
    return told(429, "rate_limited", headers={"retry-after": str(seconds)})


def patient(**bounds: float) -> RetryPolicy:
    """Patience with a service that remembers keys for a minute."""
    return RetryPolicy(**{"key_memory_s": 60, **bounds})  # type: ignore[arg-type]  # attempts is whole


@dataclass(frozen=True)
class Row:
    """Scripted answers (the last one for ever) and what they must add up to."""

    says: list[Scripted]
    verdict: type[Verdict]
    requests: int
    intent: Intent = FIRST
    cause: type[Exception] | None = None
    policy: RetryPolicy = RetryPolicy()  # noqa: RUF009  # frozen
    has: Mapping[str, Any] = field(default_factory=dict)
    """What else the verdict says."""
    ends_by_s: float = math.inf


SIX = RetryPolicy().attempts
TABLE = {
    "a document with an id is delivered": Row([created()], Receipt, 1),
    "200 is as good as 201": Row([httpx.Response(200, json={"doc": {"id": 1}})], Receipt, 1),
    **{f"{what} is a document all the same": Row([answer], Receipt, 1) for what, answer in ODD_SUCCESSES.items()},
    **{
        f"{status} {code} is refused at once": Row([told(status, code)], Refusal, 1)
        for code, statuses in {"invalid_request": (400, 405, 413, 415, 422), "gone": (410,), "unavailable": (451,)}.items()
        for status in statuses
    },
    **{
        f"a document whose id is {what} exists, and is not asked for again": Row(
            [httpx.Response(201, json={"doc": {"id": odd, "title": "An evening"}})], Unconfirmed, 1, has={"copies": 1}
        )
        for what, odd in WITHOUT_ID.items()
    },
    "a document with a negative id exists": Row([httpx.Response(201, json={"doc": {"id": -41}})], Unconfirmed, 1),
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
    "a limit of a day postpones": Row([limited(86_400)], Postponed, 1, cause=PausedError),
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
    "a limit without a pause is waited out": Row([told(429, "rate_limited"), created()], Receipt, 2),
    "a reset is asked again": Row([RESET, created()], Receipt, 2),
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
    "a misdirected request to the end reached nobody": Row([page(421)], Postponed, SIX),
    "a request that the server's own side gave up is asked again": Row([page(499), created()], Receipt, 2),
    **{
        f"{status} is asked again": Row([told(status, "x"), created()], Receipt, 2)
        for status in (101, 408, 425, 460, 499, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 522, 529, 599, 999)
    },
    "limits do not count as attempts": Row(
        [*[limited(2)] * 20, TIMEOUT, created(981_273)], Receipt, 22, policy=RetryPolicy(attempts=2), has={"event_id": 981_273}
    ),
    "maintenance beyond the patience ends the asking, and the row stays pending as unanswered": Row(
        [told(503, "down", headers={"retry-after": "7200"})], Postponed, 1, cause=PausedError, has={"copies": 1}
    ),
    "the budget of time ends the asking before the attempts do": Row(
        [TIMEOUT], Uncertain, 5, policy=RetryPolicy(attempts=100, budget_s=60, first_wait_s=8, longest_wait_s=16), ends_by_s=60
    ),
    "a pause is not charged to the row's budget": Row(
        [TIMEOUT, limited(500), TIMEOUT, created()], Receipt, 4, policy=RetryPolicy(budget_s=30)
    ),
    "no request leaves once the first unanswered one may be forgotten": Row(
        [TIMEOUT], Uncertain, 3, policy=patient(attempts=100, budget_s=600, first_wait_s=16), ends_by_s=59.9
    ),
    "an attempt of an earlier run counts from its own beginning": Row(
        *([TIMEOUT], Uncertain, 2, intent(is_unanswered=True, unanswered_s=50, quiet_s=50)),
        policy=patient(attempts=100, first_wait_s=4),
        ends_by_s=9.9,
    ),
    "a pause that outlasts the memory ends in uncertain without another request": Row(
        [TIMEOUT, limited(300), created()], Uncertain, 2, policy=patient(), has={"code": "key_memory"}
    ),
    "a pause before the first request costs nothing": Row([limited(300), created()], Receipt, 2, policy=patient()),
    "a request that certainly was not carried out has nothing to be forgotten": Row(
        [*[NO_CONNECTION] * 4, created()], Receipt, 5, policy=patient(key_memory_s=1), has={"copies": 1}
    ),
    "a row that only ever met limits is sent again after any time": Row([created()], Receipt, 1, LIMITED, policy=patient()),
    "a 409 for a row that only ever met limits is unconfirmed": Row([CONFLICT], Unconfirmed, 4, LIMITED, policy=patient()),
    "a redirect may have been carried out": Row([ELSEWHERE], Postponed, 1, has={"copies": 1}),
    "a pause beyond the patience leaves a row that met a limit": Row(
        [limited(7200)], Postponed, 1, has={"is_limited": True, "copies": 0}
    ),
    **{
        f"{what} is no possible copy" if copies == 1 else f"{what} is a possible copy": Row(
            [says, created()], Receipt, 2, has={"copies": copies}
        )
        for copies, says, what in [
            *((2, TIMEOUT, "silence"), (2, told(502, "x"), "502"), (2, httpx.Response(201), "an empty success")),
            *((1, limited(1), "a limit"), (1, told(421, "x"), "a misdirected request")),
            *((1, page(407), "a login at a proxy"), (1, NO_CONNECTION, "no connection")),
        ]
    },
    **{
        f"an attempt under way is delivered in the end, though it was asked about {times} times": Row(
            [RESET, *[UNDER_WAY] * times, created()], Receipt, times + 2
        )
        for times in (4, 12)
    },
    "an attempt that came to nothing is made again": Row(
        [RESET, *[UNDER_WAY] * 5, told(500, "internal_error"), created()], Receipt, 8
    ),
    "an attempt under way that is none of ours is a conflict all the same": Row([UNDER_WAY], Conflict, 25),
    **{f"{status} to the end is uncertain": Row([page(status)], Uncertain, SIX) for status in (408, 425, 500, 503)},
    **{f"an unreadable success is uncertain ({n})": Row([body], Uncertain, SIX) for n, body in enumerate(UNREADABLE)},
    **{f"an unreadable success is asked again ({n})": Row([body, created()], Receipt, 2) for n, body in enumerate(UNREADABLE)},
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_every_answer_leads_to_its_verdict_by_repeating_one_request(case: Row) -> None:
    verdict, service = answers_to(*case.says, row=case.intent, policy=case.policy)
    assert isinstance(verdict, case.verdict), verdict
    assert len(service.requests) == case.requests
    if case.cause:
        assert isinstance(verdict, Postponed)
        assert isinstance(verdict.cause, case.cause)
        assert verdict.cause.hint
    limits = sum(isinstance(one, httpx.Response) and one.status_code == 429 for one in case.says)
    assert verdict.attempts == case.requests - limits, "attempts count what was not paced away"
    assert {name: getattr(verdict if hasattr(verdict, name) else verdict.answer, name) for name in case.has} == case.has
    assert service.times[-1] <= case.ends_by_s
    sent = {
        (one.method, str(one.url), one.headers["idempotency-key"], one.headers["authorization"], one.content)
        for one in service.requests
    }
    expected = ("POST", "https://events.example.org/api/public/v1/events", case.intent.key, f"Bearer {SECRET}", case.intent.body)
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


@pytest.mark.parametrize(("status", "verdict"), [(413, Refusal), (400, Refusal), (404, Uncertain), (403, Uncertain)])
def test_once_acquainted_a_proxys_page_is_no_other_host(status: int, verdict: type[Verdict]) -> None:
    verdicts = deliver(Service([created(), page(status)]), intent(number=1), intent(number=2))
    assert isinstance(verdicts[1], verdict)


def test_waits_grow_and_are_bounded_and_maintenance_announced_by_a_503_is_waited_out() -> None:
    _, service = answers_to(RESET, policy=RetryPolicy(attempts=7, budget_s=900, first_wait_s=1, longest_wait_s=10))
    waits = [after - before for before, after in pairwise(service.times)]
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10])
    verdict, service = answers_to(told(503, "down", headers={"retry-after": "120"}), created())
    assert (type(verdict), service.times[1]) == (Receipt, pytest.approx(120))


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


@pytest.mark.parametrize(("wait_s", "ends_after_s", "ends_by_s"), [(5, 60.0, 120.0), (3600, -1.0, 1.0)])
def test_an_attempt_that_never_ends_is_uncertain_and_a_wait_beyond_the_budget_is_left_to_a_later_run(
    wait_s: int, ends_after_s: float, ends_by_s: float
) -> None:
    async def timed(api: EventApi) -> tuple[Verdict, float]:
        return await api.deliver(intent(is_unanswered=True)), clock()

    verdict, took_s = ask(Service([told(409, "conflict", headers={"retry-after": str(wait_s)})]), timed)
    assert isinstance(verdict, Uncertain)
    assert ends_after_s < took_s <= ends_by_s


def test_rows_whose_first_answers_were_lost_wait_for_their_409_side_by_side(world: World) -> None:
    """Each is asked about for as long as its lost attempt may be at work; none of them holds a slot meanwhile."""
    seen, ended_at = set[str](), [0.0]
    world.stage([row(str(number)) for number in range(24)])

    async def service(request: httpx.Request) -> httpx.Response:
        key, ended_at[0] = request.headers["idempotency-key"], clock()
        if key not in seen:
            seen.add(key)
            raise RESET
        return CONFLICT

    assert published(world, service, in_flight=4) is None
    assert set(world.states().values()) == {"delivered_unconfirmed"}
    assert ended_at[0] < RetryPolicy().at_work_s + 15
