"""Publish what is owed: open the client, check the contract, then claim, deliver and settle with several requests in flight.

COMMIT POINT 2 of a run. A slot claims its next intent in the very transaction that makes its last answer durable, so that a
kill leaves at most as many unanswered rows as there were slots. Never needs the source.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from connectors.errors import OutageError
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage
from connectors.rate_limit import RateReport
from mappings.delivery import Answer, Intent, Postponed, Receipt, Superseded, Verdict
from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.run.images import CoverImages, CoverProblem
from pipelines.run.options import Advance
from pipelines.run.outcome import ExitCode, RunOutcome, outcome_of
from pipelines.run.signals import InterruptedRunError, call_in_loop, run_async
from pipelines.run.standing import NAMED, copies_line, joined_lines, outcome_of_standing
from pipelines.run.systemic_failure import CLEAR, CautiousStart, Outlook, Preflight, SameRefusalError, SystemicFailure
from pipelines.run.write_back import WrittenBack
from state.errors import LeaseLostError, StateBusyError
from state.ledger.accounts import PublishAccount
from state.ledger.outbox import Outbox, Settled
from state.ledger.standing import NOTHING, Standing

OUTAGE = "outage"
"""Why a drain was stopped, as the ledger keeps it; anything else is the reason of a refusal."""
GRACE_S = 20.0
"""How long requests in flight may take to finish once a stop is requested."""
STATE_PATIENCE_S = 30.0
"""How long answers in hand wait for a state DB that is locked or cannot be reached; nothing new is sent meanwhile."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0
_POLL_S = 0.25
"""How often a drain that is to stop checks for rows that wait to be sent again."""
_QUIET_PASSES = 2
"""Passes of the event loop that an answer takes from the socket to the drain."""
_TURNED_AWAY_S = 1.3
"""How long it may take until every row that waits for a slot has been turned away."""
_MOST_USED = 1.05
"""A bucket that was full lets through a little more than its rate."""
T = TypeVar("T")
Task = asyncio.Task[Any]
Deliver = Callable[[Intent], Awaitable[Verdict]]
OnLoss = Callable[[SyncError], None]


