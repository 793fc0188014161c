"""The drain over a real outbox: requests under way, answers written down, and when it stops for what answers say together."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import httpx
import pytest
from unit.connectors_api.wired import created, intent, page, told
from unit.pipelines.publishing import published
from unit.state.world import World, answer, receipt, row
from virtual_time import at_once

from connectors.errors import OutageError
from mappings.delivery import Answer, Blocked, Conflict, Intent, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from pipelines.run.outcome import BrakeError
from pipelines.run.preflight import ExpectedRefusal
from pipelines.run.publish import MOST_IN_A_ROW, PATIENT_ANSWERS, SAME_REFUSALS, Drain, SystemicFailure, patience_with
from state.errors import StateBusyError
from state.ledger.outbox import Outbox, Settled

Deliver = Callable[[Intent], Awaitable[Verdict]]
Answers = Callable[[httpx.Request], httpx.Response]
IDS = count(1)


@dataclass
class Watched:
    """The outbox, with a look at each transaction before it begins."""

    outbox: Outbox
    look: Callable[[Sequence[Settled]], None]

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        self.look(settled)
        return self.outbox.settle_and_claim(settled, want)


def _staged(world: World, rows: int) -> Outbox:
    world.stage([row(str(number)) for number in range(rows)])
    return world.outbox()


def _drain(outbox: Outbox | Watched, deliver: Deliver, *, in_flight: int = 4) -> Drain:
    drain = Drain(outbox, in_flight, 0.05, lambda _: None, deliver)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    return drain


def _begun(world: World) -> int:
    return sum(entry.state == "pending" and entry.attempts > 0 for entry in world.rows())


def test_a_slot_takes_its_next_row_only_when_its_last_answer_is_durable(world: World) -> None:
    outbox, keys, under_way, counts = _staged(world, 40), list[str](), set[str](), set[tuple[int, int]]()

    async def deliver(intent: Intent) -> Verdict:
        keys.append(intent.key)
        under_way.add(intent.key)
        counts.add((_begun(world), len(under_way)))
        for _ in range(1 + int(intent.row_key) % 4):  # some rows take longer than others
            await asyncio.sleep(0)
        under_way.discard(intent.key)
        return receipt(intent)

    assert _drain(outbox, deliver, in_flight=3).cause is None
    assert [max(column) for column in zip(*counts, strict=True)] == [3, 3]
    assert len(keys) == len(set(keys)) == outbox.account().delivered == 40


def test_no_slot_stays_empty_while_its_last_row_is_settled(world: World) -> None:
    _staged(world, 40)
    under_way, sent, most, ahead = 0, count(1), set[int](), set[int]()

    async def service(_request: httpx.Request) -> httpx.Response:
        nonlocal under_way
        under_way += 1
        number, entries = next(sent), world.rows()
        assert sum(entry.attempts > 0 for entry in entries) >= number, "every request is on record before it leaves"
        most.add(under_way)
        ahead.add(number - sum(entry.state == "delivered" for entry in entries))
        await asyncio.sleep(number % 3 / 1000)
        under_way -= 1
        return created(next(IDS))

    assert published(world, service, in_flight=4) is None
    assert (max(most), max(ahead)) == (4, 5)


def test_no_answer_waits_for_one_that_the_service_has_not_given(world: World) -> None:
    groups: list[list[str]] = []
    others_are_settled = asyncio.Event()

    def look(settled: Sequence[Settled]) -> None:
        groups.append([one.intent.row_key for one in settled])
        others_are_settled.set() if len(groups) == 6 else None

    async def deliver(intent: Intent) -> Verdict:
        if intent.row_key == "0":
            await others_are_settled.wait()
        return receipt(intent)

    _drain(Watched(_staged(world, 6), look), deliver, in_flight=2)
    assert groups == [[], ["1"], ["2"], ["3"], ["4"], ["5"], ["0"]]


def test_a_request_that_outlasts_the_grace_is_left_and_its_row_stays_owed(world: World) -> None:
    outbox, asked = _staged(world, 9), count(1)

    async def deliver(intent: Intent) -> Verdict:
        if next(asked) == 4:
            drain.stop()
            await asyncio.Event().wait()
        return receipt(intent)

    drain = Drain(outbox, 3, 0.05, lambda _: None, deliver)
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    account, sent = outbox.account(), next(asked) - 1
    assert (account.delivered, account.pending, _begun(world)) == (sent - 1, 10 - sent, 1)


def test_a_fault_in_delivering_is_raised_and_the_other_requests_are_ended(world: World) -> None:
    outbox, cancelled = _staged(world, 8), []

    async def deliver(intent: Intent) -> Verdict:
        if intent.row_key == "2":
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(intent.row_key)
        raise AssertionError

    with pytest.raises(ZeroDivisionError):
        _drain(outbox, deliver)
    assert sorted(cancelled) == ["0", "1", "3"]
    assert set(world.states().values()) == {"pending"}


def test_a_state_db_that_stays_away_ends_the_drain_after_a_while(tmp_path: Path) -> None:
    world, keys = World(f"sqlite:///{tmp_path / 'state.db'}?timeout=0.01"), list[str]()

    async def deliver(intent: Intent) -> Verdict:
        keys.append(intent.key)
        if len(keys) == 5:
            other_process.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1)
        return receipt(intent)

    drain = Drain(_staged(world, 12), 4, 5.0, lambda _rows: None, deliver)
    other_process = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
    with closing(other_process), pytest.raises(StateBusyError, match="held by another process"):
        at_once(drain.run)
    states = world.states()
    assert len(keys) <= sum(world.known(key).attempts > 0 for key in states), "every request was on record before it left"
    assert Counter(states.values())["delivered"] == 4
    world.engine.dispose()


def _cause(world: World, rows: int, answers: Answers, *, in_flight: int = 4) -> SyncError | None:
    """Send so many rows to a service and return why the drain ended early."""
    _staged(world, rows)

    async def service(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return answers(request)

    return published(world, service, in_flight=in_flight, attempts=6)


def _chokes_on(*numbers: int) -> Answers:
    """A service that answers a page of its proxy's for rows of these numbers, and takes all others."""

    def answers(request: httpx.Request) -> httpx.Response:
        return page(500) if any(b'Title of %d"' % number in request.content for number in numbers) else created(next(IDS))

    return answers


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_a_row_that_the_service_never_answers_stops_no_other_row(world: World, in_flight: int) -> None:
    assert _cause(world, 8, _chokes_on(3), in_flight=in_flight) is None
    assert Counter(world.states().values()) == {"delivered": 7, "uncertain": 1}


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_rows_that_no_service_digests_are_not_what_every_run_begins_with(world: World, in_flight: int) -> None:
    assert isinstance(_cause(world, 12, _chokes_on(0, 1, 2, 3), in_flight=in_flight), OutageError)
    world.clock.turn(minutes=5)
    for _ in range(4):
        _cause(world, 12, _chokes_on(0, 1, 2, 3), in_flight=in_flight)
    assert Counter(world.states().values())["delivered"] == 8


