"""Work that is done once: the idempotency key, the waits and the faults around creating an event or an image.

What is created is its route's; what a used key is answered is `idempotency`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox.answers import Answer, ApiError
from sandbox.database import writing
from sandbox.faults import Fault, spoilt
from sandbox.idempotency import Again, Fresh, Slot, digest_of, read_key
from sandbox.service import Sandbox, Visit

Work = Callable[[], Answer]


async def answer_once(sandbox: Sandbox, visit: Visit, body: bytes, work: Work) -> Answer:
    """The answer of `work`, done now or stored under the request's key. Raises ApiError 400 or 409 about the key.

    `work` runs in one transaction with the audit line and the stored answer, and never awaits.
    """
    attempt, digest = visit.attempt, digest_of(body)
    attempt.digest = digest.hex()
    key = attempt.idempotency_key = read_key(visit.request.headers, sandbox.switches)
    fault = sandbox.dice.draw(f"{visit.route}:{key or attempt.digest}", sandbox.switches)
    slot = Slot(attempt.key_name, visit.route, key) if key else None
    decision = sandbox.memory.enter(slot, digest, sandbox.switches, attempt.at)
    try:
        await sandbox.pause(sandbox.switches.latency_ms)
        if fault is not None and fault.kind == "late":
            sandbox.around.wire.reset(visit.request.scope)
            await sandbox.pause(sandbox.switches.fault_hold_ms)
        sent = _settled(sandbox, visit, decision, work, fault)
    finally:
        sandbox.memory.leave(decision)
    await sandbox.pause(sandbox.switches.answer_delay_ms)
    return sent


def _settled(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work, fault: Fault | None) -> Answer:
    """What is sent, with all that it stands for written down: from here on a kill of the sandbox changes nothing."""
    attempt = visit.attempt
    if fault is not None:
        attempt.fault = f"{fault.kind} {fault.moment}"
    with writing(sandbox.database):
        if fault is not None and fault.kind == "stored_500":
            sent = _failed_for_good(sandbox, visit, decision, work, fault)
        elif fault is not None and fault.moment == "before":
            attempt.outcome = "failed"
            sent = _spoilt(sandbox, visit, fault, None)
        else:
            answer = _done(sandbox, visit, decision, work)
            sent = _spoilt(sandbox, visit, fault, answer) if fault else answer
        sandbox.note(attempt, sent)
    return sent


def _failed_for_good(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work, fault: Fault) -> Answer:
    """A failure that is kept under the key, after the work or without it; a key that was used before is told as ever."""
    if isinstance(decision, Again):
        return _done(sandbox, visit, decision, work)
    visit.attempt.outcome = "failed"
    if fault.moment == "after":
        _done(sandbox, visit, decision, work)
    sent = _spoilt(sandbox, visit, fault, None)
    sandbox.memory.keep_failure(decision, sent, visit.attempt.at)
    return sent


def _done(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work) -> Answer:
    if isinstance(decision, Again):
        visit.attempt.outcome = "replayed"
        return decision.answer
    try:
        answer = work()
        visit.attempt.outcome = "created"
    except ApiError as refusal:
        answer = refusal.answer(visit.attempt.request_id)
        visit.attempt.outcome = "refused"
    sandbox.memory.keep(decision, answer, sandbox.switches, visit.attempt.at)
    return answer


def _spoilt(sandbox: Sandbox, visit: Visit, fault: Fault, answer: Answer | None) -> Answer:
    return spoilt(fault, answer, visit.attempt.request_id, sandbox.switches, sandbox.around.clock())
