"""A lease under clocks that lie: set in mid-run, apart between hosts, started anew; and under two who come at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest
from integration.waiting import pause, until
from postgres import Postgres
from sqlalchemy import Engine
from unit.state.world import DESTINATION, FEED, Clock

from state.database import open_database
from state.holders import (
    BootClock,
    HeldByAnotherError,
    Holder,
    LeaseLostError,
    boot_clock,
    is_running,
    seconds_since_boot,
    this_process,
)
from state.ledger.lease import FencedTransaction, Lease, LeaseClock
from state.ledger.ledger import Ledger
from state.queries import LedgerQueries

HERE = BootClock("boot-1", lambda: 0.0)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.dispose()


def ledger_of(engine: Engine, clock: Clock | None = None, *, ttl_s: float = 60.0, pulse: BootClock | None = None) -> Ledger:
    now = clock or Clock()
    own = pulse or (boot_clock() if engine.dialect.name == "sqlite" else None)
    return Ledger(engine, DESTINATION, FEED, namespace="tests", now=now, lease_clock=LeaseClock(now, own, ttl_s))


def elsewhere(name: str = "far away") -> Holder:
    """A process of another host, of which nobody here can tell whether it runs."""
    return Holder(name, "elsewhere pid:[1]", 7, 1.0, "another boot")


@pytest.mark.parametrize("hours", [-5, 5], ids=["back", "forward"])
def test_a_clock_that_is_set_by_hours_in_mid_run_takes_the_feed_from_nobody(engine: Engine, hours: int) -> None:
    clock = Clock()
    ledger = ledger_of(engine, clock)
    lease = ledger.acquire_lease("first")
    clock.turn(hours=hours)
    with pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")
    lease.renew()
    with pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")


@pytest.mark.parametrize("hours", [-5, 5], ids=["behind", "ahead"])
def test_hosts_whose_clocks_are_hours_apart_agree_on_who_holds_the_feed(engine: Engine, hours: int) -> None:
    ours, theirs = ledger_of(engine, Clock()), ledger_of(engine, Clock(Clock().instant + timedelta(hours=hours)))
    lease = theirs.acquire_lease(elsewhere() if engine.dialect.name == "postgresql" else "first")
    with pytest.raises(HeldByAnotherError):
        ours.acquire_lease("second")
    lease.renew()
    lease.release()
    assert ours.acquire_lease("second").token == 2


def test_a_silent_holder_of_another_host_is_followed_by_the_servers_clock_alone(postgres: Postgres) -> None:
    engine = open_database(postgres.fresh_url())
    ledger = ledger_of(engine, ttl_s=2.0)  # its own clock stands still
    ledger.acquire_lease(elsewhere())
    with pytest.raises(HeldByAnotherError, match="far away"):
        ledger.acquire_lease("second")
    assert until(lambda: _taken(ledger)).token == 2
    engine.dispose()


def _taken(ledger: Ledger) -> Lease | None:
    try:
        return ledger.acquire_lease("second")
    except HeldByAnotherError:
        return None


def test_people_are_told_the_servers_time(postgres: Postgres) -> None:
    engine = open_database(postgres.fresh_url())
    ledger_of(engine).acquire_lease("first")
    (status,) = LedgerQueries(engine).status()
    assert status.lease is not None
    assert abs(status.lease.acquired_at - datetime.now(UTC)) < timedelta(minutes=5)  # noqa: TID251  # the server's is real
    engine.dispose()


def test_a_holder_of_the_same_boot_is_measured_in_its_seconds(sqlite: Engine) -> None:
    at = [1000.0]
    ledger = ledger_of(sqlite, pulse=BootClock("boot-1", lambda: at[0]))
    ledger.acquire_lease(replace(elsewhere(), boot="boot-1"))
    at[0] += 59
    with pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")
    at[0] += 2
    assert ledger.acquire_lease("second").token == 2


def test_after_a_restart_of_the_machine_the_time_of_day_decides_and_may_have_gone_back(sqlite: Engine) -> None:
    clock = Clock()
    ledger_of(sqlite, clock, pulse=replace(HERE, seconds=lambda: 5000.0)).acquire_lease(replace(elsewhere(), boot="boot-1"))
    restarted = ledger_of(sqlite, clock, pulse=BootClock("boot-2", lambda: 5001.0))
    with pytest.raises(HeldByAnotherError):
        restarted.acquire_lease("second")
    clock.turn(days=-400)
    assert restarted.acquire_lease("second").token == 2


def test_a_machine_of_the_same_name_is_another_machine() -> None:
    gone = replace(this_process("test"), pid=2**22 + 5)
    assert not is_running(gone)
    assert is_running(replace(gone, boot="another machine, or a container of another one"))


def test_a_process_is_told_by_its_start_whatever_the_time_of_day_was_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    own = this_process("test")
    boot_time = __import__("psutil").boot_time()
    # What the system answers once its clock was set back by three hours: it moves the boot, and with it every start.
    monkeypatch.setattr("psutil.boot_time", lambda: boot_time - 10_800)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time - 10_800)
    assert is_running(own)


def test_the_hosts_pulse_goes_on_and_names_its_boot() -> None:
    pulse = boot_clock()
    before = pulse.seconds()
    pause(0.01)
    assert seconds_since_boot() > before
    assert pulse.boot or sys.platform != "linux"


def test_of_many_who_come_at_once_one_gets_the_feed_and_all_others_are_told_who(engine: Engine) -> None:
    come, crowd = Barrier(8), 8

    def acquire(number: int) -> int | str:
        ledger = ledger_of(engine)
        come.wait()
        try:
            return ledger.acquire_lease(f"number {number}").token
        except HeldByAnotherError as held:
            return held.holder

    with ThreadPoolExecutor(crowd) as pool:
        ends = list(pool.map(acquire, range(crowd)))
    assert [end for end in ends if isinstance(end, int)] == [1]
    assert len({end for end in ends if isinstance(end, str)}) == 1


def test_of_many_who_follow_a_dead_holder_one_gets_the_feed(engine: Engine) -> None:
    come, crowd = Barrier(8), 8
    ledger_of(engine).acquire_lease(replace(this_process("dead"), pid=2**22 + 5))

    def acquire(number: int) -> int | None:
        ledger = ledger_of(engine)
        come.wait()
        try:
            return ledger.acquire_lease(f"number {number}").token
        except HeldByAnotherError:
            return None

    with ThreadPoolExecutor(crowd) as pool:
        ends = list(pool.map(acquire, range(crowd)))
    assert sorted(filter(None, ends)) == [2]


def test_a_long_transaction_renews_the_lease_at_its_end(sqlite: Engine) -> None:
    at = [1000.0]
    ledger = ledger_of(sqlite, pulse=BootClock("boot-1", lambda: at[0]))
    turn = _turn(sqlite, ledger, replace(elsewhere(), boot="boot-1"))
    with turn.transaction():
        at[0] += 90
    with pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")


def test_who_asks_during_a_slow_transaction_of_the_holder_is_told_at_once(postgres: Postgres) -> None:
    engine = open_database(postgres.fresh_url())
    ledger = ledger_of(engine)
    turn = _turn(engine, ledger, elsewhere())
    with turn.transaction(), pytest.raises(HeldByAnotherError):
        ledger.acquire_lease("second")
    engine.dispose()


def test_a_takeover_waits_for_the_holders_transaction_and_finds_that_it_has_spoken(postgres: Postgres) -> None:
    engine = open_database(postgres.fresh_url())
    ledger = ledger_of(engine, ttl_s=1.0)
    turn = _turn(engine, ledger, elsewhere())
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
    engine.dispose()


def _turn(engine: Engine, ledger: Ledger, holder: Holder) -> FencedTransaction:
    """The turn of a run that holds the feed."""
    lease = ledger.acquire_lease(holder)
    return FencedTransaction(engine, lease.scope_id, FEED, "tests", "run-1", lease.token, Clock(), lease.clock)


HOLD = """
import sys
from state.database import open_database
from state.ledger.lease import LeaseClock, LeaseLostError
from state.ledger.ledger import Ledger
from state.holders import boot_clock
from datetime import datetime, UTC
def now():
    return datetime.now(UTC)