@pytest.mark.parametrize("gateway", ["", "one for all"], ids=["kept under the key of each row", "of a gateway: an outage"])
def test_failures_with_a_request_id_for_each_key_are_no_outage(world: World, gateway: str) -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return told(500, "internal_error", request_id=gateway or f"of {request.headers['idempotency-key']}")

    assert isinstance(_cause(world, 12, answers), OutageError) is bool(gateway)
    assert ("pending" in world.states().values()) is bool(gateway)


REFUSED = Refusal(answer(400))
IN_THE_PAST = Refusal(Answer(400, "code", "message", "req", "startAt", "in the past"))
UNCERTAIN = Uncertain(answer(503))
RECEIPT = Receipt(1, answer(201))


def _causes(verdicts: Sequence[Verdict], patience: int) -> list[SyncError | None]:
    systemic = SystemicFailure(patience)
    return [systemic.cause(intent(), verdict) for verdict in verdicts]


FORTY = "40 rows in a row were all refused for the same reason: code title too long"
ALMOST = [REFUSED] * (SAME_REFUSALS - 1)
TOGETHER: dict[str, tuple[list[Verdict], str]] = {
    "one went well": ([RECEIPT, *[REFUSED] * 100], ""),
    "one went well late": ([*ALMOST, RECEIPT, *[REFUSED] * 100], ""),
    "one is confirmed": ([Unconfirmed(answer(409)), *[REFUSED] * 100], ""),
    "another issue": ([REFUSED, REFUSED, *[IN_THE_PAST] * 100], ""),
    "rows of their own": ([Blocked(answer(403)), Conflict(answer(409)), Superseded(answer(409))] * 50, ""),
    "rows that arrive between them": ([RECEIPT, *[*ALMOST, RECEIPT] * 50], ""),
    "another refusal between them": ([RECEIPT, *[*ALMOST, IN_THE_PAST] * 50], ""),
    "a blocked row between them": ([RECEIPT, *[*ALMOST, Blocked(answer(403))] * 50], ""),
    "a conflict between them": ([RECEIPT, *[*ALMOST, Conflict(answer(409))] * 50], ""),
    "all first rows: the mapping's fault": ([REFUSED] * SAME_REFUSALS, "too long"),
    "all passed before": ([*[RECEIPT] * 300, *[REFUSED] * 40], FORTY),
    "mixed before": ([IN_THE_PAST, *[REFUSED] * 5, RECEIPT, *[REFUSED] * 40], FORTY),
    "refusals of earlier bodies between them": ([RECEIPT, *[Superseded(answer(400)), REFUSED] * 40], FORTY),
    "a failing service between them": ([RECEIPT, REFUSED, *[UNCERTAIN, REFUSED] * 39], FORTY),
}


@pytest.mark.parametrize(("verdicts", "words"), TOGETHER.values(), ids=TOGETHER)
def test_the_same_refusal_stops_a_run_once_it_outgrows_what_may_be_bad_and_nothing_else_does(
    verdicts: list[Verdict], words: str
) -> None:
    *before, cause = _causes(verdicts, patience=40 if words else MOST_IN_A_ROW)
    assert set(before) == {None}
    assert (getattr(cause, "brakes", ()), words in str(cause)) == (("same refusal",) if words else (), True)


