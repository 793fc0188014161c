"""Drain a feed's outbox into the service: claim, deliver, settle, with several requests in flight.

A slot claims its next intent in the very transaction that makes its last answer durable, so that a kill leaves at most as many
unanswered rows as there were slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from connectors.event_api.client import EventApi
from mappings.delivery import Answer, Intent, Postponed, Superseded, Verdict
from mappings.errors import SyncError
from pipelines.run.signals import InterruptedRunError
from pipelines.run.systemic_failure import CautiousStart, SystemicFailure
from state.errors import StateBusyError
from state.ledger.outbox import Outbox, Settled

Task = asyncio.Task[Any]


async def _ours() -> None:
    """Ask nothing before a request leaves."""


class InFlight:
    """The requests of a drain that are at the service now, by their tasks; in the event loop's thread only.

    `assure` is awaited right before each request leaves, and may raise: then nothing leaves. Once `close` was called no request
    leaves any more: its task waits until it is cancelled.
    """

    def __init__(self, assure: Callable[[], Awaitable[None]] = _ours) -> None:
        self._assure = assure
        self._in_flight: set[Task | None] = set()
        self._has_left: set[Task | None] = set()
        self._is_closed = False

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Let the running task's request leave: a context around all of it, its answer included."""
        await self._begin()
        try:
            yield
        finally:
            self._in_flight.discard(asyncio.current_task())

    def close(self) -> None:
        """Let no further request leave."""
        self._is_closed = True

    def is_under_way(self, task: Task) -> bool:
        """Whether the task has a request at the service now."""
        return task in self._in_flight

    def has_left(self, task: Task) -> bool:
        """Whether the task has ever sent one."""
        return task in self._has_left

    async def _begin(self) -> None:
        if self._is_closed:
            await asyncio.get_running_loop().create_future()
        await self._assure()
        task = asyncio.current_task()
        self._in_flight.add(task)
        if task is not None and task not in self._has_left:
            self._has_left.add(task)
            task.add_done_callback(self._has_left.discard)


_POLL_S = 0.25
"""How often a drain that is to stop checks for rows that wait to be sent again: they are sent home."""
_QUIET_TURNS = 2
"""Turns of the loop that an answer takes from the socket to the drain."""
_TURNED_AWAY_S = 1.3
"""How long it may take until every row that waits for a slot has been turned away."""
_GO_ON = "run again to go on: what was in flight keeps its key and body"
_NOT_SENT = Answer(status=0, code="not_sent", message="the run was stopped before the request left")
STATE_PATIENCE_S = 30.0
"""How long answers in hand wait for a state DB that is locked or cannot be reached; nothing new is sent meanwhile."""
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 5.0

T = TypeVar("T")
Deliver = Callable[[Intent], Awaitable[Verdict]]
Advance = Callable[[int], None]


async def _nowhere(intent: Intent) -> Verdict:
    raise RuntimeError(f"{intent.row_key} has nowhere to go: set `deliver` before the drain runs")


