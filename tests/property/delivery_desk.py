"""One feed, its worker and the person beside it on virtual time: the real stage and publish over a real state DB."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

from file_desks import COLUMNS, Feed
from ledger_tables import Copy, copy_of, empty, put_back
from property.model_service import Death, KilledError, ModelService
from sqlalchemy import event
from unit.connectors_api.wired import api_over
from unit.state import world
from virtual_time import at_once

from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage
from connectors.retry import RetryPolicy
from connectors.sources.contract import Reading
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import SyncError
from mappings.event import Directory
from mappings.outcome import RowLocation, SourceRow
from mappings.row_key import RowKey, idempotency_key
from mappings.spec.feed import FeedMapping
from pipelines.run.images import CoverProblem
from pipelines.run.options import RunOptions
from pipelines.run.outcome import outcome_of
from pipelines.run.publish import GRACE_S, Drain, PublishReport, outcome_of_publish
from pipelines.run.stage import ReadPlan, StageJob, stage
from state.enums import EntryState, ProblemKind
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError, Option
from state.ledger.decisions import Decisions, EventTakenError, propose
from state.ledger.lease import Lease
from state.ledger.ledger import Ledger
from state.ledger.outbox import open_outbox
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter, RunRecord

NAMESPACE = "tests"
KEY_MEMORY_S = 86_400.0
IN_FLIGHT = 3
SCOPE = FeedScope(world.DESTINATION, world.FEED)


class Clock(world.Clock):
    """The time of day: turned by hand, and going on with the loop's while one runs."""

    def __call__(self) -> datetime:
        return self.instant + timedelta(seconds=_loop_s())


def _loop_s() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0


@dataclass
class Sheet:
    """The partner's rows: titles by row key."""

    titles: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def read(self) -> Iterator[Reading]:
        rows = (
            SourceRow(RowLocation(f"rows.csv:{number}", number), dict.fromkeys(COLUMNS, "") | {"REF": key, "TITLE": title})
            for number, (key, title) in enumerate(self.titles.items(), 2)
        )
        yield Reading(COLUMNS, rows)


@dataclass
class NoCovers:
    """No row here asks for an image."""

    problems: list[CoverProblem] = field(default_factory=list)

    async def close(self) -> None:
        """Nothing is open."""


class Books:
    """A state DB for one example after another: it is emptied in place, so that statements are compiled only once."""

    def __init__(self, url: str) -> None:
        self.engine = open_database(url)

    def empty(self) -> None:
        empty(self.engine)

    def copy(self) -> Copy:
        return copy_of(self.engine)

    def put_back(self, copy: Copy) -> None:
        put_back(self.engine, copy)

    @contextmanager
    def mortal(self, death: Death, clock: Clock) -> Iterator[None]:
        """Let the worker die where a transaction begins, or just before it is durable."""
        points = {name: lambda _connection, name=name: death.at(name) for name in ("begin", "commit")}
        for name, die in points.items():
            event.listen(self.engine, name, die)
        try:
            yield
        except KilledError:
            clock.turn(seconds=90)  # until the dead one's lease has expired
        finally:
            for name, die in points.items():
                event.remove(self.engine, name, die)


class Worker:
    """Runs of one feed, one after another, each a process of its own as far as memory goes."""

    def __init__(self, clock: Clock, service: ModelService, state_db: Books) -> None:
        self.clock = clock
        self.service = service
        self.sheet = Sheet()
        self.runs = 0
        self.state_db = state_db
        self.queries = LedgerQueries(state_db.engine)
        state_db.empty()

    def run(self, death: Death, options: RunOptions) -> bool:
        """Stage and publish as the options say; return False if the run was killed."""
        self.service.death = death
        with self.state_db.mortal(death, self.clock):
            self._run(options)
        self.service.death = Death()
        return not death.is_dead

    def decide(self, choose: Callable[[Decisions], object], death: Death) -> None:
        """Let a person decide, under the feed's lease as the commands do, until the command is killed."""
        ledger, by = self._ledger(), "ana@desk"
        with self.state_db.mortal(death, self.clock), ledger.acquire_lease(by) as lease:
            choose(Decisions(ledger.fence("", lease.token), by))

    def propose(self, row_key: str, choice: Instruction) -> Change | NoChange | None:
        """Return what the command would say before it does anything; None if it cannot be done."""
        (outcome,) = propose(self.state_db.engine, SCOPE, [RowKey(row_key)], choice).values()
        return None if isinstance(outcome, NotPossibleError) else outcome

    def rows(self) -> dict[str, RowRecord]:
        return {row.row_key: row for row in self.queries.every_row(SCOPE, RowFilter())}

    def past_runs(self) -> tuple[RunRecord, ...]:
        return self.queries.runs(limit=1_000)

    def held(self) -> set[str]:
        """The rows that are listed as likely copies of others, as of the last read."""
        return {problem.row_key for problem in self.queries.every_problem(SCOPE, ProblemKind.HELD)}

    def _ledger(self) -> Ledger:
        clocks = {"now": self.clock, "lease_clock": self.clock.lease_clock}
        return Ledger(self.state_db.engine, SCOPE.destination, SCOPE.feed, namespace=NAMESPACE, **clocks)

    def _run(self, options: RunOptions) -> None:
        self.runs += 1
        run_id, ledger = f"run-{self.runs}", self._ledger()
        finish = partial(ledger.finish_run, run_id)
        with ledger.acquire_lease("a test") as lease:
            ledger.begin_run(run_id, launched_by="a test")
            try:
                if not options.publish_only:
                    read = (_mapping(), self.sheet, _mapper(), ledger, options, lambda _rows: None, ReadPlan(world.START))
                    stage(StageJob(run_id, lease.token, *read))
                if not options.stage_only and ledger.gate().is_open:
                    self._publish(run_id, ledger, lease, options)
                else:
                    finish(outcome="staged", exit_code=0, message="")
            except SyncError as error:
                outcome = outcome_of(error)
                finish(outcome=outcome.name, exit_code=outcome.exit_code, message=outcome.text)
                raise

    def _publish(self, run_id: str, ledger: Ledger, lease: Lease, options: RunOptions) -> None:
        keys = [RowKey(key) for key in options.keys] or None
        outbox = open_outbox(ledger.fence(run_id, lease.token), limit=options.limit, keys=keys, key_memory_s=KEY_MEMORY_S)
        drain = Drain(outbox, IN_FLIGHT, GRACE_S, lambda _rows: None)
        self._publish_in_virtual_time(drain)
        account = outbox.account()
        account.check()
        outcome = outcome_of_publish(PublishReport(account, drain.cause, 0.0, standing=outbox.standing()), _mapping())
        said = {"outcome": outcome.name, "exit_code": outcome.exit_code, "message": outcome.text}
        ledger.finish_run(run_id, **said, publish_account=account)

    def _publish_in_virtual_time(self, drain: Drain) -> None:
        """Drain on a loop whose time jumps, and keep the time that has passed there."""
        passed_s = 0.0

        async def run() -> None:
            nonlocal passed_s
            try:
                await drain.publish(self._api, NoCovers)  # type: ignore[arg-type]
            finally:
                passed_s = _loop_s()

        try:
            at_once(run)
        finally:
            self.clock.turn(seconds=passed_s)
            self.service.pass_time()

    @asynccontextmanager
    async def _api(self, passage: Passage) -> AsyncIterator[EventApi]:
        api, http = api_over(self.service, policy=RetryPolicy(key_memory_s=KEY_MEMORY_S))
        http.passage = passage
        async with http:
            yield api


