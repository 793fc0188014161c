"""Single rows in the log, at level debug: when each was sent, and what it came to. Above that level nothing is done per row.

What all of a run's lines say, its feed and its id, `feed_run` binds.
"""

from __future__ import annotations

import logging

import structlog
from structlog.contextvars import bound_contextvars

from mappings.delivery import Intent, Postponed, Receipt, Verdict
from pipelines.drain import Deliver


def logging_rows(deliver: Deliver) -> Deliver:
    """Return what delivers a row and logs it; `deliver` itself, unless the log is at level debug.

    Whatever is logged of a row names it as `row_key`. Of an answer are told its status, its code and its request id, by
    which the service finds it; never the row's content.
    """
    log = structlog.get_logger()
    if not log.is_enabled_for(logging.DEBUG):
        return deliver

    async def told(intent: Intent) -> Verdict:
        with bound_contextvars(row_key=intent.row_key):
            log.debug("row is sent", idempotency_key=intent.key, channel_id=intent.channel_id)
            verdict = await deliver(intent)
            log.debug("row has its answer", **_told(verdict))
        return verdict

    return told


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
