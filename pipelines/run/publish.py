"""Publish the owed rows: open the client, compare the contract, then claim, deliver and settle with several requests in flight.

COMMIT POINT 2 of a run. The transaction that records an answer claims the next row, so that a kill leaves at most as many
unanswered rows as there are slots, and a quarter more that waited for one. The source is not needed. A drain stops if its
answers show that the mapping or the key is wrong, and not single rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from connectors.errors import OutageError, ScopeMissingError
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage
from connectors.rate_limit import RateReport
from mappings.delivery import Answer, Blocked, Intent, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.clock import monotonic_s
from pipelines.run.images import CoverImages, CoverProblem
from pipelines.run.options import Advance
from pipelines.run.outcome import (
    NAMED,
    BrakeError,
    ExitCode,
    RunOutcome,
    WrittenBack,
    outcome_of,
    outcome_of_standing,
    with_copies,
)
from pipelines.run.preflight import CLEAR, ExpectedRefusal, Outlook, Preflight
from pipelines.run.signals import InterruptedRunError, run_async
from state.errors import StateBusyError
from state.ledger.accounts import PublishAccount
from state.ledger.outbox import Outbox, Settled
from state.ledger.standing import NOTHING, Standing

OUTAGE = "outage"
"""The ledger's note that an outage stopped a drain; any other note is the reason of a refusal."""
GRACE_S = 20.0
"""Seconds that requests in flight get to finish after a stop is requested."""
STATE_PATIENCE_S = 30.0
"""Seconds that received answers wait for a locked or unreachable state DB; nothing new is sent meanwhile."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0
_POLL_S = 0.25
"""Interval at which a stopping drain looks for rows that wait for another attempt."""
_WAITING_SHARE = 4
"""One row waits for a slot for so many slots."""
_QUIET_PASSES = 2
"""Passes of the event loop that an answer needs from the socket to the drain."""
_TURNED_AWAY_S = 1.3
"""Longest time until every row that waits for a slot has been released."""
_MOST_USED = 1.05
"""A full token bucket lets through a little more than its rate."""
SAME_REFUSALS = 25
"""After this many equal refusals (field and issue) from the first row on, the mapping counts as wrong."""
MOST_IN_A_ROW = 1000
"""This many equal refusals in a row stop any run, even after deliveries; and after this many rows in a row whose channel the key
lacks the scope for, it counts as lacking it for all.
"""
PATIENT_ANSWERS = 10
"""After this many rows that are neither accepted nor refused as expected, the OpenAPI page is ignored."""
_ROUNDING = 1e-9
"""Tolerance for shares, which are binary fractions: 29 % of 100 must not be a little less than 29."""
T = TypeVar("T")
Task = asyncio.Task[Any]
Deliver = Callable[[Intent], Awaitable[Verdict]]
OpenApi = Callable[[Passage], AbstractAsyncContextManager[EventApi]]
OpenCovers = Callable[[], CoverImages]


class SameRefusalError(BrakeError):
    """Many rows are refused for the same reason, so single rows are not at fault. `reason` is equal for equal refusals."""

    def __init__(self, which: str, reason: str) -> None:
        super().__init__(
            f"{which} refused for the same reason: {reason}",
            brakes=("same refusal",),
            hint="correct the mapping and run again: refused rows are sent again when their payload changes; "
            "if the service was wrong, `eventsync retry FEED` sends them unchanged; "
            "the next run sends one row first, and the others if it is accepted",
        )
        self.reason = reason


@dataclass(slots=True)
class SystemicFailure:
    """Circuit breaker of a drain: stops it after repeated equal refusals, an expected refusal, or a missing scope for every
    channel.

    `patience`: equal refusals in a row that stop a run in which rows were accepted before. `stopped_by`: the reason why an
    earlier run was stopped; `expected`: refusals that follow from the OpenAPI page; with either, rows are sent one by one until
    one is accepted. `owed`: number of rows to send. `scope_cause`: why rows of a finished drain are still pending.
    `has_disproved`: a row was accepted against the page.
    """

    patience: int = MOST_IN_A_ROW
    owed: int = 0
    stopped_by: str = ""
    expected: tuple[ExpectedRefusal, ...] = ()
    scope_cause: SyncError | None = None
    has_disproved: bool = False
    _has_passed: bool = False
    _answers: int = 0
    _conclusive: int = 0
    _are_all_equal: bool = True
    _refusals: int = 0
    _in_a_row: int = 0
    _issue: str | None = None
    _out_of_scope: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether an earlier run was stopped, and no row was accepted since."""
        return bool(self.stopped_by) and not self._has_passed

    @property
    def is_cautious(self) -> bool:
        """Whether rows are to be sent one by one."""
        return self.is_doubtful or self._heeds_page

    @property
    def _heeds_page(self) -> bool:
        return bool(self.expected) and not self.has_disproved and self._conclusive < PATIENT_ANSWERS

    def cause(self, intent: Intent, verdict: Verdict) -> SyncError | None:
        """Count one more verdict; return the error that stops the run, None to continue."""
        if isinstance(verdict, Superseded):
            self._out_of_scope = 0
            return None  # the repeated answer is an old one: the row is sent again under its next key
        if self._heeds_page and (cause := self._announced(intent, verdict)):
            return cause
        if isinstance(verdict, Postponed):
            if not isinstance(verdict.cause, ScopeMissingError):
                return verdict.cause
            self._out_of_scope, self.scope_cause = self._out_of_scope + 1, verdict.cause
            return verdict.cause if self._out_of_scope >= MOST_IN_A_ROW else None
        if not isinstance(verdict, Uncertain):
            self._out_of_scope = 0
        # A refusal without a request (a broken image) proves nothing about the mapping.
        if isinstance(verdict, Refusal) and verdict.attempts:
            return self._after_refusal(verdict.answer)
        if not isinstance(verdict, Uncertain | Refusal):
            self._has_passed = self._has_passed or isinstance(verdict, Receipt | Unconfirmed)
            self._in_a_row = 0
        return None

    def _announced(self, intent: Intent, verdict: Verdict) -> SyncError | None:
        """Return the error that stops the drain if a row was refused as expected from the OpenAPI page.

        An intent that an earlier run may have sent disproves nothing: its answer may be the stored one, under an earlier
        contract.
        """
        self._answers += 1
        self._conclusive += not intent.is_unanswered
        self.has_disproved = isinstance(verdict, Receipt) and not intent.is_unanswered
        answer = verdict.answer
        announced = next((one for one in self.expected if one.explains(answer)), None)
        if announced is None or not isinstance(verdict, Refusal | Blocked):
            return None
        refusal = f"{answer.status} {': '.join(filter(None, (answer.field, answer.issue or answer.message)))}"
        return BrakeError(
            f"{announced.text}; a row was refused for it ({refusal}), {max(self.owed - self._answers, 0)} rows were not sent",
            brakes=("contract",),
            hint="see `eventsync check --live`, correct the mapping and run again: no row is lost, each keeps its key",
        )

    def _after_refusal(self, answer: Answer) -> SyncError | None:
        issue = " ".join(filter(None, (answer.code, answer.field, answer.issue)))
        if self.is_doubtful and issue == self.stopped_by:
            return SameRefusalError("the row that was sent first after a stop was", issue)
        self._are_all_equal = self._are_all_equal and self._issue in {None, issue}
        self._refusals, self._in_a_row = self._refusals + 1, self._in_a_row + 1 if issue == self._issue else 1
        self._issue = issue
        if self._are_all_equal and not self._has_passed:
            is_enough, which = self._refusals >= SAME_REFUSALS, f"the first {self._refusals} rows were all"
        else:
            is_enough, which = self._in_a_row >= self.patience, f"{self._in_a_row} rows in a row were all"
        return SameRefusalError(which, issue) if is_enough else None