@pytest.mark.parametrize(
    ("owed", "bad_share", "patience"),
    [(1, 0.05, 25), (480, 0.05, 25), (500, 0.05, 26), (6000, 0.05, 301), (100, 0.29, 30), (10**6, 0.05, 1000), (50, None, 1000)],
)
def test_one_row_more_in_a_row_than_the_feed_lets_be_bad_is_too_many_within_bounds(
    owed: int, bad_share: float | None, patience: int
) -> None:
    assert patience_with(owed, bad_share) == patience


def test_after_a_stop_rows_go_one_by_one_until_one_has_passed_and_the_same_refusal_stops_the_next_run_at_once() -> None:
    systemic = SystemicFailure(stopped_by="code title too long")
    assert (systemic.cause(intent(), IN_THE_PAST), systemic.is_doubtful) == (None, True)
    assert isinstance(replace(systemic).cause(intent(), REFUSED), BrakeError)
    assert (systemic.cause(intent(), RECEIPT), systemic.is_doubtful) == (None, False)
    assert systemic.cause(intent(), REFUSED) is None


ORGANIZER = ExpectedRefusal("`organizer` is required; we do not send it", frozenset({"organizer"}))
IN_A_LIST = ExpectedRefusal("", frozenset({"offers[].url"}))
ANNOUNCED = Refusal(Answer(400, "invalid_request", "invalid", "req-1", "organizer"))


def test_before_an_announced_refusal_rows_go_one_by_one_until_one_has_passed(world: World) -> None:
    world.stage([row(str(number)) for number in range(8)])
    answers = iter([Refusal(Answer(400, field="title", issue="too long")), Refusal(Answer(400, field="startAt", issue="past"))])
    under_way: set[str] = set()
    counts: list[int] = []

    async def deliver(intent: Intent) -> Verdict:
        under_way.add(intent.key)
        counts.append(len(under_way))
        verdict = next(answers, receipt(intent))
        await asyncio.sleep(0)
        under_way.discard(intent.key)
        return verdict

    drain = Drain(world.outbox(), 4, 5.0, lambda _: None, deliver, systemic=SystemicFailure(owed=8, expected=(ORGANIZER,)))
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    assert (drain.cause, drain.systemic.has_disproved) == (None, True)
    assert (counts[:3], max(counts)) == ([1, 1, 1], 4)


@pytest.mark.parametrize(
    ("expected", "answers", "is_explained"),
    [
        # however the service spells its place
        (ORGANIZER, [Answer(422, field=field) for field in ("organizer", "body.organizer", "/organizer", "Organizer")], True),
        (ORGANIZER, [Answer(422, issue=issue) for issue in ("organizer is required", "Missing property: `organizer`")], True),
        (IN_A_LIST, [Answer(400, field=f) for f in ("offers[0].url", "/offers/0/url", "body.offers[12].url")], True),
        (ORGANIZER, [Answer(400, field="title", issue="organizer"), Answer(400, field="coOrganizer")], False),
        (ORGANIZER, [Answer(400, message="the organizers are many"), Answer(404, message="no channel of this organizer")], False),
        (ORGANIZER, [Answer(403, message="organizer")], False),
    ],
)
def test_an_announced_refusal_is_recognised_and_no_other_complaint_is_taken_for_it(
    expected: ExpectedRefusal, answers: list[Answer], is_explained: bool
) -> None:
    assert {expected.explains(answer) for answer in answers} == {is_explained}


QUIET = [Superseded(Answer(400, field="organizer")), UNCERTAIN, Conflict(Answer(409)), Blocked(Answer(403))]
HEEDED: dict[str, tuple[list[Verdict], bool, bool]] = {
    "what says nothing about the contract": ([*QUIET, ANNOUNCED], False, True),
    "rows that may have been sent earlier say nothing by passing": ([*[RECEIPT] * (2 * PATIENT_ANSWERS), ANNOUNCED], True, True),
    "one is confirmed": ([Unconfirmed(Answer(409)), ANNOUNCED], False, True),
    "a row passed": ([RECEIPT, ANNOUNCED], False, False),
    "many answers: the care does not last for ever": ([*[UNCERTAIN] * PATIENT_ANSWERS, ANNOUNCED], False, False),
}


@pytest.mark.parametrize(("verdicts", "is_unanswered", "is_stopped"), HEEDED.values(), ids=HEEDED)
def test_a_drain_stops_where_a_row_is_refused_as_announced_until_one_has_disproved_it(
    verdicts: list[Verdict], is_unanswered: bool, is_stopped: bool
) -> None:
    systemic = SystemicFailure(owed=100, expected=(ORGANIZER,))
    *before, last = [systemic.cause(intent(is_unanswered=is_unanswered), verdict) for verdict in verdicts]
    assert set(before) <= {None}
    assert isinstance(last, BrakeError) is is_stopped