@dataclass(slots=True)
class Drain:
    """One drain of one outbox. Its transactions and its requests share one thread, so that neither needs a lock.

    `in_flight`: requests at a time. `api` says how many of them there may be now, whether its circuit breaker is open, and why
    nothing is sent any more, if so; `requests` which tasks have one at the service. `grace_s`: how long requests in flight may
    take to finish once a stop is asked for. `advance` is called with the number of rows settled. After `run`, `cause` says why
    the drain ended early, if it did.
    """

    outbox: Outbox
    in_flight: int
    grace_s: float
    advance: Advance
    deliver: Deliver = _nowhere
    api: EventApi | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    caution: CautiousStart = field(default_factory=CautiousStart)
    requests: InFlight | None = None
    cause: SyncError | None = None
    _answered: list[Settled] = field(default_factory=list)
    _unsettled: list[Settled] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[asyncio.Task[None], Intent] = field(default_factory=dict)
    _deadline: float | None = None
    _patience_until: float | None = None

    def stop(self, cause: SyncError | None = None) -> None:
        """Take no new rows, for `cause` or because of a signal; in the event loop's thread."""
        self.cause = self.cause or cause or InterruptedRunError("stopped on request", hint=_GO_ON)
        self._arrived.set()

    def leave(self, cause: SyncError | None = None) -> None:
        """Stop, and do not even wait for what is in flight; in the event loop's thread."""
        self.stop(cause)
        self._deadline = asyncio.get_running_loop().time()

    @property
    def under_way(self) -> int:
        """How many rows have a request at the service now."""
        return sum(map(self._is_under_way, self._tasks))

    def _is_under_way(self, task: Task) -> bool:
        return self.requests is None or self.requests.is_under_way(task)

    def wake(self) -> None:
        """Compute again how many rows may be in hand; in the event loop's thread."""
        self._arrived.set()

    async def record(self, intent: Intent) -> None:
        """Record that one more attempt of an intent in hand begins, before it leaves."""
        await self._patiently(lambda: self.outbox.begin_again(intent))

    async def run(self) -> None:
        """Send until nothing is owed, or until a cause to stop; every answer that arrived is durable on return."""
        try:
            while await self._patiently(self._settle_and_send):
                await self._next_answers()
        finally:
            await self._abandon()

    async def _patiently(self, write: Callable[[], T]) -> T:
        """Write to the state DB; one that is away is waited for a while: the answers are in hand, and worth keeping."""
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
        answered, self._answered = self._answered, []
        for one in answered:
            self.cause = self.cause or self.caution.cause(one.intent, one.verdict) or self.systemic.cause(one.verdict)
        self.cause = self.cause or (self.api.stopped if self.api else None)
        aside = len(self.api.delivery.aside) if self.api else 0
        want = 0 if self.cause else max(self._slots() - len(self._tasks) + aside, 0)
        self._unsettled += answered
        if self._unsettled or want:
            # In the loop's own thread: handing the transaction to another one costs more than the transaction itself.
            intents = self.outbox.settle_and_claim(self._unsettled, want)
            settled, self._unsettled = self._unsettled, []
            self.advance(sum(not isinstance(one.verdict, Superseded | Postponed) for one in settled))
            self._tasks.update({asyncio.create_task(self._send(intent)): intent for intent in intents})
        return bool(self._tasks or self._answered)

    def _slots(self) -> int:
        """Return how many rows may be in hand, beside those that wait before they ask about a 409."""
        slots = min(self.in_flight, self.api.room) if self.api else self.in_flight
        is_single = self.caution.is_on or self.systemic.is_doubtful or (self.api is not None and self.api.circuit.is_open)
        return min(1, slots) if is_single else slots

    async def _send(self, intent: Intent) -> None:
        try:
            verdict = await self.deliver(intent)
            self._answered.append(Settled(intent, verdict))
            self._tasks.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
        finally:
            self._arrived.set()

    async def _next_answers(self) -> None:
        """Wait for answers; once it is asked to stop, only for those of requests that are at the service now."""
        loop = asyncio.get_running_loop()
        if self.cause and self._patience_until is None:
            self._deadline = self._deadline or loop.time() + self.grace_s
            self._patience_until = loop.time() + _TURNED_AWAY_S
            if self.requests:
                self.requests.close()
            if self.api:
                self.api.stop(self.cause)
        if self._patience_until is not None and loop.time() > self._patience_until and not self._answered:
            await self._dismiss()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline and min(self._deadline, loop.time() + _POLL_S)):
                await self._arrived.wait()
        if self._deadline is not None and loop.time() >= self._deadline:
            await self._abandon()
        await self._gather()
        self._arrived.clear()
        for task in [task for task in self._tasks if task.done()]:
            task.result()

    async def _gather(self) -> None:
        """Collect the answers that are on their way through the loop: settling many costs hardly more than one."""
        quiet = 0
        while quiet < _QUIET_TURNS and self._answered and self._tasks:
            known = len(self._answered)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._answered) == known else 0

    async def _dismiss(self) -> None:
        """Cancel rows that wait for a slot, a pause or another attempt. What never left is as good as not claimed."""
        waiting = [task for task in self._tasks if not (task.done() or self._is_under_way(task))]
        unsent = [self._tasks[task] for task in waiting if self.requests is None or not self.requests.has_left(task)]
        await self._cancel(waiting)
        cause = cast("SyncError", self.cause)
        self._answered += [Settled(intent, Postponed(_NOT_SENT, cause, attempts=0)) for intent in unsent]
        self._arrived.set() if unsent else None

    async def _abandon(self) -> None:
        await self._cancel(list(self._tasks))

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            self._tasks.pop(task, None)