@cache
def rows_of_keys(rows: frozenset[str], revisions: int) -> Mapping[str, str]:
    """Whose row a key of the feed is, for the first revisions of these rows."""
    return {idempotency_key(NAMESPACE, SCOPE.feed, RowKey(row), revision=each): row for row in rows for each in range(revisions)}


def _mapping() -> FeedMapping:
    return Feed().parsed(Path())


@cache
def _mapper() -> RowMapper:
    return compile_feed(_mapping(), Directory({"city": 7}))


@dataclass
class Person:
    """Decides about rows of one feed, as `resolve` and `retry` do. What each decision has brought is remembered by row key."""

    worker: Worker
    next_keys: Counter[str] = field(default_factory=Counter)
    """How often a row was let out under a further key: the service had said that its key was used, or denied access to it."""
    forgotten: set[str] = field(default_factory=set)
    """Rows sent again under a key that the service may have forgotten."""
    named: dict[str, int] = field(default_factory=dict)
    """The event that was named for a row."""

    def retry(self) -> None:
        self.worker.decide(lambda decisions: decisions.retry(), Death())

    def decide(self, row_key: str, choice: Instruction, death: Death) -> bool:
        """Decide about one row; return whether anything has changed. The command may be killed, at whatever instant.

        What may go wrong must be said beforehand: only then is it at the person's risk.
        """
        before = self.worker.rows().get(row_key)
        if before is None:
            return False
        told = self.worker.propose(row_key, choice)
        try:
            self.worker.decide(lambda decisions: decisions.resolve([RowKey(row_key)], choice), death)
        except NotPossibleError:
            assert told is None, f"{told} was promised for {before}"
            return False
        except EventTakenError:
            return False
        after = self.worker.rows()[row_key]
        if after == before:
            return False
        assert isinstance(told, Change), f"{before} became {after}, and {told} was told"
        self._remember(after, told, choice)
        if choice.option is not Option.UNDO:  # which goes back one decision further
            again = self.worker.propose(row_key, choice)
            assert not isinstance(again, Change), f"{choice} said twice is done twice: {before}, {after}"
        return True

    def take_all_back(self) -> None:
        """List again whatever was set aside."""
        for row_key in self.worker.rows():
            while self.worker.rows()[row_key].is_set_aside:
                assert self.decide(row_key, Instruction(Option.UNDO), Death()), row_key

    def _remember(self, after: RowRecord, change: Change, choice: Instruction) -> None:  # one arm per case
        if choice.option is Option.RESEND and change.risk:
            self.worker.service.let_go(after.key)
        match choice.option:
            case Option.RESEND if change.is_next_revision or (change.risk and (after.is_denied or after.is_refused)):
                assert change.risk
                if after.unanswered_at is not None:
                    self.forgotten.add(after.row_key)
                self.next_keys[after.row_key] += 1
            case Option.RESEND if change.risk:
                self.forgotten.add(after.row_key)
            case Option.EVENT_ID:
                self.named[after.row_key] = choice.event_id
                assert (after.state, after.event_id) == (EntryState.DELIVERED, choice.event_id)
            case Option.IGNORE:
                assert after.is_set_aside
            case Option.UNDO if self.named.get(after.row_key) != after.event_id:
                self.named.pop(after.row_key, None)  # else something later than the name was taken back
            case Option.RESEND | Option.RELEASE:
                assert after.state is EntryState.PENDING
            case Option.APPLIED:
                assert after.drift_body is None
            case Option.SAME_AS | Option.REMOVED:
                raise AssertionError(f"nobody chooses {choice} here")
