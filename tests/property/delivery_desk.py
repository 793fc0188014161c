"""One feed and its worker on virtual time: the real stage and publish over a real state DB, killed where a test says.

The service is a model (`model_service`); what must hold is `test_delivery_machine`'s.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

import httpx
from property.model_service import Death, KilledError, ModelService
from pydantic import SecretStr
from sqlalchemy import Engine, delete, event
from unit.connectors_api.wired import SECRET
from virtual_time import at_once

from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage, open_http
from connectors.rate_limit import RateLimiter
from connectors.retry import RetryPolicy, Timing
from connectors.sources.contract import Reading
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import SyncError
from mappings.event import Directory
from mappings.outcome import RowLocation, SourceRow
from mappings.row_key import RowKey, idempotency_key
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.run.images import CoverProblem
from pipelines.run.options import RunOptions
from pipelines.run.outcome import outcome_of
from pipelines.run.publish import GRACE_S, Drain, PublishReport, outcome_of_publish
from pipelines.run.stage import ReadPlan, StageJob, stage
from state.database import writing
from state.enums import ProblemKind
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError
from state.ledger.decisions import Decisions, propose
from state.ledger.lease import Lease, LeaseClock
from state.ledger.ledger import Ledger
from state.ledger.outbox import open_outbox
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter, RunRecord
from state.tables import METADATA

DESTINATION = "https://events.example.org#tests"
NAMESPACE = "tests"
KEY_MEMORY_S = 86_400.0
IN_FLIGHT = 3
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MAPPING = """\
feed: agenda
source: {kind: csv, path: agenda.csv}
key: [ID]
event:
  channelId: 7
  title: {from: TITLE}
  startAt: {at: {day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]}, clock: {from: HOUR, do: [{time: ["%H:%M"]}]}, zone: Europe/Warsaw}}
  timezone: Europe/Warsaw
  status: published
  classifications: [music]
  approxLocation: {city: {placeId: krk}}
publish:
  key_memory: 24h
  brakes: {rejected: off, shrink: off, new: off}
"""
T = TypeVar("T")
COLUMNS = ("ID", "TITLE", "DAY", "HOUR")


@dataclass
class Clock:
    """The time of day: turned by hand, and going on with the loop's while one runs."""

    instant: datetime = START

    def __call__(self) -> datetime:
        return self.instant + timedelta(seconds=_loop_s())

    def turn(self, **by: float) -> None:
        self.instant += timedelta(**by)

    def seconds(self) -> float:
        return self().timestamp()

    @property
    def lease_clock(self) -> LeaseClock:
        return LeaseClock(self, is_servers=False)


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
            SourceRow(
                RowLocation(f"agenda.csv:{number}", number), dict(zip(COLUMNS, (key, title, "2031-05-06", "19:30"), strict=True))
            )
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
        with writing(self.engine) as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(delete(table))