def patience_with(owed: int, bad_share: float | None) -> int:
    """Return how many equal refusals in a row stop a run with `owed` rows, after some rows were accepted.

    A partner may have listed bad rows side by side: up to the allowed share (`rejected`; None: any) they are no sign of a wrong
    mapping.
    """
    beyond = MOST_IN_A_ROW if bad_share is None else int(owed * bad_share + _ROUNDING) + 1
    return min(max(SAME_REFUSALS, beyond), MOST_IN_A_ROW)


@dataclass(slots=True)
class Drain:
    """One pass over the outbox. Transactions and requests share one thread, so neither needs a lock.

    `in_flight`: requests at a time. `grace_s`: seconds that requests in flight get to finish after a stop. `advance`: called with
    the number of rows settled. `assure`: awaited right before each request; if it raises, the request is not sent. `report`
    prints a sentence for the person who watches. After `run`, `cause` is the error that ended the drain early, if any.
    """

    outbox: Outbox
    in_flight: int
    grace_s: float
    advance: Advance
    deliver: Deliver | None = None
    assure: Callable[[], Awaitable[None]] | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    report: Callable[[str], None] = lambda _sentence: None
    cause: SyncError | None = None
    outlook: Outlook = CLEAR
    pace: RateReport | None = None
    cover_problems: list[CoverProblem] = field(default_factory=list)
    surprises: tuple[str, ...] = ()
    _api: EventApi | None = None
    _preflight: asyncio.Task[Outlook] | None = None
    _answered: list[Settled] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[Task, Intent] = field(default_factory=dict)
    _at_service: set[Task | None] = field(default_factory=set)
    _has_left: set[Task | None] = field(default_factory=set)
    _deadline: float = inf
    _patience_until: float = inf

    async def publish(
        self, open_api: OpenApi, open_covers: Callable[[], CoverImages], preflight: Preflight | None = None
    ) -> None:
        """Open the client, compare the contract, and run; each intent is sent with its image."""
        outbox, systemic = self.outbox, self.systemic
        async with open_api(self.passage) as api:
            covers = open_covers()
            self._api, self.cover_problems = api, covers.problems
            self.deliver = _logged(partial(_deliver, api, covers, outbox))
            api.on_asking_later, api.record = self.wake, self.record
            if outbox.stopped_by == OUTAGE:
                api.circuit.begin_open()
            else:
                systemic.stopped_by = outbox.stopped_by
            try:
                if preflight is not None and outbox.owed:
                    # A task, so that a signal can cancel the comparison.
                    self._preflight = asyncio.create_task(preflight.compare(api))
                    await asyncio.wait({self._preflight})
                    if not self._preflight.cancelled():
                        self.outlook = self._preflight.result()
                        api.uploader.expect(self.outlook.upload_field)
                        self.systemic.expected = self.outlook.expected
                await self.run()
                if preflight is not None and systemic.has_disproved:
                    preflight.disprove()
                cause = self.cause or api.stopped
                # After these stops the next run sends one row first, until one has passed.
                if isinstance(cause, OutageError):
                    outbox.note_stop(OUTAGE)
                elif isinstance(cause, SameRefusalError):
                    outbox.note_stop(cause.reason)
                elif not api.circuit.is_open and not systemic.is_doubtful:
                    outbox.note_stop("")
                self.cause = cause or systemic.scope_cause
            finally:
                self.pace, self.surprises = api.limiter.report, tuple(api.surprises)
                await covers.close()

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Context around each request of the running task, its answer included: admit it, or hold it for ever after a stop.

        A held task waits until it is cancelled.
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

    def on_signal(self, count: int) -> None:
        """Take no new rows and print how long requests in flight are waited for; after a second signal do not wait."""
        if count > 1:
            self.stop()
            self._deadline = asyncio.get_running_loop().time()
            return
        if self._preflight is not None:
            self._preflight.cancel()
        in_flight = len(self._at_service & self._tasks.keys())
        waiting = f"{in_flight} request{'s' * (in_flight != 1)} in flight, up to {self.grace_s:.0f} s"
        self.report(f"stopping: {waiting}; press Ctrl-C again to quit at once")
        self.stop()

    def stop(self) -> None:
        """Take no new rows, after a signal; call it in the event loop's thread."""
        hint = "run it again to continue: requests in flight are repeated with the same key and body"
        self.cause = self.cause or InterruptedRunError("stopped on request", hint=hint)
        self.wake()

    def wake(self) -> None:
        """Compute again how many rows may be claimed; call it in the event loop's thread."""
        self._changed.set()

    async def record(self, intent: Intent) -> None:
        """Record another attempt of a claimed intent before it is sent."""
        await self._patiently(lambda: self.outbox.begin_again(intent))

    async def run(self) -> None:
        """Send until nothing is owed or a cause stops it; on return every received answer is recorded."""
        try:
            while await self._patiently(self._settle_and_send):
                await self._next_answers()
        finally:
            await self._cancel(list(self._tasks))

    async def _patiently(self, write: Callable[[], T]) -> T:
        """Write to the state DB, retrying for a while if it is busy: received answers must not be lost."""
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
        settled, api = list(self._answered), self._api
        self.cause = self.cause or (api.stopped if api else None)
        slots = self.in_flight
        if api:  # some rows wait for a slot of the client, so that none stays empty while its last row is settled (budget 6)
            slots = min(slots, api.limiter.concurrency.room)
            slots += slots // _WAITING_SHARE
        if self.systemic.is_cautious or (api and api.circuit.is_open):
            slots = min(1, slots)
        # Rows that wait before they repeat a request because its key is taken need no slot.
        in_hand = len(self._tasks) - (len(api.asking_later) if api else 0)
        want = 0 if self.cause else max(slots - in_hand, 0)
        if settled or want:
            # In the loop's thread: a switch of threads costs more than the transaction.
            intents = self.outbox.settle_and_claim(settled, want)
            del self._answered[: len(settled)]
            self.advance(sum(not isinstance(one.verdict, Superseded | Postponed) for one in settled))
            self._tasks.update({asyncio.create_task(self._send(intent)): intent for intent in intents})
        return bool(self._tasks or self._answered)

    async def _send(self, intent: Intent) -> None:
        task = asyncio.current_task()
        try:
            verdict = await self.deliver(intent)  # type: ignore[misc]  # set before the drain runs
            self._answered.append(Settled(intent, verdict))
            self.cause = self.cause or self.systemic.cause(intent, verdict)
            self._tasks.pop(task, None)  # type: ignore[arg-type]  # a coroutine that runs has a task
        finally:
            self._has_left.discard(task)
            self.wake()

    async def _next_answers(self) -> None:
        """Wait for answers; after a stop only for those of requests at the service."""
        loop = asyncio.get_running_loop()
        if self.cause and self._patience_until == inf:
            self._deadline = min(self._deadline, loop.time() + self.grace_s)
            self._patience_until = loop.time() + _TURNED_AWAY_S
            if self._api:
                self._api.limiter.close(self.cause)
        if loop.time() > self._patience_until and not self._answered:
            await self._dismiss()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._deadline, loop.time() + _POLL_S) if self._deadline < inf else None):
                await self._changed.wait()
        if loop.time() >= self._deadline:
            await self._cancel(list(self._tasks))
        quiet = 0  # collect answers that are passing through the loop: settling many costs little more than one
        while quiet < _QUIET_PASSES and self._answered and self._tasks:
            known = len(self._answered)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._answered) == known else 0
        self._changed.clear()
        for task in [task for task in self._tasks if task.done()]:
            task.result()

    async def _dismiss(self) -> None:
        """Cancel rows that wait for a slot, a pause or another attempt; those never sent become pending again."""
        waiting = [task for task in self._tasks if not (task.done() or task in self._at_service)]
        unsent = [self._tasks[task] for task in waiting if task not in self._has_left]
        await self._cancel(waiting)
        not_sent = Answer(status=0, code="not_sent", message="the run was stopped before the request was sent")
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


