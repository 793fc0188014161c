"""Both equations of every run, over random histories: edits, repeats, losses, brakes, acceptances, limits, picked keys, kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest
from empty_books import folder_in_memory, lay_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import DESTINATION, FEED, World, answer, gone, receipt, rejection, row, skipped

from mappings.delivery import Blocked, Conflict, Intent, Postponed, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.outcome import RowOutcome
from mappings.row_key import RowKey
from pipelines.run.outcome import outcome_of
from state.ledger.accounts import ImbalanceError, PublishAccount, ReadAccount, ReadKind, StagePolicy
from state.ledger.entries import content_of
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Outbox, Settled, open_outbox
from state.ledger.stage import open_stage
from state.queries import LedgerQueries

KEYS = st.sampled_from("abcde")
ROWS = st.builds(
    lambda key, title, twin, status: row(key, title, twin=twin or key, status=status),
    KEYS,
    st.sampled_from(["one", "two"]),
    st.sampled_from([None, None, None, "twin"]),
    st.sampled_from(["published", "published", "draft"]),
)
OUTCOMES = st.lists(
    ROWS
    | ROWS
    | ROWS
    | st.builds(rejection, KEYS | st.just(""))
    | st.builds(skipped, KEYS)
    | st.builds(gone, KEYS | st.just("")),
    max_size=7,
)
WORDS = ["receipt"] * 4 + ["lose", "unconfirmed", "refuse", "block", "conflict", "postpone", "kill"]


@dataclass(frozen=True)
class Read:
    chunks: list[list[RowOutcome]]
    is_whole: bool
    terms: StagePolicy
    brakes: tuple[str, ...]
    is_killed: bool


@dataclass(frozen=True)
class Publish:
    limit: int | None
    keys: tuple[str, ...] | None
    is_accepted: bool
    words: list[str]
    hours: int


TERMS = st.builds(
    StagePolicy,
    on_change=st.sampled_from(["report", "ignore", "create_draft_again"]),
    on_vanish=st.sampled_from(["report", "ignore"]),
    kind=st.sampled_from(ReadKind),
    drafts_only=st.booleans(),
    accepted=st.sampled_from([(), ("new",)]),
)
READS = st.builds(
    Read,
    st.lists(OUTCOMES, max_size=3),
    st.sampled_from([True, True, False]),
    TERMS,
    st.sampled_from([(), (), ("new",), ("rejected", "new")]),
    st.sampled_from([False, False, False, True]),
)
PUBLISHES = st.builds(
    Publish,
    st.none() | st.integers(0, 3),
    st.none() | st.lists(KEYS, max_size=2).map(tuple),
    st.booleans(),
    st.lists(st.sampled_from(WORDS), max_size=8),
    st.sampled_from([0, 0, 0, 30]),
)
VERDICTS: dict[str, Verdict] = {
    "lose": Uncertain(answer(0, "")),
    "unconfirmed": Unconfirmed(answer(409)),
    "refuse": Refusal(answer(400, "req-400")),
    "block": Blocked(answer(403, "req-403")),
    "conflict": Conflict(answer(409)),
    "postpone": Postponed(answer(429), TransientError("come back later"), attempts=0),
}


@dataclass
class Created:
    """The events of a service that honours keys, by key: whose row it is, and what it says but for its status."""

    events: dict[str, tuple[str, object]] = field(default_factory=dict)

    def settle(self, intent: Intent, word: str) -> Settled:
        if word in {"receipt", "lose"}:
            content = intent.row_key, content_of(intent.body)
            if intent.key not in self.events:
                assert content not in self.events.values(), "a row became the same event twice"
            self.events.setdefault(intent.key, content)
        return Settled(intent, VERDICTS.get(word) or receipt(intent))


def read(world: World, step: Read) -> None:
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=step.is_whole, policy=step.terms)
    for chunk in step.chunks:
        stage.write(chunk)
    if step.is_killed:
        world.crash()
        return
    report = stage.close(lambda _report: step.brakes)
    assert report.account.imbalance() == 0
    assert report.account.read == sum(map(len, step.chunks))


def publish(world: World, step: Publish, created: Created) -> None:
    world.clock.turn(hours=step.hours)
    world.lease.renew()
    outbox = _opened(world, step)
    if outbox is None:
        return
    words = iter(step.words)
    hand: Sequence[Intent] = outbox.settle_and_claim([], 2)
    while hand:
        word = next(words, "receipt")
        if word == "kill":
            world.crash()
            return
        hand = [*hand[1:], *outbox.settle_and_claim([created.settle(hand[0], word)], 1)]
        outbox.account().check()
    account = outbox.account()
    world.ledger.finish_run(f"run-{world.runs}", outcome="done", exit_code=0, message="", publish_account=account)


def _opened(world: World, step: Publish) -> Outbox | None:
    if step.is_accepted and world.ledger.gate().brakes:
        world.ledger.open_gate("ana")
    keys = None if step.keys is None else [RowKey(key) for key in step.keys]
    try:
        return open_outbox(world.ledger.fence(world.run(), world.lease.token), limit=step.limit, keys=keys)
    except GateClosedError:
        return None


@given(st.lists(READS | PUBLISHES, min_size=2, max_size=10))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_both_accounts_of_every_run_balance_whatever_came_before(steps: list[Read | Publish]) -> None:
    with folder_in_memory() as folder:
        world = World(lay_out(Path(folder) / "state.db"))
        created = Created()
        try:
            for step in steps:
                read(world, step) if isinstance(step, Read) else publish(world, step, created)
            _check_books(world)
        finally:
            world.engine.dispose()


def _check_books(world: World) -> None:
    """Look at all runs that the books tell of, the killed ones included; and at the entries that they should add up to."""
    books = LedgerQueries(world.engine)
    runs = books.runs(destination=DESTINATION, feed=FEED, limit=100)
    assert len(runs) == world.runs
    for run in runs:
        assert run.read is None or run.read.imbalance() == 0
        assert run.publish is None or run.publish.imbalance() == 0
    for status in books.status():
        assert sum(status.counts.values()) == len(world.states())


BESIDE_THE_EQUATION = {"resent"}


def test_an_account_that_lost_a_row_is_told_with_its_numbers() -> None:
    """The check itself: one row more in any single place is noticed."""
    read_account = ReadAccount(read=8, filtered=1, duplicate=1, rejected=1, held=1, unchanged=1, drifted=1, new=1, gone=1)
    owed = PublishAccount(
        new=3, carried_over=4, delivered=1, delivered_unconfirmed=1, refused=1, blocked=1, conflict=1, pending=2
    )
    assert (read_account.imbalance(), owed.imbalance()) == (0, 0)
    for good in (read_account, owed):
        for place in fields(good):
            if place.name in BESIDE_THE_EQUATION:
                continue
            with pytest.raises(ImbalanceError, match=r"by -?1.*read=|by -?1.*new=") as raised:
                replace(good, **{place.name: getattr(good, place.name) + 1}).check()
            assert outcome_of(raised.value).exit_code == 1
