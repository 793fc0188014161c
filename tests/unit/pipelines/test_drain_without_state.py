"""A drain whose state DB is away for a while: it waits with its answers, sends nothing new, and goes on or gives up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.state.world import World, receipt, row
from virtual_time import at_once

from mappings.delivery import Intent, Verdict
from pipelines.run.publish import STATE_PATIENCE_S, Drain
from state.errors import StateBusyError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{path}?timeout=0.01")
    made.stage([row(str(number)) for number in range(12)])
    yield made
    made.engine.dispose()


class Sender:
    """Sends rows at a second each; with the fifth request another process takes the state DB."""

    def __init__(self, path: Path) -> None:
        self.keys: list[str] = []
        self.locker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def deliver(self, intent: Intent) -> Verdict:
        self.keys.append(intent.key)
        if len(self.keys) == 5:
            self.locker.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1)
        return receipt(intent)


def test_a_state_db_that_comes_back_costs_no_answer(world: World, path: Path) -> None:
    sender = Sender(path)
    outbox = world.outbox()

    async def drained() -> None:
        drain = asyncio.create_task(Drain(outbox, 4, 5.0, lambda _rows: None, sender.deliver).run())
        await asyncio.sleep(STATE_PATIENCE_S / 2)
        assert len(sender.keys) <= 8, "nothing new is sent while nothing can be recorded"
        sender.locker.execute("ROLLBACK")
        await drain

    at_once(drained)
    sender.locker.close()
    assert len(sender.keys) == len(set(sender.keys)) == 12
    assert set(world.states().values()) == {"delivered"}
    assert {world.known(str(number)).attempts for number in range(12)} == {1}
    assert outbox.account().delivered == 12


def test_a_state_db_that_stays_away_ends_the_drain_after_a_while(world: World, path: Path) -> None:
    sender = Sender(path)
    drain = Drain(world.outbox(), 4, 5.0, lambda _rows: None, sender.deliver)
    with pytest.raises(StateBusyError, match="held by another process"):
        at_once(drain.run)
    sender.locker.close()
    states = world.states()
    begun = {key for key in states if world.known(key).attempts}
    assert len(sender.keys) <= len(begun), "every request was on record before it left"
    assert sum(state == "delivered" for state in states.values()) == 4