async def _deliver(api: EventApi, covers: CoverImages, outbox: Outbox, intent: Intent) -> Verdict:
    return await api.deliver(intent) if intent.cover is None else await covers.deliver(api, outbox, intent, intent.cover)


def _logged(deliver: Deliver) -> Deliver:
    """Return `deliver` with debug log lines before and after each row; unchanged if they are not wanted.

    Logs the status, code and request id of an answer, never the row's content.
    """
    log = structlog.get_logger()
    if not log.is_enabled_for(logging.DEBUG):
        return deliver

    async def logged(intent: Intent) -> Verdict:
        with bound_contextvars(row_key=intent.row_key):
            log.debug("row is sent", idempotency_key=intent.key, channel_id=intent.channel_id)
            verdict = await deliver(intent)
            answer = verdict.answer
            fields: dict[str, object] = {"status": answer.status, "code": answer.code, "request_id": answer.request_id}
            if isinstance(verdict, Receipt):
                fields["event_id"] = verdict.event_id
            elif isinstance(verdict, Postponed):
                fields["cause"] = str(verdict.cause)
            log.debug("row has its answer", verdict=type(verdict).__name__.lower(), attempts=verdict.attempts, **fields)
        return verdict

    return logged


@dataclass(frozen=True, slots=True)
class PublishReport:
    """A finished drain. `cause`: the error that ended it early, if any; `standing`: what waits for a person; `pace`: figures of
    the sending speed; `surprises`: sentences about answers that the specification does not know.
    """

    account: PublishAccount
    cause: SyncError | None
    duration_s: float
    cover_problems: tuple[CoverProblem, ...] = ()
    standing: Standing = NOTHING
    outlook: Outlook = CLEAR
    pace: Mapping[str, float] = field(default_factory=dict)
    written_back: WrittenBack = field(default_factory=WrittenBack)
    surprises: tuple[str, ...] = ()


