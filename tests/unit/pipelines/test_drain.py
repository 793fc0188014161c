"""The drain over a real outbox: how many requests are under way, when answers are written down, how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select
from unit.state.world import World, answer, receipt, row

from connectors.errors import KeyRefusedError
from mappings.delivery import Intent, Postponed, Refusal, Superseded, Verdict
from pipelines.run.publish import Drain
from pipelines.run.signals import InterruptedRunError
from state.holders import LeaseLostError
from state.ledger.outbox import Outbox, Settled
from state.tables import ENTRY

Deliver = Callable[[Intent], Awaitable[Verdict]]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()


@dataclass
class Watched:
    """The outbox, with a look at each transaction before it begins."""

    outbox: Outbox
    look: Callable[[Sequence[Settled]], None]

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        self.look(settled)
        return self.outbox.settle_and_claim(settled, want)


@dataclass
class Sent:
    """What a service of one's own saw: how many at a time, and which titles in which order."""

    now: int = 0
    most: int = 0
    keys: list[str] = field(default_factory=list)

    async def deliver(self, intent: Intent) -> Verdict:
        self.now, self.most = self.now + 1, max(self.most, self.now + 1)
        self.keys.append(intent.key)
        await _answer_of(intent)
        self.now -= 1
        return receipt(intent)


async def _answer_of(intent: Intent) -> None:
    """Take a few turns of the loop, some rows longer than others."""
    for _ in range(1 + int(intent.row_key) % 4):
        await asyncio.sleep(0)


def _staged(world: World, rows: int) -> Outbox:
    world.stage([row(str(number)) for number in range(rows)])
    return world.outbox()


def _drain(outbox: Outbox | Watched, deliver: Deliver, *, in_flight: int = 4, grace_s: float = 5.0) -> Drain:
    advanced: list[int] = []
    drain = Drain(outbox, in_flight, grace_s, advanced.append, deliver)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    return drain


def test_every_row_owed_is_sent_once_and_never_more_at_a_time_than_allowed(world: World) -> None:
    outbox, sent = _staged(world, 50), Sent()
    drain = _drain(outbox, sent.deliver)

    assert len(sent.keys) == len(set(sent.keys)) == 50
    assert sent.most <= 4
    assert drain.cause is None
    assert set(world.states().values()) == {"delivered"}
    assert outbox.account().delivered == 50


def test_progress_counts_every_row_that_ended(world: World) -> None:
    outbox, advanced = _staged(world, 30), []
    asyncio.run(Drain(outbox, 4, 5.0, advanced.append, Sent().deliver).run())
    assert sum(advanced) == 30


def test_a_slot_takes_its_next_row_only_when_its_last_answer_is_durable(world: World) -> None:
    outbox = _staged(world, 40)
    begun = select(func.count()).where(ENTRY.c.state == "pending", ENTRY.c.attempts > 0)
    most = 0

    async def deliver(intent: Intent) -> Verdict:
        nonlocal most
        with world.engine.connect() as connection:
            most = max(most, connection.execute(begun).scalar_one())
        await _answer_of(intent)
        return receipt(intent)

    _drain(outbox, deliver, in_flight=3)
    assert most == 3


def test_answers_that_arrive_together_are_written_down_together(world: World) -> None:
    outbox, groups = _staged(world, 12), []
    waiting: list[asyncio.Event] = []

    async def deliver(intent: Intent) -> Verdict:
        waiting.append(asyncio.Event())
        if len(waiting) == 4:
            for one in waiting:
                one.set()
            waiting.clear()
        else:
            await waiting[-1].wait()
        return receipt(intent)

    _drain(Watched(outbox, lambda settled: groups.append(len(settled))), deliver)
    assert sum(groups) == 12
    assert max(groups) > 1
    assert set(world.states().values()) == {"delivered"}


def test_answers_that_are_on_their_way_through_the_loop_are_written_down_together(world: World) -> None:
    outbox, groups = _staged(world, 8), []

    async def deliver(intent: Intent) -> Verdict:
        for _ in range(int(intent.row_key) % 4):
            await asyncio.sleep(0)
        return receipt(intent)

    _drain(Watched(outbox, lambda settled: groups.append(len(settled))), deliver)
    assert groups == [0, 4, 4]


def test_no_answer_waits_for_one_that_the_service_has_not_given(world: World) -> None:
    outbox, groups = _staged(world, 6), []
    others_are_settled = asyncio.Event()

    def look(settled: Sequence[Settled]) -> None:
        groups.append([one.intent.row_key for one in settled])
        others_are_settled.set() if len(groups) == 6 else None

    async def deliver(intent: Intent) -> Verdict:
        if intent.row_key == "0":
            await others_are_settled.wait()
        return receipt(intent)

    _drain(Watched(outbox, look), deliver, in_flight=2)
    assert groups == [[], ["1"], ["2"], ["3"], ["4"], ["5"], ["0"]]


