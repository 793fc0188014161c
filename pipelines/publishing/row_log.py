"""Single rows in the log, at level debug: when each was sent, and what it came to. Above that level nothing is done per row,
unless a trace is told which row its requests are of.

What all of a run's lines say, its feed and its id, `feed_run` binds.
"""

from __future__ import annotations

import logging

import structlog
from structlog.contextvars import bound_contextvars

from mappings.delivery import Intent, Postponed, Receipt, Verdict
from pipelines.publishing.drain import Deliver


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
