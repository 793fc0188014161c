from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.state.world import DESTINATION, FEED, World

from mappings.row_key import FeedName
from state.database import reading
from state.holders import HeldByAnotherError, LeaseLostError, is_running, this_process
from state.ledger.ledger import Ledger
from state.queries import LedgerQueries

HOLD = """
import sys
from datetime import datetime
from state.database import open_database
from state.ledger.ledger import Ledger
from state.ledger.lease import LeaseClock
from state.holders import BootClock
now = datetime.fromisoformat(sys.argv[4])
lease_clock = LeaseClock(lambda: now, BootClock("this boot", now.timestamp))
ledger = Ledger(open_database(sys.argv[1]), sys.argv[2], sys.argv[3], namespace="tests", now=lambda: now, lease_clock=lease_clock)
print(ledger.acquire_lease("eventsync run").token, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(world: World) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the feed until it is killed."""
    world.lease.release()
    command = [sys.executable, "-c", HOLD, world.url, DESTINATION, FEED, world.clock().isoformat()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        yield process
        process.kill()


def test_a_second_run_is_told_who_holds_the_feed_since_when(world: World, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(HeldByAnotherError, match="held by eventsync run") as caught:
        world.ledger.acquire_lease("second")
    assert (caught.value.pid, caught.value.since, caught.value.holder) == (holder.pid, world.clock(), "eventsync run")
    told = LedgerQueries(world.engine).status()[0].lease
    assert told is not None
    assert (told.pid, told.is_gone) == (holder.pid, False)


def test_a_holder_that_was_killed_is_followed_at_once(world: World, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    told = LedgerQueries(world.engine).status()[0].lease
    assert told is not None
    assert (told.pid, told.is_gone) == (holder.pid, True)
    assert world.ledger.acquire_lease("second").token == 3


def test_a_killed_holder_that_nobody_has_reaped_is_dead_too(world: World, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert world.ledger.acquire_lease("second").token == 3


def test_a_living_holder_that_falls_silent_is_followed_after_a_while(world: World, holder: subprocess.Popen[str]) -> None:
    assert holder.poll() is None
    world.clock.turn(seconds=59)
    with pytest.raises(HeldByAnotherError):
        world.ledger.acquire_lease("second")
    world.clock.turn(seconds=2)
    assert world.ledger.acquire_lease("second").token == 3


def test_a_process_that_got_a_dead_ones_number_is_not_mistaken_for_it() -> None:
    own = this_process("test")
    assert is_running(own)
    assert not is_running(replace(own, started=own.started - 100))


def test_a_process_on_another_host_counts_as_running() -> None:
    assert is_running(replace(this_process("test"), host="elsewhere", pid=2**22 + 5))


def test_a_renewed_lease_does_not_expire(world: World) -> None:
    for _ in range(5):
        world.clock.turn(seconds=50)
        world.lease.renew()
    with pytest.raises(HeldByAnotherError):
        world.ledger.acquire_lease("second")


def test_a_lease_that_was_taken_over_cannot_be_renewed_and_its_release_harms_nobody(world: World) -> None:
    world.clock.turn(seconds=61)
    second = world.ledger.acquire_lease("second")
    with pytest.raises(LeaseLostError):
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


def test_each_feed_has_its_own_lease(world: World) -> None:
    other = Ledger(
        world.engine, DESTINATION, FeedName("other"), namespace="tests", now=world.clock, lease_clock=world.clock.lease_clock
    )
    assert other.acquire_lease("second").token == 1


def test_a_heartbeat_beside_a_transaction_leaves_one_connection_to_hold_pages(tmp_path: Path) -> None:
    world = World(tmp_path / "state.db")
    with reading(world.engine):
        world.lease.renew()
    used = set()
    for _ in range(3):
        with reading(world.engine) as connection:
            used.add(id(connection.connection.dbapi_connection))
    assert len(used) == 1
