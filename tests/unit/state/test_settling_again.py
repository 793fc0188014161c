"""A state DB that is away while answers come in: they stay in hand, and are written once when it is back."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import pytest
from postgres import Postgres
from sqlalchemy import make_url
from unit.state.cut_line import CutLine
from unit.state.world import World, answer, receipt, row

from mappings.delivery import Postponed, Superseded, Uncertain
from mappings.errors import TransientError
from state.errors import StateBusyError
from state.ledger.outbox import Settled


@pytest.fixture
def locked_world(tmp_path: Path) -> Iterator[World]:
    """A file for which nobody waits longer than a moment."""
    world = World(f"sqlite:///{tmp_path / 'state.db'}?timeout=0.01")
    yield world
    world.engine.dispose()


@contextmanager
def held(world: World) -> Iterator[None]:
    """Another process in the middle of a transaction."""
    with closing(sqlite3.connect(str(make_url(world.url).database), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_answers_that_met_a_locked_file_are_written_once_it_is_free(locked_world: World) -> None:
    world = locked_world
    world.stage([row(key) for key in "abcd"])
    outbox = world.outbox(limit=3)
    first, second = outbox.settle_and_claim([], 2)
    with held(world), pytest.raises(StateBusyError, match="held by another process"):
        outbox.settle_and_claim([Settled(first, receipt(first))], 5)
    assert world.known("a").state == "pending"
    rest = outbox.settle_and_claim([Settled(first, receipt(first)), Settled(second, receipt(second))], 5)
    assert [intent.row_key for intent in rest] == ["c"], "the limit counts what was claimed, not what was asked for"
    outbox.settle_and_claim([Settled(rest[0], receipt(rest[0]))], 5)
    account = outbox.account()
    assert (account.delivered, account.pending) == (3, 1)
    assert [world.known(key).attempts for key in "abcd"] == [1, 1, 1, 0]


@pytest.fixture
def line(postgres: Postgres) -> Iterator[CutLine]:
    with tempfile.TemporaryDirectory(prefix="line") as folder:  # a socket's path must be short
        cut_line = CutLine(Path(folder), postgres.fresh_url())
        yield cut_line
        cut_line.close()


@pytest.mark.parametrize("cut_at", ["before", "after"])
def test_a_connection_that_breaks_in_a_commit_costs_no_answer_and_counts_none_twice(
    line: CutLine, cut_at: Literal["before", "after"]
) -> None:
    world = World(line.url)
    world.stage([row(key) for key in "abcdef"])
    outbox = world.outbox()
    intents = outbox.settle_and_claim([], 4)
    settled = [
        Settled(intents[0], receipt(intents[0])),
        Settled(intents[1], Uncertain(answer(503, ""))),
        Settled(intents[2], Postponed(answer(429, ""), TransientError("later"), attempts=0)),
        Settled(intents[3], Superseded(answer(409, ""))),
    ]
    line.cut_at = cut_at
    with pytest.raises(StateBusyError, match="cannot be reached"):
        outbox.settle_and_claim(settled, 1)
    assert world.known("a").state == ("delivered" if cut_at == "after" else "pending")
    (claimed,) = outbox.settle_and_claim(settled, 1)

    assert claimed.row_key == "e"
    assert world.states() == dict(
        zip("abcdef", ("delivered", "uncertain", "pending", "conflict", "pending", "pending"), strict=True)
    )
    assert [world.known(key).attempts for key in "abcd"] == [1, 1, 0, 1]
    assert world.known("e").attempts >= 1
    account = outbox.account()
    assert (account.delivered, account.uncertain, account.conflict, account.pending) == (1, 1, 1, 3)
    world.engine.dispose()


def test_a_run_that_lost_the_feed_meanwhile_writes_nothing_when_the_database_is_back(locked_world: World) -> None:
    world = locked_world
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    with held(world), pytest.raises(StateBusyError):
        outbox.settle_and_claim([Settled(intent, receipt(intent))], 1)
    world.lease.release()
    world.ledger.acquire_lease("another run")
    with pytest.raises(TransientError, match="taken this feed over"):
        outbox.settle_and_claim([Settled(intent, receipt(intent))], 1)
    assert world.known("a").state == "pending"
