"""One drain at work: the client opened, the service's page asked, each row dressed with its image, then sent.

When it begins, and what it comes to, is `sync`'s; how slots are filled and answers settled is `drain`'s.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from connectors.errors import OutageError
from connectors.event_api.client import EventApi
from connectors.rate_limit import RateReport
from mappings.delivery import Intent, Postponed, Receipt, Verdict
from mappings.errors import SyncError
from mappings.measures import written, written_rate
from pipelines.run.drain import Advance, Deliver, Departures, Drain, Unwatched
from pipelines.run.images import CoverImages, CoverProblem, Dressed, names_cover
from pipelines.run.lease import TellLoss
from pipelines.run.preflight import CLEAR, Preflight
from pipelines.run.systemic_failure import CautiousStart, SameRefusalError, SystemicFailure
from state.ledger.outbox import Outbox

OUTAGE = "outage"
"""Why a drain was stopped, as the ledger keeps it; anything else is the reason of a refusal."""
GRACE_S = 20.0
"""How long requests in flight may take to finish once a stop is asked for."""


@dataclass(frozen=True, slots=True)
class PublishJob:
    """One drain: what is owed, by which client it is sent, through which door (`departures`).

    `on_loss` is given what to call once another run has the feed; `tell` a sentence for whoever watches. `watch` is given what
    delivers a row, once, and returns what delivers it and tells: as it is, where nobody wants to hear of single rows.
    """

    outbox: Outbox
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]]
    open_covers: Callable[[], CoverImages]
    in_flight: int
    advance: Advance
    clock_s: Callable[[], float]
    preflight: Preflight | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    departures: Departures = field(default_factory=Unwatched)
    on_loss: Callable[[TellLoss], None] = lambda _stop: None
    tell: Callable[[str], None] = lambda _sentence: None
    watch: Callable[[Deliver], Deliver] = lambda deliver: deliver


class Sending:
    """One drain at work: each intent's cover first, pinned before anything is sent, then the event."""

    def __init__(self, job: PublishJob) -> None:
        self._job = job
        self.drain = Drain(job.outbox, job.in_flight, GRACE_S, job.advance, systemic=job.systemic, departures=job.departures)
        self.cover_problems: list[CoverProblem] = []
        self.outlook = CLEAR
        self.pace: RateReport | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Open the client and drain, until all is sent or another run has the feed."""
        async with self._job.open_api() as api:
            covers = self._job.open_covers()
            self.cover_problems = covers.problems
            self.drain.deliver = self._job.watch(functools.partial(self._send, api, covers))
            self.drain.close_route = api.stop
            self.drain.room = lambda: api.room
            self._connect(api)
            loop = asyncio.get_running_loop()
            self._job.on_loss(lambda lost: _in_loop(loop, self.drain.leave, lost))
            try:
                await self._ahead(self._look_ahead(api))
                await self.drain.run()
                self._look_back()
                self._note_stop(api)
                self.drain.cause = self.drain.cause or api.stopped or self.drain.systemic.cause_at_end()
            finally:
                self.pace = api.pace
                await covers.close()

    def _connect(self, api: EventApi) -> None:
        """Let drain and client know of each other: which rows need no slot, whether the circuit is open."""
        drain, circuit, courier = self.drain, api.circuit, api.courier
        drain.aside = lambda: len(courier.aside)
        drain.is_wary = lambda: circuit.is_open
        drain.stopped = lambda: api.stopped
        courier.on_aside = drain.wake
        courier.record = drain.record
        stopped_by = self._job.outbox.stopped_by
        if stopped_by == OUTAGE:
            circuit.begin_open()
        else:
            drain.systemic.stopped_by = stopped_by

    def _note_stop(self, api: EventApi) -> None:
        """Remember a stop after which the next run sends one row first, and forget it once a row has passed."""
        match self.drain.cause or api.stopped:
            case OutageError():
                self._job.outbox.note_stop(OUTAGE)
            case SameRefusalError(reason=reason):
                self._job.outbox.note_stop(reason)
            case _ if not api.circuit.is_open and not self.drain.systemic.is_doubtful:
                self._job.outbox.note_stop("")
            case _:
                pass

    def stop(self, signals: int) -> None:
        """Take no new rows, and print what is waited for; from a second signal on wait for nothing."""
        if signals > 1:
            self.drain.leave()
            return
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
            api.expect_upload_in(self.outlook.upload_field)
            self.drain.caution = CautiousStart(self.outlook.doubts, self._job.outbox.owed)

    def _look_back(self) -> None:
        """Remember it where a row has passed that the page would have refused."""
        if self._job.preflight is not None and self.drain.caution.has_passed:
            self._job.preflight.disprove()

    async def _send(self, api: EventApi, covers: CoverImages, intent: Intent) -> Verdict:
        if intent.cover is None:
            return await api.deliver(intent)
        dressed = await covers.dress(api, intent, intent.cover)
        if not isinstance(dressed, Dressed):
            return dressed
        verdict = await api.deliver(self._job.outbox.pin(intent, dressed.body, missing=dressed.missing))
        if dressed.media_id is None or not names_cover(verdict) or not await covers.forget(dressed.media_id):
            return verdict
        again = await covers.dress(api, intent, intent.cover)
        if isinstance(again, Postponed):  # nothing is wrong with the row: no image can be uploaded at the moment
            self._job.outbox.unpin(intent, refused=verdict)
            return again
        if not isinstance(again, Dressed) or again.body == dressed.body:
            return verdict
        corrected = self._job.outbox.pin(intent, again.body, missing=again.missing, refused=verdict)
        return await api.deliver(corrected)


def _in_loop(loop: asyncio.AbstractEventLoop, stop: TellLoss, lost: SyncError) -> None:
    with suppress(RuntimeError):  # the drain has ended by itself in this very moment
        loop.call_soon_threadsafe(stop, lost)


def watching_rows(deliver: Deliver, *, is_traced: bool) -> Deliver:
    """Return what delivers a row and logs it; `deliver` itself, unless the log is at level debug or requests are traced.

    Whatever is logged of a row names it as `row_key`. Of an answer are told its status, its code and its request id, by
    which the service finds it; never the row's content.
    """
    log = structlog.get_logger()
    if not log.is_enabled_for(logging.DEBUG):
        return _named(deliver) if is_traced else deliver

    async def told(intent: Intent) -> Verdict:
        with bound_contextvars(row_key=intent.row_key):
            log.debug("row is sent", idempotency_key=intent.key, channel_id=intent.channel_id)
            verdict = await deliver(intent)
            log.debug("row has its answer", **_told(verdict))
        return verdict

    return told


def _named(deliver: Deliver) -> Deliver:
    async def named(intent: Intent) -> Verdict:
        with bound_contextvars(row_key=intent.row_key):
            return await deliver(intent)

    return named


def _told(verdict: Verdict) -> dict[str, object]:
    answer = verdict.answer
    told: dict[str, object] = {
        "verdict": type(verdict).__name__.lower(),
        "status": answer.status,
        "code": answer.code,
        "request_id": answer.request_id,
        "attempts": verdict.attempts,
    }
    match verdict:
        case Receipt(event_id=event_id):
            told["event_id"] = event_id
        case Postponed(cause=cause):
            told["cause"] = str(cause)
        case _:
            pass
    return told


_MOST_USED = 1.05
"""A bucket that was full lets through a little more than its rate."""


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


def pace_line(numbers: Mapping[str, float]) -> str:
    """Return the numbers as one line, "" where there are none, or nothing was sent."""
    if not numbers or not numbers["most_under_way"]:
        return ""
    said = [f"{written(numbers['rows_per_s'])} rows/s", f"up to {written(numbers['most_under_way'])} at a time"]
    if "rate_per_s" in numbers:
        said.append(_allowed(numbers["rate_per_s"], numbers.get("used_share")))
    if numbers["limited"]:
        said.append(f"answered 429: {written(numbers['limited'])}, paused {written(numbers['paused_s'])} s")
    if numbers["workers"] > 1:
        said.append(f"shared by {written(numbers['workers'])} workers")
    return f"pace: {', '.join(said)}"


def _allowed(rate_per_s: float, used_share: float | None) -> str:
    allowed = f"the {written_rate(rate_per_s)} that the service allows"
    if used_share is None or used_share > _MOST_USED:  # accounts of earlier versions have any share
        return f"found {allowed}"
    return f"{written(min(used_share, 1.0) * 100)}% of {allowed}"