engine = open_database(sys.argv[1])
lease_clock = LeaseClock(now, boot_clock() if engine.dialect.name == "sqlite" else None, 0.5)
ledger = Ledger(engine, sys.argv[2], sys.argv[3], namespace="tests", now=now, lease_clock=lease_clock)
lease = ledger.acquire_lease("first")
print("held", flush=True)
sys.stdin.readline()
try:
    lease.renew()
except LeaseLostError:
    print("lost", flush=True)
"""


@contextmanager
def _holding(engine: Engine) -> Iterator[subprocess.Popen[str]]:
    url = engine.url.render_as_string(hide_password=False)
    words = [sys.executable, "-c", HOLD, url, DESTINATION, FEED]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_holder_that_was_stopped_past_its_time_is_followed_and_fenced_when_it_wakes(engine: Engine) -> None:
    with _holding(engine) as process:
        os.kill(process.pid, signal.SIGSTOP)
        second = until(lambda: _taken(ledger_of(engine)))
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=30)
    assert out == "lost\n"
    second.renew()


def test_a_lost_lease_says_so_and_what_comes_of_it(engine: Engine) -> None:
    ledger = ledger_of(engine)
    lease = ledger.acquire_lease(replace(this_process("dead"), pid=2**22 + 5))
    ledger.acquire_lease("second")
    with pytest.raises(LeaseLostError, match="another run has taken this feed over"):
        lease.renew()