@dataclass(slots=True)
class Drain:
    """One drain of one outbox. Its transactions and its requests share one thread, so that neither needs a lock.

    `in_flight`: requests at a time. `grace_s`: how long requests in flight may take to finish once it is to stop. `advance` is
    called with the number of rows settled. `assure` is awaited right before each request leaves, and may raise: then nothing
    leaves. After `run`, `cause` says why the drain ended early, if it did.
    """

    outbox: Outbox
    in_flight: int
    grace_s: float
    advance: Advance
    deliver: Deliver | None = None
    assure: Callable[[], Awaitable[None]] | None = None
    api: EventApi | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    caution: CautiousStart = field(default_factory=CautiousStart)
    cause: SyncError | None = None
    _answered: list[Settled] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[Task, Intent] = field(default_factory=dict)
    _at_service: set[Task | None] = field(default_factory=set)
    _has_left: set[Task | None] = field(default_factory=set)
    _deadline: float = inf
    _patience_until: float = inf

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Let a request of the running task leave: a context around all of it, its answer included.

        Once the drain is to stop no request leaves any more: its task waits until it is cancelled.
        """
        if self._patience_until < inf:
            await asyncio.get_running_loop().create_future()
        if self.assure is not None:
            await self.assure()
        task = asyncio.current_task()
        self._at_service.add(task)
        self._has_left.add(task)
        try:
            yield
        finally:
            self._at_service.discard(task)
            if task not in self._tasks:
                self._has_left.discard(task)

    def stop(self, cause: SyncError | None = None) -> None:
        """Take no new rows, for `cause` or because of a signal; in the event loop's thread."""
        hint = "run again to go on: what was in flight keeps its key and body"
        self.cause = self.cause or cause or InterruptedRunError("stopped on request", hint=hint)
        self.wake()

    def leave(self, cause: SyncError | None = None) -> None:
        """Stop, and do not even wait for what is in flight; in the event loop's thread."""
        self.stop(cause)
        self._deadline = asyncio.get_running_loop().time()

    def wake(self) -> None:
        """Compute again how many rows may be in hand; in the event loop's thread."""
        self._changed.set()

    def count_in_flight(self) -> int:
        """Return how many rows have a request at the service now."""
        return len(self._at_service & self._tasks.keys())

    async def record(self, intent: Intent) -> None:
        """Record that one more attempt of an intent in hand begins, before it leaves."""
        await self._patiently(lambda: self.outbox.begin_again(intent))

    async def run(self) -> None:
        """Send until nothing is owed, or until a cause to stop; every answer that arrived is durable on return."""
        try:
            while await self._patiently(self._settle_and_send):
                await self._next_answers()
        finally:
            await self._cancel(list(self._tasks))

    async def _patiently(self, write: Callable[[], T]) -> T:
        """Write to the state DB; wait a while for one that is away, because the answers in hand are worth keeping."""
        loop = asyncio.get_running_loop()
        until_s, wait_s = loop.time() + STATE_PATIENCE_S, _FIRST_WAIT_S
        while True:
            try:
                return write()
            except StateBusyError:
                if loop.time() + wait_s > until_s:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _settle_and_send(self) -> bool:
        settled = list(self._answered)
        self.cause = self.cause or (self.api.stopped if self.api else None)
        want = 0 if self.cause else max(self._free_slots(), 0)
        if settled or want:
            # In the loop's own thread: handing the transaction to another one costs more than the transaction itself.
            intents = self.outbox.settle_and_claim(settled, want)
            del self._answered[: len(settled)]
            self.advance(sum(not isinstance(one.verdict, Superseded | Postponed) for one in settled))
            self._tasks.update({asyncio.create_task(self._send(intent)): intent for intent in intents})
        return bool(self._tasks or self._answered)

    def _free_slots(self) -> int:
        """Return how many rows more may be in hand; those that wait before they ask about a 409 need no slot."""
        slots = min(self.in_flight, self.api.limiter.concurrency.room) if self.api else self.in_flight
        if self.caution.is_on or self.systemic.is_doubtful or (self.api and self.api.circuit.is_open):
            slots = min(1, slots)
        return slots - len(self._tasks) + (len(self.api.delivery.aside) if self.api else 0)

    async def _send(self, intent: Intent) -> None:
        task = asyncio.current_task()
        try:
            verdict = await self.deliver(intent)  # type: ignore[misc]  # set before the drain runs
            self._answered.append(Settled(intent, verdict))
            self.cause = self.cause or self.caution.cause(intent, verdict) or self.systemic.cause(verdict)
            self._tasks.pop(task, None)  # type: ignore[arg-type]  # a coroutine that runs has a task
        finally:
            self._has_left.discard(task)
            self.wake()

    async def _next_answers(self) -> None:
        """Wait for answers; once it is to stop, only for those of requests that are at the service now."""
        loop = asyncio.get_running_loop()
        if self.cause and self._patience_until == inf:
            self._deadline = min(self._deadline, loop.time() + self.grace_s)
            self._patience_until = loop.time() + _TURNED_AWAY_S
            if self.api:
                self.api.limiter.close(self.cause)
        if loop.time() > self._patience_until and not self._answered:
            await self._dismiss()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._deadline, loop.time() + _POLL_S) if self._deadline < inf else None):
                await self._changed.wait()
        if loop.time() >= self._deadline:
            await self._cancel(list(self._tasks))
        await self._gather()
        self._changed.clear()
        for task in [task for task in self._tasks if task.done()]:
            task.result()

    async def _gather(self) -> None:
        """Collect the answers that are on their way through the loop: settling many costs hardly more than one."""
        quiet = 0
        while quiet < _QUIET_PASSES and self._answered and self._tasks:
            known = len(self._answered)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._answered) == known else 0

    async def _dismiss(self) -> None:
        """Cancel rows that wait for a slot, a pause or another attempt. What never left is as good as not claimed."""
        waiting = [task for task in self._tasks if not (task.done() or task in self._at_service)]
        unsent = [self._tasks[task] for task in waiting if task not in self._has_left]
        await self._cancel(waiting)
        not_sent = Answer(status=0, code="not_sent", message="the run was stopped before the request left")
        cause = self.cause or InterruptedRunError("stopped on request")
        self._answered += [Settled(intent, Postponed(not_sent, cause, attempts=0)) for intent in unsent]
        if unsent:
            self.wake()

    async def _cancel(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            self._tasks.pop(task, None)


@dataclass(frozen=True, slots=True)
class PublishJob:
    """All that one drain needs.

    `on_loss` registers what is called once another run has taken the feed over; `report` prints a sentence for the person who
    watches. `is_traced`: requests are traced, each with the key of its row.
    """

    outbox: Outbox
    open_api: Callable[[Passage], AbstractAsyncContextManager[EventApi]]
    open_covers: Callable[[], CoverImages]
    in_flight: int
    advance: Advance
    clock_s: Callable[[], float]
    preflight: Preflight | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    assure: Callable[[], Awaitable[None]] | None = None
    on_loss: Callable[[OnLoss], None] = lambda _stop: None
    report: Callable[[str], None] = lambda _sentence: None
    is_traced: bool = False


@dataclass(frozen=True, slots=True)
class PublishReport:
    """A drain that ended: `cause` says why it ended before everything was sent, if it did; `standing` what waits for a person;
    `pace` how fast it went, in numbers.
    """

    account: PublishAccount
    cause: SyncError | None
    duration_s: float
    cover_problems: tuple[CoverProblem, ...] = ()
    standing: Standing = NOTHING
    outlook: Outlook = CLEAR
    pace: Mapping[str, float] = field(default_factory=dict)
    written_back: WrittenBack = field(default_factory=WrittenBack)


def publish(job: PublishJob) -> PublishReport:
    """Send what is owed, oldest first, several in flight.

    Raises:
        SyncError: the state DB cannot record, or the lease was lost; nothing was sent that was not recorded.
    """
    publisher = Publisher(job)
    started = job.clock_s()
    run_async(publisher.run, publisher.stop)
    cause = publisher.drain.cause
    if isinstance(cause, LeaseLostError):
        raise cause
    account = job.outbox.account()
    account.check()
    duration_s = job.clock_s() - started
    settled = account.new + account.carried_over - account.pending
    pace = pace_numbers(publisher.pace, settled, duration_s) if publisher.pace else {}
    problems = tuple(publisher.cover_problems)
    return PublishReport(account, cause, duration_s, problems, job.outbox.standing(), publisher.outlook, pace)


class Publisher:
    """One drain with its client: the contract first, then each intent with its image."""

    def __init__(self, job: PublishJob) -> None:
        self._job = job
        self.drain = Drain(job.outbox, job.in_flight, GRACE_S, job.advance, assure=job.assure, systemic=job.systemic)
        self.cover_problems: list[CoverProblem] = []
        self.outlook = CLEAR
        self.pace: RateReport | None = None
        self._preflight: asyncio.Task[Outlook] | None = None

    async def run(self) -> None:
        """Open the client and drain, until all is sent or another run has the feed."""
        job, drain = self._job, self.drain
        async with job.open_api(drain.passage) as api:
            covers = job.open_covers()
            self.cover_problems = covers.problems
            drain.api, drain.deliver = api, self._logged(functools.partial(_deliver, api, covers, job.outbox))
            api.delivery.on_aside, api.delivery.record = drain.wake, drain.record
            if job.outbox.stopped_by == OUTAGE:
                api.circuit.begin_open()
            else:
                drain.systemic.stopped_by = job.outbox.stopped_by
            loop = asyncio.get_running_loop()
            job.on_loss(functools.partial(call_in_loop, loop, drain.leave))
            try:
                if job.preflight is not None and job.outbox.owed:
                    await self._check_contract(job.preflight, api)
                await drain.run()
                if job.preflight is not None and drain.caution.has_passed:
                    job.preflight.disprove()
                self._note_stop(api)
                drain.cause = drain.cause or api.stopped or drain.systemic.scope_cause
            finally:
                self.pace = api.limiter.report
                await covers.close()

    def stop(self, signals: int) -> None:
        """Take no new rows, and print what is waited for; from a second signal on wait for nothing."""
        if signals > 1:
            self.drain.leave()
            return
        if self._preflight is not None:
            self._preflight.cancel()
        count = self.drain.count_in_flight()
        waiting = f"{count} request{'s' * (count != 1)} in flight, up to {GRACE_S:.0f} s"
        self._job.report(f"stopping: {waiting}; press Ctrl-C again to leave at once")
        self.drain.stop()

    async def _check_contract(self, preflight: Preflight, api: EventApi) -> None:
        """Compare the mapping with the service's page, unless a signal cuts it short."""
        self._preflight = asyncio.create_task(preflight.compare(api))
        await asyncio.wait({self._preflight})
        if not self._preflight.cancelled():
            self.outlook = self._preflight.result()
            api.uploader.expect(self.outlook.upload_field)
            self.drain.caution = CautiousStart(self.outlook.doubts, self._job.outbox.owed)

    def _note_stop(self, api: EventApi) -> None:
        """Remember a stop after which the next run sends one row first, and forget it once a row has passed."""
        cause = self.drain.cause or api.stopped
        if isinstance(cause, OutageError):
            self._job.outbox.note_stop(OUTAGE)
        elif isinstance(cause, SameRefusalError):
            self._job.outbox.note_stop(cause.reason)
        elif not api.circuit.is_open and not self.drain.systemic.is_doubtful:
            self._job.outbox.note_stop("")

    def _logged(self, deliver: Deliver) -> Deliver:
        """Return `deliver` with a log line before and after each row at level debug, and as it is where neither is wanted.

        Of an answer, the status, the code and the request id are logged, never the row's content.
        """
        log = structlog.get_logger()
        is_debugging = log.is_enabled_for(logging.DEBUG)
        if not is_debugging and not self._job.is_traced:
            return deliver

        async def logged(intent: Intent) -> Verdict:
            with bound_contextvars(row_key=intent.row_key):
                log.debug("row is sent", idempotency_key=intent.key, channel_id=intent.channel_id)
                verdict = await deliver(intent)
                log.debug("row has its answer", **_loggable(verdict) if is_debugging else {})
            return verdict

        return logged


async def _deliver(api: EventApi, covers: CoverImages, outbox: Outbox, intent: Intent) -> Verdict:
    return await api.deliver(intent) if intent.cover is None else await covers.deliver(api, outbox, intent, intent.cover)


def _loggable(verdict: Verdict) -> dict[str, object]:
    answer = verdict.answer
    fields: dict[str, object] = {
        "verdict": type(verdict).__name__.lower(),
        "status": answer.status,
        "code": answer.code,
        "request_id": answer.request_id,
        "attempts": verdict.attempts,
    }
    if isinstance(verdict, Receipt):
        fields["event_id"] = verdict.event_id
    elif isinstance(verdict, Postponed):
        fields["cause"] = str(verdict.cause)
    return fields


def pace_numbers(pace: RateReport, rows: int, duration_s: float) -> dict[str, float]:
    """Return the numbers of a drain that settled so many rows; without the rate and its share where no limit is known.

    The share is left out where it says nothing: the rate was learned too late in the drain to compare it with.
    """
    numbers: dict[str, float] = {
        "rows_per_s": round(rows / duration_s, 1) if duration_s else 0.0,
        "limited": pace.limited,
        "pauses": pace.pauses,
        "paused_s": round(pace.paused_s, 1),
        "most_under_way": pace.most_in_flight,
        "workers": pace.workers,
    }
    if pace.rate_per_s is not None and pace.used_share is not None:
        numbers["rate_per_s"] = round(pace.rate_per_s, 6)
        if pace.used_share <= _MOST_USED:
            numbers["used_share"] = round(pace.used_share, 3)
    return numbers


def outcome_of_publish(published: PublishReport, mapping: FeedMapping) -> RunOutcome:
    """Return the outcome of a drain: its cause if it stopped early, else by what waits for a person."""
    if published.cause is not None:
        outcome = outcome_of(published.cause)
        return replace(outcome, message=joined_lines(outcome.message, copies_line(published.standing, mapping)))
    message, problems = "", published.cover_problems
    if problems:
        first = "; ".join(f"row {one.row_key}: {one.url}: {one.reason}" for one in problems[:NAMED])
        more = f"(all: `eventsync rows {mapping.feed} --state warning`)"
        message = f"{len(problems)} cover images could not be used: {first} {more}"
    return outcome_of_standing(published.standing, mapping, RunOutcome("done", ExitCode.DONE, message))