class Worker:
    """Runs of one feed, one after another, each a process of its own as far as memory goes."""

    def __init__(self, clock: Clock, service: ModelService, state_db: Books) -> None:
        self.clock = clock
        self.service = service
        self.sheet = Sheet()
        self.runs = 0
        self._state_db = state_db
        self._engine = state_db.engine
        state_db.empty()

    def lose_the_books(self) -> None:
        """The state DB is gone, with all that it knew."""
        self._state_db.empty()

    def run(self, death: Death, options: RunOptions) -> bool:
        """Stage and publish as the options say; return False if the run was killed."""
        self.service.death = death
        with _mortal(self._engine, death):
            try:
                self._run(options)
            except KilledError:
                self.clock.turn(seconds=90)  # until the dead run's lease has expired
                return False
            finally:
                self.service.death = Death()
        return True

    def decide(self, by: str, choose: Callable[[Decisions], T], death: Death | None = None) -> T | None:
        """Let a person decide, under the feed's lease as the commands do; None if the command was killed."""
        ledger = self.ledger()
        with _mortal(self._engine, death or Death()):
            try:
                with ledger.acquire_lease(by) as lease:
                    return choose(Decisions(ledger.fence("", lease.token), by))
            except KilledError:
                self.clock.turn(seconds=90)
                return None

    def propose(self, row_key: str, choice: Instruction) -> Change | NoChange | None:
        """Return what the command would say before it does anything; None if it cannot be done."""
        (outcome,) = propose(self._engine, FeedScope(DESTINATION, _mapping().feed), [RowKey(row_key)], choice).values()
        return None if isinstance(outcome, NotPossibleError) else outcome

    def rows(self) -> dict[str, RowRecord]:
        """Every entry of the ledger, by row key."""
        return {row.row_key: row for row in self.books().every_row(FeedScope(DESTINATION, _mapping().feed), RowFilter())}

    def past_runs(self) -> tuple[RunRecord, ...]:
        return self.books().runs(limit=1_000)

    def held(self) -> set[str]:
        """The rows that are listed as likely copies of others, as of the last read."""
        book = FeedScope(DESTINATION, _mapping().feed)
        return {problem.row_key for problem in self.books().every_problem(book, ProblemKind.HELD)}

    def books(self) -> LedgerQueries:
        return LedgerQueries(self._engine)

    def ledger(self) -> Ledger:
        mapping = _mapping()
        return Ledger(
            self._engine, DESTINATION, mapping.feed, namespace=NAMESPACE, now=self.clock, lease_clock=self.clock.lease_clock
        )

    def _run(self, options: RunOptions) -> None:
        self.runs += 1
        run_id, ledger = f"run-{self.runs}", self.ledger()
        with ledger.acquire_lease("a test") as lease:
            ledger.begin_run(run_id, launched_by="a test")
            try:
                if not options.publish_only:
                    stage(self._stage_job(run_id, ledger, lease, options))
                if not options.stage_only and ledger.gate().is_open:
                    self._publish(run_id, ledger, lease, options)
                else:
                    ledger.finish_run(run_id, outcome="staged", exit_code=0, message="")
            except SyncError as error:
                outcome = outcome_of(error)
                ledger.finish_run(run_id, outcome=outcome.name, exit_code=outcome.exit_code, message=outcome.text)
                raise

    def _stage_job(self, run_id: str, ledger: Ledger, lease: Lease, options: RunOptions) -> StageJob:
        return StageJob(
            run_id, lease.token, _mapping(), self.sheet, _mapper(), ledger, options, lambda _rows: None, ReadPlan(START)
        )

    def _publish(self, run_id: str, ledger: Ledger, lease: Lease, options: RunOptions) -> None:
        keys = [RowKey(key) for key in options.keys] or None
        outbox = open_outbox(ledger.fence(run_id, lease.token), limit=options.limit, keys=keys, key_memory_s=KEY_MEMORY_S)
        drain = Drain(outbox, IN_FLIGHT, GRACE_S, lambda _rows: None)
        self._publish_in_virtual_time(drain)
        account = outbox.account()
        account.check()
        published = PublishReport(account, drain.cause, 0.0, standing=outbox.standing())
        outcome = outcome_of_publish(published, _mapping())
        ledger.finish_run(
            run_id, outcome=outcome.name, exit_code=outcome.exit_code, message=outcome.text, publish_account=account
        )

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
        transport = httpx.MockTransport(self.service)
        policy = RetryPolicy(key_memory_s=KEY_MEMORY_S)
        async with open_http("https://events.example.org", SecretStr(SECRET), transport=transport) as http:
            http.passage = passage
            limiter = RateLimiter(Timing(_loop_s, asyncio.sleep, lambda: 1.0, self.clock))
            yield EventApi(http, limiter=limiter, policy=policy)


@contextmanager
def _mortal(engine: Engine, death: Death) -> Iterator[None]:
    """Let the worker die where a transaction begins, or just before it is durable."""
    points = {name: (lambda _connection, name=name: death.at(name)) for name in ("begin", "commit")}
    for name, die in points.items():
        event.listen(engine, name, die)
    try:
        yield
    finally:
        for name, die in points.items():
            event.remove(engine, name, die)


@cache
def rows_of_keys(rows: frozenset[str], revisions: int) -> Mapping[str, str]:
    """Whose row a key of the feed is, for the first revisions of these rows."""
    feed = _mapping().feed
    return {idempotency_key(NAMESPACE, feed, RowKey(row), revision=number): row for row in rows for number in range(revisions)}


@cache
def _mapping() -> FeedMapping:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agenda.yaml"
        path.write_text(MAPPING, "utf-8")
        return load_feed(path)


@cache
def _mapper() -> RowMapper:
    return compile_feed(_mapping(), Directory())