@pytest.mark.parametrize("rows", [2, 4, 5, 12])
def test_an_answer_that_arrives_while_others_are_written_down_is_not_lost(world: World, rows: int) -> None:
    outbox = _staged(world, rows)
    is_being_written = asyncio.Event()

    def look(settled: Sequence[Settled]) -> None:
        if settled:
            is_being_written.set()

    async def deliver(intent: Intent) -> Verdict:
        if intent.row_key != "0":
            await is_being_written.wait()
        return receipt(intent)

    drain = _drain(Watched(outbox, look), deliver)
    assert drain.cause is None
    assert set(world.states().values()) == {"delivered"}
    assert outbox.account().delivered == rows


def test_a_stop_takes_no_new_rows_and_waits_for_those_in_flight(world: World) -> None:
    outbox, sent = _staged(world, 20), Sent()
    drain = Drain(outbox, 4, 5.0, lambda _: None)

    async def deliver(intent: Intent) -> Verdict:
        if len(sent.keys) == 6:
            drain.stop()
        return await sent.deliver(intent)

    drain.deliver = deliver
    asyncio.run(asyncio.wait_for(drain.run(), 30))

    assert isinstance(drain.cause, InterruptedRunError)
    account = outbox.account()
    assert account.delivered == len(sent.keys)
    assert 7 <= account.delivered <= 6 + 4
    assert account.pending == 20 - account.delivered


def test_a_request_that_outlasts_the_grace_is_left_and_its_row_stays_owed(world: World) -> None:
    outbox = _staged(world, 9)
    drain = Drain(outbox, 3, 0.05, lambda _: None)
    asked = 0

    async def deliver(intent: Intent) -> Verdict:
        nonlocal asked
        asked += 1
        if asked == 4:
            drain.stop()
            await asyncio.Event().wait()
        return receipt(intent)

    drain.deliver = deliver
    asyncio.run(asyncio.wait_for(drain.run(), 30))

    account = outbox.account()
    assert (account.delivered, account.pending) == (asked - 1, 9 - asked + 1)
    open_attempts = select(func.count()).where(ENTRY.c.state == "pending", ENTRY.c.unanswered_at.is_not(None))
    with world.engine.connect() as connection:
        assert connection.execute(open_attempts).scalar_one() == 1


def test_the_first_cause_of_a_stop_stands(world: World) -> None:
    drain = Drain(_staged(world, 1), 1, 1.0, lambda _: None, Sent().deliver)
    lost = LeaseLostError("another run has taken over")
    drain.stop(lost)
    drain.stop()
    asyncio.run(drain.run())
    assert drain.cause is lost
    assert world.states() == {"0": "pending"}


def test_a_cause_of_the_whole_route_stops_the_drain_and_leaves_all_rows_owed(world: World) -> None:
    outbox = _staged(world, 20)
    cause = KeyRefusedError("the key is revoked")

    async def deliver(_intent: Intent) -> Verdict:
        return Postponed(answer(401), cause)

    drain = _drain(outbox, deliver)
    assert drain.cause is cause
    assert set(world.states().values()) == {"pending"}
    assert outbox.account().pending == 20


def test_a_corrected_row_goes_out_again_under_its_next_key(world: World) -> None:
    world.stage([row("1", "Refused")])
    world.publish(Refusal(answer(400, "req-1")))
    world.stage([row("1", "Corrected")])
    keys: list[str] = []

    async def deliver(intent: Intent) -> Verdict:
        keys.append(intent.key)
        return Superseded(answer(400, "req-1")) if len(keys) == 1 else receipt(intent)

    _drain(world.outbox(), deliver)
    assert len(set(keys)) == 2
    assert world.states() == {"1": "delivered"}


def test_a_fault_in_delivering_is_raised_and_the_other_requests_are_ended(world: World) -> None:
    outbox, cancelled = _staged(world, 8), []

    async def deliver(intent: Intent) -> Verdict:
        if intent.row_key == "2":
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(intent.row_key)
            raise
        raise AssertionError

    with pytest.raises(ZeroDivisionError):
        _drain(outbox, deliver)
    assert sorted(cancelled) == ["0", "1", "3"]
    assert set(world.states().values()) == {"pending"}


def test_a_lost_lease_ends_the_drain_before_anything_more_is_sent(world: World) -> None:
    outbox, sent = _staged(world, 40), Sent()

    async def deliver(intent: Intent) -> Verdict:
        if len(sent.keys) == 10:
            world.lease.release()
            world.ledger.acquire_lease("another run")
        return await sent.deliver(intent)

    with pytest.raises(LeaseLostError):
        _drain(outbox, deliver)
    assert len(sent.keys) <= 10 + 4
