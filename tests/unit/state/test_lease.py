"""A feed's lease: over a holder's death, under clocks that lie, and under two who come at once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from empty_books import lay_out
from hypothesis import given, settings
from hypothesis import strategies as st
from integration.waiting import pause, until
from sqlalchemy import Engine
from unit.state.world import DESTINATION, FEED, Clock, World

from mappings.row_key import FeedName
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.lease import FencedTransaction, Holder, Lease, LeaseClock, is_running, this_process
from state.ledger.ledger import Ledger
from state.opening import open_database
from state.queries import LedgerQueries, held_leases

CHILD = """
import dataclasses, json, sys
from state.ledger.lease import this_process
print(json.dumps(dataclasses.astuple(this_process("eventsync run"))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(world: World) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the feed until it is killed."""
    world.lease.release()
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert world.ledger.acquire_lease(Holder(*json.loads(process.stdout.readline()))).token == 2
        with pytest.raises(HeldByAnotherError, match="eventsync run"):
            world.ledger.acquire_lease("second")
        yield process
        process.kill()


@pytest.mark.parametrize("is_reaped", [True, False], ids=["reaped", "not reaped"])
def test_a_holder_that_was_killed_is_followed_at_once(world: World, holder: subprocess.Popen[str], is_reaped: bool) -> None:
    assert [*held_leases(world.engine, DESTINATION, world.clock.lease_clock)] == [(FEED, "eventsync run", True)]
    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
    assert [*held_leases(world.engine, DESTINATION, world.clock.lease_clock)] == [(FEED, "eventsync run", False)]
    shown = LedgerQueries(world.engine).status()[0].lease
    assert shown is not None
    assert (shown.pid, shown.is_gone) == (holder.pid, True)
    assert world.ledger.acquire_lease("second").token == 3


@pytest.mark.parametrize(
    ("changes", "runs"),
    [({}, True), ({"started": 1.0}, False), ({"pid": 2**22 + 5}, False)]
    + [({"pid": 2**22 + 5, name: "another"}, True) for name in ("host", "boot")],
    ids=["this one", "one that had this one's number", "a dead one", "one of another host", "one of a machine of the same name"],
)
def test_a_process_is_known_by_its_host_boot_number_and_start(changes: dict[str, Any], runs: bool) -> None:
    assert is_running(replace(this_process("test"), **changes)) is runs


def test_a_renewed_lease_does_not_expire_and_one_that_was_taken_over_is_lost(world: World) -> None:
    for _ in range(5):
        world.clock.turn(seconds=50)
        world.lease.renew()
    with pytest.raises(HeldByAnotherError):
        world.ledger.acquire_lease("second")
    world.clock.turn(seconds=61)
    second = world.ledger.acquire_lease("second")
    with pytest.raises(LeaseLostError, match="another run has taken this feed over"):
        world.lease.renew()
    world.lease.release()
    second.renew()


def test_a_released_lease_lets_the_next_run_in_at_once_under_a_larger_token(world: World) -> None:
    world.lease.release()
    with world.ledger.acquire_lease("second") as second:
        assert second.token > world.lease.token
    with pytest.raises(LeaseLostError):
        second.renew()
    assert world.ledger.acquire_lease("third").token > second.token


on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
on_postgres = pytest.mark.parametrize("kind", ["postgresql"])


def ledger_of(engine: Engine, clock: Clock | None = None, *, ttl_s: float = 60.0) -> Ledger:
    now = clock or Clock()
    lease_clock = LeaseClock(now, engine.dialect.name == "postgresql", ttl_s)
    return Ledger(engine, DESTINATION, FEED, namespace="tests", now=now, lease_clock=lease_clock)


ELSEWHERE = Holder("far away", "elsewhere pid:[1]", 7, 1.0, "another boot")
"""A process of another host, of which we cannot know whether it runs."""


@on_sqlite
def test_a_heartbeat_in_the_future_of_a_clock_that_was_set_back_keeps_no_run_out_for_long(engine: Engine) -> None:
    clock = Clock()
    ledger_of(engine, clock).acquire_lease(ELSEWHERE)
    clock.turn(days=-400)
    assert ledger_of(engine, clock).acquire_lease("second").token == 2


@on_postgres
@pytest.mark.parametrize("hours", [-5, 5], ids=["behind", "ahead"])
def test_hosts_whose_clocks_are_hours_apart_agree_on_who_holds_the_feed(engine: Engine, hours: int) -> None:
    ours, theirs = ledger_of(engine, Clock()), ledger_of(engine, Clock(Clock().instant + timedelta(hours=hours)))
    lease = theirs.acquire_lease(ELSEWHERE)
    with pytest.raises(HeldByAnotherError) as held:
        ours.acquire_lease("second")
    assert abs(held.value.since - datetime.now(UTC)) < timedelta(minutes=5)  # noqa: TID251  # the server's is real
    lease.renew()
    lease.release()
    assert ours.acquire_lease("second").token == 2


@on_postgres
def test_a_silent_holder_of_another_host_is_followed_by_the_servers_clock_alone(engine: Engine) -> None:
    ledger = ledger_of(engine, ttl_s=2.0)  # its own clock stands still
    ledger.acquire_lease(ELSEWHERE)
    with pytest.raises(HeldByAnotherError, match="far away"):
        ledger.acquire_lease("second")
    assert until(lambda: _taken(ledger)).token == 2


def _taken(ledger: Ledger) -> Lease | None:
    try:
        return ledger.acquire_lease("second")
    except HeldByAnotherError:
        return None


def test_a_process_is_known_by_its_start_whatever_the_time_of_day_was_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    own = this_process("test")
    boot_time = __import__("psutil").boot_time()
    # What the system answers once its clock was set back by three hours: it moves the boot, and with it every start.
    monkeypatch.setattr("psutil.boot_time", lambda: boot_time - 10_800)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time - 10_800)
    assert is_running(own)


def test_of_many_who_follow_a_dead_holder_one_gets_the_feed(engine: Engine) -> None:
    start, crowd = Barrier(8), 8
    ledger_of(engine).acquire_lease(replace(this_process("dead"), pid=2**22 + 5))

    def acquire(_number: int) -> Lease | None:
        ledger = ledger_of(engine)
        start.wait()
        return _taken(ledger)

    with ThreadPoolExecutor(crowd) as pool:
        leases = list(pool.map(acquire, range(crowd)))
    assert [lease.token for lease in leases if lease] == [2]


@on_sqlite
def test_a_long_transaction_renews_the_lease_at_its_end(engine: Engine) -> None:
    clock = Clock()
    ledger = ledger_of(engine, clock)
    turn = _turn(engine, ledger, ELSEWHERE)
    with turn.transaction():
        clock.turn(seconds=90)
    with pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")


@on_postgres
def test_who_asks_during_a_slow_transaction_of_the_holder_is_told_at_once(engine: Engine) -> None:
    ledger = ledger_of(engine)
    turn = _turn(engine, ledger, ELSEWHERE)
    with turn.transaction(), pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")


@on_postgres
def test_a_takeover_waits_for_the_holders_transaction_and_finds_that_it_has_spoken(engine: Engine) -> None:
    ledger = ledger_of(engine, ttl_s=1.0)
    turn = _turn(engine, ledger, ELSEWHERE)
    inside, go_on = Event(), Event()

    def hold() -> None:
        with turn.transaction():
            inside.set()
            go_on.wait(30)

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(hold)
        inside.wait(30)
        pause(1.2)  # the holder has been silent for too long, as far as anybody can see
        asking = pool.submit(_taken, ledger)
        pause(0.2)
        go_on.set()
        holding.result(30)
        assert asking.result(30) is None


EXAMPLES = int(os.environ.get("EVENTSYNC_TEST_EXAMPLES", "20"))
STEPS = st.lists(st.tuples(st.sampled_from(["acquire", "acquire", "renew", "release", "time"]), st.integers(0, 4)), min_size=5)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{lay_out(Path(tmp_path_factory.mktemp('leases')) / 'state.db')}")
    yield engine
    engine.dispose()


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(steps=STEPS)
def test_one_run_at_most_can_write_in_any_order_of_taking_renewing_and_expiring(
    one_file: Engine, steps: list[tuple[str, int]]
) -> None:
    clock, tokens, held = Clock(), [0], dict[int, Lease]()
    feed = FeedName(f"feed-{next(NUMBERS)}")
    ledger = Ledger(one_file, DESTINATION, feed, namespace="", now=clock, lease_clock=clock.lease_clock)
    for step, worker in steps:
        with suppress(HeldByAnotherError, LeaseLostError):
            if step == "time":
                clock.turn(seconds=20 + 20 * worker)
            elif step == "acquire":
                held[worker] = ledger.acquire_lease(ELSEWHERE)
                tokens.append(held[worker].token)
                assert tokens[-1] > tokens[-2]
            elif worker in held:
                held[worker].renew() if step == "renew" else held.pop(worker).release()
        assert sum(_can_write(ledger, lease) for lease in held.values()) <= 1


def _can_write(ledger: Ledger, lease: Lease) -> bool:
    """Whether a transaction of the lease would commit; it is not committed, so that nothing is renewed."""
    try:
        with ledger.fence("run", lease.token).transaction() as connection:
            connection.rollback()
    except LeaseLostError:
        return False
    return True


def _turn(engine: Engine, ledger: Ledger, holder: Holder) -> FencedTransaction:
    """The turn of a run that holds the feed."""
    lease = ledger.acquire_lease(holder)
    return FencedTransaction(engine, lease.scope_id, FEED, "tests", "run-1", lease.token, Clock(), lease.clock)