def publish(drain: Drain, open_api: OpenApi, open_covers: OpenCovers, preflight: Preflight) -> PublishReport:
    """Send the owed rows, oldest first, several at a time; return the report.

    Raises:
        SyncError: the state DB cannot record, or the lease was lost; nothing was sent that was not recorded.
    """
    started = monotonic_s()
    run_async(lambda: drain.publish(open_api, open_covers, preflight), drain.on_signal)
    account = drain.outbox.account()
    account.check()
    duration_s = monotonic_s() - started
    settled = account.new + account.carried_over - account.pending
    pace = pace_numbers(drain.pace, settled, duration_s) if drain.pace else {}
    standing = drain.outbox.standing()
    return PublishReport(
        *(account, drain.cause, duration_s, tuple(drain.cover_problems), standing, drain.outlook, pace), surprises=drain.surprises
    )


def pace_numbers(pace: RateReport, rows: int, duration_s: float) -> dict[str, float]:
    """Return the figures of a drain that settled so many rows; without rate and share if no limit is known.

    The share is also left out if the rate was learned too late in the drain.
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
    """Return the outcome of a drain: from its cause if it ended early, else from what waits for a person."""
    if published.cause is not None:
        return with_copies(outcome_of(published.cause), published.standing, mapping)
    message, problems = "", published.cover_problems
    if problems:
        first = "; ".join(f"row {one.row_key}: {one.url}: {one.reason}" for one in problems[:NAMED])
        more = f"(all: `eventsync rows {mapping.feed} --state warning`)"
        message = f"{len(problems)} cover images could not be used: {first} {more}"
    return outcome_of_standing(published.standing, mapping, RunOutcome("done", ExitCode.DONE, message))
