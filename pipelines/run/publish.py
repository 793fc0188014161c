"""Publish what is owed: open the client, check the contract, send each row with its image, record the answers.

Never needs the source.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bound_contextvars

from connectors.errors import OutageError
from connectors.event_api.client import EventApi
from connectors.rate_limit import RateReport
from mappings.delivery import Intent, Postponed, Receipt, Verdict
from mappings.errors import SyncError
from pipelines.run.drain import Advance, Deliver, Drain, InFlight
from pipelines.run.images import CoverImages, CoverProblem, Dressed, names_cover
from pipelines.run.lease import OnLoss
from pipelines.run.preflight import CLEAR, Outlook, Preflight
from pipelines.run.signals import run_async
from pipelines.run.systemic_failure import CautiousStart, SameRefusalError, SystemicFailure
from pipelines.run.write_back import WrittenBack
from state.holders import LeaseLostError
from state.ledger.accounts import PublishAccount
from state.ledger.outbox import Outbox
from state.ledger.standing import NOTHING, Standing

OUTAGE = "outage"
"""Why a drain was stopped, as the ledger keeps it; anything else is the reason of a refusal."""
GRACE_S = 20.0
"""How long requests in flight may take to finish once a stop is asked for."""


@dataclass(frozen=True, slots=True)
class PublishJob:
    """All that one drain needs.

    `requests` are those of `open_api`; `on_loss` registers what is called once another run has taken the feed over; `tell`
    prints a sentence for the person who watches. `is_traced`: requests are traced, each with the key of its row.
    """

    outbox: Outbox
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]]
    open_covers: Callable[[], CoverImages]
    in_flight: int
    advance: Advance
    clock_s: Callable[[], float]
    preflight: Preflight | None = None
    systemic: SystemicFailure = field(default_factory=SystemicFailure)
    requests: InFlight | None = None
    on_loss: Callable[[OnLoss], None] = lambda _stop: None
    tell: Callable[[str], None] = lambda _sentence: None
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

    COMMIT POINT 2: a slot claims its next intent in the transaction that settles its last answer.

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
    """One drain with its client: each intent's image first, pinned before anything is sent, then the event."""

    def __init__(self, job: PublishJob) -> None:
        self._job = job
        self.drain = Drain(job.outbox, job.in_flight, GRACE_S, job.advance, systemic=job.systemic, requests=job.requests)
        self.cover_problems: list[CoverProblem] = []
        self.outlook = CLEAR
        self.pace: RateReport | None = None
        self._preflight: asyncio.Task[Outlook] | None = None

    async def run(self) -> None:
        """Open the client and drain, until all is sent or another run has the feed."""
        job, drain = self._job, self.drain
        async with job.open_api() as api:
            covers = job.open_covers()
            self.cover_problems = covers.problems
            drain.api, drain.deliver = api, self._logged(functools.partial(self._send, api, covers))
            api.delivery.on_aside, api.delivery.record = drain.wake, drain.record
            if job.outbox.stopped_by == OUTAGE:
                api.circuit.begin_open()
            else:
                drain.systemic.stopped_by = job.outbox.stopped_by
            loop = asyncio.get_running_loop()
            job.on_loss(lambda lost: _call_in(loop, drain.leave, lost))
            try:
                await self._check_contract(api)
                await drain.run()
                if job.preflight is not None and drain.caution.has_passed:
                    job.preflight.disprove()
                self._note_stop(api)
                drain.cause = drain.cause or api.stopped or drain.systemic.cause_at_end()
            finally:
                self.pace = api.pace
                await covers.close()

    async def _check_contract(self, api: EventApi) -> None:
        """Compare the mapping with the service's page, if there is anything to send, unless a signal cuts it short."""
        if self._job.preflight is None or not self._job.outbox.owed:
            return
        self._preflight = asyncio.create_task(self._job.preflight.look(api))
        await asyncio.wait({self._preflight})
        if not self._preflight.cancelled():
            self.outlook = self._preflight.result()
            api.expect_upload_in(self.outlook.upload_field)
            self.drain.caution = CautiousStart(self.outlook.doubts, self._job.outbox.owed)

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
        if self._preflight is not None:
            self._preflight.cancel()
        count = self.drain.under_way
        waiting = f"{count} request{'s' * (count != 1)} in flight, up to {GRACE_S:.0f} s"
        self._job.tell(f"stopping: {waiting}; press Ctrl-C again to leave at once")
        self.drain.stop()

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


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[SyncError], None], lost: SyncError) -> None:
    with suppress(RuntimeError):  # the drain has ended by itself in this very moment
        loop.call_soon_threadsafe(call, lost)


"""A bucket that was full lets through a little more than its rate."""
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
