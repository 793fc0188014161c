"""The ledger under any order of events: reads with edits, losses and repeats, answers of every kind, crashes at any point.

A model of the service stands beside it: it creates an event for a key once, remembers definitive refusals, and forgets the key
of an event after a day.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from empty_books import folder_in_memory, lay_out
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select
from unit.state.world import FEED, World, answer, rejection, row, skipped

from mappings.delivery import Blocked, Conflict, Intent, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.outcome import Cover, MappedRow, RowOutcome
from mappings.row_key import RowKey, idempotency_key
from pipelines.run.outcome import outcome_of
from state.ledger.accounts import ImbalanceError, PublishAccount, ReadAccount
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Outbox, Settled
from state.ledger.stage import Stage, open_stage
from state.tables import ENTRY

EXAMPLES = int(os.environ.get("EVENTSYNC_TEST_EXAMPLES", "20"))
KEYS = st.sampled_from("abc")
TITLES = st.sampled_from(["one", "two"])
COVERS = st.sampled_from([None, None, None, Cover("https://img.example/a.jpg", "omit")])
GOOD = st.builds(lambda key, title, cover: row(key, title, cover=cover), KEYS, TITLES, COVERS)
OTHERS = st.one_of(GOOD, st.builds(rejection, KEYS), st.builds(skipped, KEYS), st.just(skipped()))
SHEETS = st.lists(GOOD, min_size=1, max_size=3, unique_by=lambda each: each.row_key)
CHUNKS = st.tuples(SHEETS, st.just([]) | st.just([]) | st.lists(OTHERS, max_size=3))
SELDOM = st.sampled_from([False, False, False, True])
WORDS = st.sampled_from(["create", "create", "lose", "refuse", "block", "postpone", "pace", "conflict"])
WITHOUT_A_TRACE = {"block", "postpone", "conflict"}
KEY_MEMORY = timedelta(hours=24)
PAUSED = TransientError("come back later")


class LedgerMachine(RuleBasedStateMachine):
    """Drives one feed's ledger, and remembers every request that may have left."""

    @initialize()
    def begin(self) -> None:
        self.folder = folder_in_memory()
        self.world = self.a_world()
        rows = [(key, revision) for key in "abc" for revision in range(40)]
        self.row_of_key = {idempotency_key("tests", FEED, RowKey(key), revision=revision): key for key, revision in rows}
        self.bodies: dict[str, bytes] = {}
        self.free_keys: set[str] = set()
        self.counted: set[str] = set()
        self.events: list[str] = []
        self.remembered: dict[str, datetime] = {}
        self.refusals: dict[str, str] = {}
        self.delivered: set[str] = set()
        self.stage: Stage | None = None
        self.outbox: Outbox | None = None
        self.hand: list[Intent] = []
        self.requests = 0

    def a_world(self) -> World:
        """An empty state DB; on a server another test makes it there."""
        return World(lay_out(Path(self.folder.name) / "state.db"))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.engine.dispose()
            self.folder.cleanup()

    # staging

    @precondition(lambda self: self.outbox is None)
    @rule(chunks=CHUNKS, is_whole=st.booleans(), is_braked=SELDOM)
    def read(self, chunks: tuple[list[RowOutcome], ...], is_whole: bool, is_braked: bool) -> None:
        report = self.world.stage(*chunks, is_whole=is_whole, brakes=["rejected"] if is_braked else [])
        self.stage = None
        assert report.account.imbalance() == 0
        assert report.account.read == sum(map(len, chunks))
        heard = {each.row_key for chunk in chunks for each in chunk if isinstance(each, MappedRow)}
        assert report.account.new <= len(heard)

    @precondition(lambda self: self.outbox is None)
    @rule(chunk=SHEETS)
    def read_halfway(self, chunk: list[RowOutcome]) -> None:
        self.stage = open_stage(self.world.ledger.fence(self.world.run(), self.world.lease.token), is_whole=True)
        self.stage.write(chunk)

    @rule()
    def a_person_opens_the_gate(self) -> None:
        try:
            self.world.ledger.open_gate("ana")
        except GateClosedError:
            assert "brake" not in self.world.ledger.gate().reason

    # publishing

    @precondition(lambda self: self.outbox is None)
    @rule(limit=st.none() | st.none() | st.integers(0, 3), keys=st.none() | st.none() | st.lists(KEYS, max_size=3))
    def open_outbox(self, limit: int | None, keys: list[str] | None) -> None:
        is_open = self.world.ledger.gate().is_open
        try:
            self.outbox = self.world.outbox(limit=limit, keys=keys)
        except GateClosedError:
            assert not is_open
            return
        assert is_open
        assert self.stage is None
        self.outbox.account().check()

    @precondition(lambda self: self.outbox is not None)
    @rule(want=st.integers(1, 4), words=st.lists(WORDS, max_size=4))
    def settle_and_claim(self, want: int, words: list[str]) -> None:
        assert self.outbox is not None
        settled = []
        for word in words[: len(self.hand)]:
            intent = self._pinned(self.hand.pop(0))
            settled.append(Settled(intent, self._answer(intent, word)))
        claimed = self.outbox.settle_and_claim(settled, want)
        assert len(claimed) <= want
        assert len({intent.row_key for intent in (*self.hand, *claimed)}) == len(self.hand) + len(claimed)
        self.hand += claimed
        for intent in claimed:
            self._may_leave(intent)
        self.outbox.account().check()

    @precondition(lambda self: self.outbox is None)
    @rule(sheet=SHEETS, words=st.lists(WORDS, min_size=1, max_size=3), is_killed=st.booleans(), is_sent=st.booleans())
    def a_whole_run(self, sheet: list[RowOutcome], words: list[str], is_killed: bool, is_sent: bool) -> None:
        """Read and publish as a scheduled run does, up to its end or to a kill with rows in hand."""
        self.read((sheet,), is_whole=True, is_braked=False)
        self.open_outbox(limit=None, keys=None)
        self.settle_and_claim(want=3, words=[])
        self.settle_and_claim(want=3, words=words)
        if is_killed:
            self.crash(is_sent=is_sent)
        while self.hand:
            self.settle_and_claim(want=0, words=["postpone"])
        self.outbox = None

    @precondition(lambda self: self.outbox is not None and not self.hand)
    @rule()
    def end_the_drain(self) -> None:
        assert self.outbox is not None
        self.outbox.account().check()
        self.outbox = None

    @rule(is_sent=st.booleans())
    def crash(self, is_sent: bool) -> None:
        """Kill the process; what was in hand may have arrived all the same."""
        for intent in self.hand:
            if is_sent and intent.cover is None:
                self._ask(intent)
        self.outbox, self.stage, self.hand = None, None, []
        self.world.crash()

    @precondition(lambda self: not self.hand)
    @rule(hours=st.sampled_from([1, 11, 30]))
    def time_goes_by(self, hours: int) -> None:
        self.world.clock.turn(hours=hours)
        self.world.lease.renew()

    # the service, as far as it shows

    def _pinned(self, intent: Intent) -> Intent:
        if intent.cover is None:
            return intent
        assert self.outbox is not None
        pinned = self.outbox.pin(intent, intent.body[:-1] + b',"coverImage":5}')
        self._may_leave(pinned)
        return pinned

    def _may_leave(self, intent: Intent) -> None:
        assert intent.row_key not in self.delivered, "a delivered row was handed out again"
        if intent.cover is not None:
            return
        if self.bodies.setdefault(intent.key, intent.body) != intent.body:
            assert intent.key in self.free_keys, "a key was used for two bodies, and the first may have arrived"
            self.bodies[intent.key] = intent.body
        if intent.key in self.free_keys:
            # What was counted before was turned away for certain: this attempt is the first that may arrive.
            self.counted.discard(intent.key)
            self.free_keys.discard(intent.key)

    def _ask(self, intent: Intent) -> int:
        """Create the event, unless the key is remembered; a definitive refusal is remembered too."""
        if intent.key in self.refusals:
            return 0
        asked_at = self.remembered.get(intent.key)
        if asked_at is None or self.world.clock() - asked_at > KEY_MEMORY:
            self.events.append(intent.key)
            self.remembered[intent.key] = self.world.clock()
        return len(self.events)

    def _answer(self, intent: Intent, word: str) -> Verdict:
        """Do at the service what the word says, and conclude from its answer what the client would."""
        self.requests += 1
        if word == "pace":
            return self._pace(intent)
        self.counted.add(intent.key)
        if word in WITHOUT_A_TRACE:
            return self._turn_away(intent, word)
        if word == "lose":
            self._ask(intent)
            return Uncertain(answer(0, ""))
        if stored := self.refusals.get(intent.key):
            is_ours = intent.refused_request_id == stored
            return Superseded(answer(400, stored)) if is_ours else Conflict(answer(409))
        if word == "refuse" and intent.key not in self.remembered:
            return self._refuse(intent)
        event_id = self._ask(intent)
        self.delivered.add(intent.row_key)
        return Unconfirmed(answer(409)) if intent.is_unanswered else Receipt(event_id, answer(201))

    def _pace(self, intent: Intent) -> Verdict:
        if not intent.is_unanswered and intent.key not in self.counted:
            self.free_keys.add(intent.key)
        return Postponed(answer(429), PAUSED, attempts=0)

    def _refuse(self, intent: Intent) -> Verdict:
        self.refusals[intent.key] = f"req-{self.requests}"
        self.free_keys.add(intent.key)
        return Refusal(answer(400, self.refusals[intent.key]))

    def _turn_away(self, intent: Intent, word: str) -> Verdict:
        if word == "block" and not intent.is_unanswered:
            self.free_keys.add(intent.key)
        return {
            "block": Blocked(answer(403, "req-403")),
            "postpone": Postponed(answer(401), PAUSED),
            "conflict": Conflict(answer(409)),
        }[word]

    # what must hold at every moment

    @invariant()
    def each_row_became_one_event_at_most(self) -> None:
        if not hasattr(self, "world"):
            return
        with self.world.engine.connect() as connection:
            rows = connection.execute(select(ENTRY.c.row_key, ENTRY.c.idempotency_key, ENTRY.c.state)).all()
        assert len({found.row_key for found in rows}) == len(rows)
        assert len({found.idempotency_key for found in rows}) == len(rows)
        events = [self.row_of_key[key] for key in self.events]
        assert len(set(events)) == len(events), "one row became two events"

    @invariant()
    def delivered_rows_stay_delivered(self) -> None:
        if hasattr(self, "world"):
            states = self.world.states()
            assert {states.get(key) for key in self.delivered} <= {"delivered", "delivered_unconfirmed"}


LedgerMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLedgerMachine = pytest.mark.slow(about_s=15)(LedgerMachine.TestCase)
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
