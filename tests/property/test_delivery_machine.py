"""Ledger, courier and service under any order of events: edits of the source, runs, faults on the wire, decisions of people,
kills at any instant.

The worker is the real one on virtual time (`delivery_desk`); the service is a model of all that the specification leaves
open (`model_service`); what people decide is written down as the commands do it (`person`).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from empty_books import folder_in_memory, lay_out
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from postgres import Postgres
from property.delivery_desk import KEY_MEMORY_S, Books, Clock, Person, Worker, rows_of_keys
from property.model_service import WORDS, Character, Death, Event, ModelService

from pipelines.run.options import RunOptions
from pipelines.run.outcome import outcome_of
from state.enums import EntryState
from state.ledger.accounts import ImbalanceError, PublishAccount, ReadAccount
from state.ledger.choices import Instruction, Option
from state.ledger.standing import RowRecord

EXAMPLES = int(os.environ.get("EVENTSYNC_TEST_EXAMPLES", "12"))
IDS = ("a", "b", "c", "d")
ROWS = frozenset({*IDS, *(f"{each}-{number}" for each in IDS for number in (1, 2))})
KEYS = st.sampled_from(IDS)
TITLES = st.sampled_from(["one", "two", "bad one"])
POINTS = st.sampled_from(["begin", "begin", "commit", "commit", "send", "answer"])
DEATHS = st.none() | st.builds(Death, POINTS, st.integers(1, 12))
FAULTS = st.lists(st.sampled_from(("ok", "ok", *WORDS)), max_size=6)
HOURS = st.sampled_from([0.1, 1.0, 11.0, 26.0])
CHOSEN = [RunOptions(stage_only=True), RunOptions(publish_only=True), RunOptions(limit=1), RunOptions(keys=("a", "b-1"))]
OPTIONS = st.sampled_from([RunOptions()] * 5 + CHOSEN)
CHARACTERS = st.builds(
    Character,
    idempotency=st.sampled_from(["replay", "replay", "refuse", "ignore"]),
    memory=st.sampled_from([timedelta(hours=25), timedelta(days=3650)]),
    keeps_refusals=st.booleans(),
    replays_other_bodies=st.booleans(),
    names_a_wait=st.booleans(),
    checks_channel_first=st.booleans(),
    keeps_denials=st.sampled_from(["no", "no", "as told", "told anew"]),
)
_OPTIONS = (Option.RESEND, Option.RESEND, Option.IGNORE, Option.UNDO, Option.APPLIED, Option.RELEASE)
CHOICES = st.sampled_from(["the event", "a wrong event", "another row's event", *map(Instruction, _OPTIONS)])

LOSSES = st.sampled_from(["all is well", "the key is revoked", "the channel is taken away"])
DONE = {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED}
TURNED_AWAY = {EntryState.REFUSED, EntryState.BLOCKED}
REVISIONS = 40
NO_EVENT = 990_000
GOOD_RUNS, RUNS_BESIDE_DENIALS = 4, 12
"""So many runs are enough once all is well; where each may learn of a few stored denials, and stops at them, it takes more."""
OWED = {EntryState.PENDING, EntryState.BLOCKED, EntryState.UNCERTAIN}


class DeliveryMachine(RuleBasedStateMachine):
    """One feed, its source, its service, and everything that may go wrong between them."""

    def __init__(self, state_db: Books | None = None) -> None:
        super().__init__()
        self.state_db = state_db or _one_file()

    @initialize(character=CHARACTERS, titles=st.dictionaries(KEYS, TITLES, min_size=1))
    def begin(self, character: Character, titles: dict[str, str]) -> None:
        self.clock = Clock()
        self.service = ModelService(self.clock, character)
        self.worker = Worker(self.clock, self.service, self.state_db)
        self.person = Person(self.worker)
        self.has_lost_books = False
        self.copy: tuple[Any, dict[str, int]] | None = None
        self.delivered: set[str] = set()
        self.turned_away: set[str] = set()
        self.read: dict[str, str] = {}
        """What the rows said when they were read last, as far as that is certain."""
        for key, title in titles.items():
            self.say(key, title)

    def teardown(self) -> None:
        if hasattr(self, "worker"):
            self.when_all_is_well_again_every_row_arrives()

    # the source

    @rule(key=KEYS, title=TITLES)
    def say(self, key: str, title: str) -> None:
        self.worker.sheet.titles[key] = f"Evening {key}: {title}"

    @rule(key=KEYS)
    def take_out(self, key: str) -> None:
        self.worker.sheet.titles.pop(key, None)

    @rule(key=KEYS, number=st.integers(1, 2))
    def rename(self, key: str, number: int) -> None:
        """The partner's software gives the row another identifier."""
        if key in self.worker.sheet.titles:
            self.worker.sheet.titles[f"{key}-{number}"] = self.worker.sheet.titles.pop(key)

    # the worker

    @rule(words=FAULTS, death=DEATHS, options=OPTIONS)
    def run(self, words: list[str], death: Death | None, options: RunOptions) -> None:
        """One run, with what becomes of its first requests, and the instant at which it is killed, if it is."""
        before, asked = self.worker.rows(), self.service.asked.copy()
        self.service.words.extend(words)
        is_alive = self.worker.run(death or Death(), options)
        self.service.words.clear()
        event(f"a run is killed: {not is_alive}")
        self.what_is_set_aside_rests(before, asked)
        if not is_alive or options.limit is not None or options.keys:
            self.read.clear()
        elif not options.publish_only:
            self.read = self.worker.sheet.titles.copy()
        self.what_holds_at_every_moment()

    @rule(words=FAULTS, death=DEATHS, key=KEYS, title=TITLES)
    def edit_and_run(self, words: list[str], death: Death | None, key: str, title: str) -> None:
        self.say(key, title)
        self.run(words, death, RunOptions())

    @rule(words=FAULTS, hours=HOURS)
    def wait_and_run(self, words: list[str], hours: float) -> None:
        self.time_goes_by(hours)
        self.run(words, None, RunOptions())

    @rule(hours=HOURS)
    def time_goes_by(self, hours: float) -> None:
        self.clock.turn(hours=hours)
        self.service.pass_time()

    @rule(is_meant=st.sampled_from([False, False, True]), what=LOSSES, runs=st.integers(1, 3), is_retried=st.booleans())
    def the_books_are_lost(self, is_meant: bool, what: str, runs: int, is_retried: bool) -> None:
        """Runs follow, while access may be missing: what was created before is at the service alone."""
        if not is_meant:
            return
        self.state_db.empty()
        self.service.forget_bodies()
        self.has_lost_books = True
        self.delivered.clear()
        self.the_account_changes(what)
        for _ in range(runs):
            self.run([], None, RunOptions())
            if is_retried:
                self.person.retry()

    @rule()
    def the_books_are_copied(self) -> None:
        self.copy = self.state_db.copy(), self.person.named.copy()

    @rule(is_meant=st.sampled_from([False, True]))
    def an_older_copy_of_the_books_is_put_back(self, is_meant: bool) -> None:
        if not is_meant or self.copy is None:
            return
        copy, named = self.copy
        self.state_db.put_back(copy)
        self.person.named = named.copy()
        self.service.forget_bodies()
        self.has_lost_books = True
        self.delivered.clear()
        self.read.clear()

    # the person

    @rule()
    def a_person_says_that_it_may_be_sent_again(self) -> None:
        self.person.retry()

    @rule(number=st.integers(0, 11), wish=CHOICES, death=DEATHS)
    def a_person_decides_about_a_row(self, number: int, wish: Instruction | str, death: Death | None) -> None:
        """About one that the books name; the command is killed like a run."""
        rows = sorted(self.worker.rows())
        if not rows:
            return
        row_key = rows[number % len(rows)]
        choice = Instruction(Option.EVENT_ID, event_id=self._event_for(row_key, wish)) if isinstance(wish, str) else wish
        is_changed = self.person.decide(row_key, choice, death or Death())
        event(f"{wish if isinstance(wish, str) else type(wish).__name__} changes a row: {is_changed}")
        if is_changed and choice.option in {Option.RESEND, Option.UNDO}:
            self.delivered.discard(row_key)
        self.what_holds_at_every_moment()

    def _event_for(self, row_key: str, wish: str) -> int:
        """The id that somebody reads off the service's pages, rightly or not."""
        own = [each.id for each in self.service.events if self._row(each) == row_key]
        others = [each.id for each in self.service.events if self._row(each) != row_key]
        known = {"the event": own[-1:], "another row's event": others[:1]}.get(wish, [])
        return known[0] if known else NO_EVENT + len(self.person.named)

    # the service

    @rule(what=LOSSES)
    def the_account_changes(self, what: str) -> None:
        self.service.is_key_good = what != "the key is revoked"
        self.service.is_channel_open = what != "the channel is taken away"

    # what must hold at every moment

    def what_holds_at_every_moment(self) -> None:
        """What the worker did is allowed, its books balance, and what was delivered stays so."""
        assert not self.service.wrongs, self.service.wrongs
        self._assert_one_event_a_row()
        rows = self.worker.rows()
        assert {rows[key].state for key in self.delivered} <= DONE
        self.delivered |= {key for key, row in rows.items() if row.state in DONE}
        self.turned_away |= {key for key, row in rows.items() if row.state in TURNED_AWAY or row.is_refused}
        for run in self.worker.past_runs():
            assert run.read is None or run.read.imbalance() == 0, run
            assert run.publish is None or run.publish.imbalance() == 0, run

    def what_is_set_aside_rests(self, before: dict[str, RowRecord], asked: Counter[str]) -> None:
        """A run sends nothing for a row that a person has set aside, until its source says something else about it."""
        now = self.worker.rows()
        for row_key, row in before.items():
            if row.is_set_aside and now[row_key].is_set_aside:
                assert now[row_key].state is row.state, (row, now[row_key])
                assert self.service.asked[row.key] == asked[row.key], f"sent, although it is set aside: {row}"
            elif row.is_set_aside:
                is_changed = row_key not in self.read or self.read[row_key] != self.worker.sheet.titles.get(row_key)
                assert is_changed or row.state in DONE, f"no longer set aside: {now[row_key]}"

    def _assert_one_event_a_row(self) -> None:
        """But for what a person has risked: one more for each further key, and one more that was forgotten."""
        events = Counter(self._row(each) for each in self.service.events) - self.person.next_keys
        excused = Counter(self._row(each) for each in self.service.events if each.is_excused)
        excused += Counter(rows_of_keys(ROWS, REVISIONS)[key] for key in self.service.forgotten)
        may_be = events.keys() if self.has_lost_books else self.person.forgotten
        twice = {row: count for row, count in events.items() if count - (row in may_be) * excused[row] > 1}
        if self.service.character.idempotency != "ignore":
            assert not twice, f"one row became several events: {twice}"
        if not self.has_lost_books:
            self._assert_the_ledger_counts_enough()
            self._assert_no_key_changed_while_an_event_may_exist()

    def _assert_no_key_changed_while_an_event_may_exist(self) -> None:
        """A row leaves a key under which an event may exist only by a person's word."""
        keys = Counter(rows_of_keys(ROWS, REVISIONS)[key] for key in self.service.possible_keys()) - self.person.next_keys
        changed = {row: count for row, count in keys.items() if count > 1}
        assert not changed, f"rows with several keys under which an event may exist: {changed}"

    def _assert_the_ledger_counts_enough(self) -> None:
        """No row has more events than the ledger says may exist."""
        known = [each for each in self.service.events if each.key not in self.service.limited]
        rows, events = self.worker.rows(), Counter(self._row(each) for each in known)
        uncounted = {row: (count, rows[row].copies) for row, count in events.items() if count > rows[row].copies}
        assert not uncounted, f"more events than are said to be possible: {uncounted}"

    def _row(self, event: Event) -> str:
        return rows_of_keys(ROWS, REVISIONS)[event.key]

    # what must come true in the end

    def when_all_is_well_again_every_row_arrives(self) -> None:
        """No more faults: a few runs deliver every row that is asked for, or say why not."""
        self.service.is_key_good = self.service.is_channel_open = True
        self.person.take_all_back()
        self.person.retry()
        for _ in range(GOOD_RUNS if self.service.character.keeps_denials == "no" else RUNS_BESIDE_DENIALS):
            self.time_goes_by(1)
            self._a_person_lets_rows_out_that_were_turned_away()
            assert self.worker.run(Death(), RunOptions())
        self.what_holds_at_every_moment()
        rows = self.worker.rows()
        held = self.worker.held()
        for key, title in self.worker.sheet.titles.items():
            assert key in rows or key in held, f"nobody knows of {key}"
            if key in rows:
                self._assert_it_arrived(rows[key], title)
        assert all(run.finished_at for run in self.worker.past_runs()), "a dead run is not told as ended"

    def _a_person_lets_rows_out_that_were_turned_away(self) -> None:
        """A stored denial or refusal that proves nothing, as other requests went before it, is got past by a person's word."""
        for row in self.worker.rows().values():
            is_refused = (
                row.is_refused and row.unanswered_at is not None and row.state in {EntryState.REFUSED, EntryState.UNCERTAIN}
            )
            is_denied = row.is_denied and row.state in OWED and self.service.character.keeps_denials != "no"
            if is_refused or is_denied:
                self.person.decide(row.row_key, Instruction(Option.RESEND), Death())

    def _assert_it_arrived(self, row: RowRecord, title: str) -> None:  # one arm per case
        match row.state:
            case EntryState.DELIVERED if self.person.named.get(row.row_key) == row.event_id:
                self._assert_it_can_be_corrected(row)
            case EntryState.DELIVERED:
                (there,) = [each for each in self.service.events if each.id == row.event_id]
                assert (there.key, self._row(there)) == (row.key, row.row_key)
                assert self.has_lost_books or there.body == row.body
            case EntryState.DELIVERED_UNCONFIRMED:
                is_there = any(each.key == row.key for each in self.service.events)
                assert is_there or self.has_lost_books or self._may_have_been_refused(row), f"{row} is nowhere"
            case EntryState.REFUSED:
                assert "bad" in title or self.has_lost_books, row
            case EntryState.CONFLICT:
                assert self.has_lost_books or row.row_key in self.turned_away, row  # the old refusal, or our own attempt?
            case EntryState.UNCERTAIN if row.answer is not None and "which is that of row" in row.answer.message:
                assert self.person.named or self.has_lost_books, row  # a person has given its event to another row
            case EntryState.UNCERTAIN if row.is_refused and b"bad" in row.body:
                assert row.unanswered_at is not None, row  # refused for good after an attempt that may have created it
            case EntryState.UNCERTAIN:
                assert row.unanswered_at is not None, row
                assert (self.clock() - row.unanswered_at).total_seconds() >= KEY_MEMORY_S, row
            case EntryState.HELD:
                assert row.candidate_id is not None
            case EntryState.PENDING | EntryState.BLOCKED | EntryState.SUPERSEDED:
                raise AssertionError(f"still not delivered: {row}")

    def _assert_it_can_be_corrected(self, row: RowRecord) -> None:
        """Whoever has named a wrong event can name another one."""
        another = Instruction(Option.EVENT_ID, event_id=2 * NO_EVENT + row.entry_id)
        assert self.person.decide(row.row_key, another, Death()), f"it stays with {row}"

    def _may_have_been_refused(self, row: RowRecord) -> bool:
        """Such a service answers 409 to whatever uses a key again: that its first answer was a refusal, nobody can know."""
        return self.service.character.idempotency == "refuse" and b"bad" in row.body


_folder = cache(folder_in_memory)


@cache
def _one_file() -> Books:
    return Books(f"sqlite:///{lay_out(Path(_folder().name) / 'state.db')}")


USUAL = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
DeliveryMachine.TestCase.settings = USUAL
TestDeliveryMachine = pytest.mark.slow(about_s=20)(DeliveryMachine.TestCase)


@pytest.mark.slow(about_s=15)
def test_the_same_holds_with_the_books_in_postgresql(postgres: Postgres) -> None:
    server = Books(postgres.fresh_url())
    run_state_machine_as_test(lambda: DeliveryMachine(server), settings=settings(USUAL, max_examples=max(3, EXAMPLES // 5)))
    server.engine.dispose()


BESIDE_THE_EQUATION = {"resent"}


def test_an_account_that_lost_a_row_says_so_with_its_numbers() -> None:
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
