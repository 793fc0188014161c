"""The story of a feed in two verbs: `stage`, we know what to say; `publish`, it has been said.

Knows neither Dagster nor the environment: everything is handed in. How a row is mapped, remembered or sent is told in
`mappings`, `state` and `connectors`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from connectors.event_api.client import EventApi
from connectors.pacing import Pace
from connectors.sources.contract import Source
from mappings.delivery import Intent, Verdict
from mappings.engine import RowMapper
from mappings.errors import SyncError
from mappings.schema import FeedMapping
from mappings.vocabulary import RowKey, RowOutcome
from pipelines.brakes import BrakeVerdict, judge
from pipelines.caution import Caution
from pipelines.covers import CoverProblem, Covers, Dressed
from pipelines.departures import Departures, Unwatched
from pipelines.drain import Advance, Drain
from pipelines.holding import TellLoss
from pipelines.interrupts import interruptible, window
from pipelines.options import RunOptions
from pipelines.pace_told import pace_numbers
from pipelines.preflight import CLEAR, Outlook, Preflight
from pipelines.stoppable import run_stoppable
from state.accounts import PublishAccount, StageReport
from state.lease import LeaseLostError
from state.ledger import Ledger
from state.outbox import Outbox
from state.standing import NOTHING, Standing
from state.terms import Terms

CHUNK_ROWS = 500
"""Rows of one stage transaction: large enough for batched statements, small enough for flat memory."""
GRACE_S = 20.0
"""How long requests in flight may take to finish once a stop is asked for."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished stage, what the brakes said to it, and what the run noticed of the service before it."""

    report: StageReport
    brakes: tuple[BrakeVerdict, ...]
    notices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Row keys that were asked for, and that no row of the source has."""

    @property
    def stopping(self) -> tuple[BrakeVerdict, ...]:
        """The brakes that keep this feed from publishing."""
        return tuple(verdict for verdict in self.brakes if verdict.stops)


@dataclass(frozen=True, slots=True)
class Published:
    """A drain that ended: `cause` says why it ended before everything was sent, if it did; `standing` what waits for a
    person, since this drain or longer; `pace` how fast it went, in numbers.
    """

    account: PublishAccount
    cause: SyncError | None
    duration_s: float
    cover_problems: tuple[CoverProblem, ...] = ()
    standing: Standing = NOTHING
    outlook: Outlook = CLEAR
    pace: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageJob:
    """One stage: where rows come from, what maps them, where they are recorded."""

    run_id: str
    fence: int
    mapping: FeedMapping
    source: Source
    mapper: RowMapper
    ledger: Ledger
    options: RunOptions
    advance: Advance
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishJob:
    """One drain: what is owed, by which client it is sent, through which door (`departures`).

    `on_loss` is given what to call once another run has the feed; `tell` a sentence for whoever watches.
    """

    outbox: Outbox
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]]
    open_covers: Callable[[], Covers]
    in_flight: int
    advance: Advance
    clock_s: Callable[[], float]
    preflight: Preflight | None = None
    departures: Departures = field(default_factory=Unwatched)
    on_loss: Callable[[TellLoss], None] = lambda _stop: None
    tell: Callable[[str], None] = lambda _sentence: None


def stage(job: StageJob) -> Staged:
    """Read the source whole, map every row, record what is to be said; then ask the brakes.

    COMMIT POINT 1: each `write` is one transaction over a chunk of rows; the gate opens only in `close`.

    Raises:
        SyncError: the source cannot be read, or the state DB cannot record; what was staged so far is not published.
    """
    verdicts: list[BrakeVerdict] = []

    def brake(report: StageReport) -> list[str]:
        verdicts.extend(judge(report, job.mapping.publish.brakes, job.options.accept))
        return [verdict.name for verdict in verdicts if verdict.is_tripped]

    is_whole, missing = job.source.is_whole and not job.options.keys, set(job.options.keys)
    with ExitStack() as stack:
        with window():
            reading = stack.enter_context(job.source.read())
        staging = job.ledger.open_stage(job.run_id, is_whole=is_whole, fence=job.fence, stamp=reading.stamp, terms=_terms(job))
        for chunk in interruptible(batched(_chosen(map(job.mapper, reading.rows), job.options.keys), CHUNK_ROWS)):
            staging.write(chunk)
            job.advance(len(chunk))
            if missing:
                missing.difference_update(outcome.row_key for outcome in chunk)
    report = staging.close(brake)
    report.account.check()
    return Staged(report, tuple(verdicts), job.notices, tuple(sorted(missing)))


def _terms(job: StageJob) -> Terms:
    policy, options = job.mapping.publish, job.options
    return Terms(
        on_change=policy.on_change,
        on_vanish=policy.on_vanish,
        drafts_only=options.status == "draft",
        accepted=options.accept,
    )


def publish(job: PublishJob) -> Published:
    """Send what is owed, oldest first, several in flight; never needs the source.

    COMMIT POINT 2: a slot takes its next intent in the transaction that settles its last answer.

    Raises:
        SyncError: the state DB cannot record, or the lease was lost; nothing was sent that was not recorded.
    """
    sending = Sending(job)
    started = job.clock_s()
    run_stoppable(sending.run, sending.stop, sending.drain.leave)
    if isinstance(sending.drain.cause, LeaseLostError):
        raise sending.drain.cause
    account = job.outbox.account()
    account.check()
    duration_s = job.clock_s() - started
    settled = account.new + account.carried_over - account.pending
    return Published(
        account,
        sending.drain.cause,
        duration_s,
        tuple(sending.cover_problems),
        job.outbox.standing(),
        sending.outlook,
        pace_numbers(sending.pace, settled, duration_s) if sending.pace else {},
    )


class Sending:
    """One drain at work: each intent's cover first, pinned before anything is sent, then the event."""

    def __init__(self, job: PublishJob) -> None:
        self._job = job
        self.drain = Drain(job.outbox, job.in_flight, GRACE_S, job.advance, departures=job.departures)
        self.cover_problems: list[CoverProblem] = []
        self.outlook = CLEAR
        self.pace: Pace | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Open the client and drain, until all is sent or another run has the feed."""
        async with self._job.open_api() as api:
            covers = self._job.open_covers()
            self.cover_problems = covers.problems
            self.drain.deliver = functools.partial(self._send, api, covers)
            self.drain.close_route = api.stop
            self.drain.room = lambda: api.room
            loop = asyncio.get_running_loop()
            self._job.on_loss(lambda lost: _in_loop(loop, self.drain.leave, lost))
            try:
                await self._ahead(self._look_ahead(api))
                await self.drain.run()
                self._look_back()
                self.drain.cause = self.drain.cause or api.stopped or self.drain.breaker.cause_at_end()
            finally:
                self.pace = api.pace
                await covers.close()

    def stop(self) -> None:
        """Take no new rows, because somebody asked for it, and say what is waited for; in the event loop's thread."""
        if self._task is not None:
            self._task.cancel()
        count = self.drain.under_way
        waiting = f"{count} request{'s' * (count != 1)} in flight, up to {GRACE_S:.0f} s"
        self._job.tell(f"stopping: {waiting}; press Ctrl-C again to leave at once")
        self.drain.stop()

    async def _ahead(self, look: Coroutine[Any, Any, None]) -> None:
        """Look ahead, unless it is asked to stop meanwhile."""
        self._task = asyncio.create_task(look)
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _look_ahead(self, api: EventApi) -> None:
        """Ask the service's page what it expects, if there is anything to send."""
        if self._job.preflight is not None and self._job.outbox.owed:
            self.outlook = await self._job.preflight.look(api)
            self.drain.caution = Caution(self.outlook.doubts, self._job.outbox.owed)

    def _look_back(self) -> None:
        """Remember it where a row has passed that the page would have refused."""
        if self._job.preflight is not None and self.drain.caution.has_passed:
            self._job.preflight.disprove()

    async def _send(self, api: EventApi, covers: Covers, intent: Intent) -> Verdict:
        if intent.cover is None:
            return await api.deliver(intent)
        dressed = await covers.dress(api, intent, intent.cover)
        if not isinstance(dressed, Dressed):
            return dressed
        return await api.deliver(self._job.outbox.pin(intent, dressed.body, missing=dressed.missing))


def _in_loop(loop: asyncio.AbstractEventLoop, stop: TellLoss, lost: SyncError) -> None:
    with suppress(RuntimeError):  # the drain has ended by itself in this very moment
        loop.call_soon_threadsafe(stop, lost)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _chosen(outcomes: Iterable[RowOutcome], keys: tuple[str, ...]) -> Iterable[RowOutcome]:
    if not keys:
        return outcomes
    wanted = {RowKey(key) for key in keys}
    return (outcome for outcome in outcomes if outcome.row_key in wanted)
