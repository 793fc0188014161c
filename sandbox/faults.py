"""Faults for rehearsals: which attempt goes wrong, how and when, and what is sent instead of the answer.

Drawn from seed, key and attempt alone, so that a rehearsal can be repeated; how a connection is broken is `wire`'s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, assert_never

from sandbox.answers import Answer, ApiError, said
from sandbox.limits import retry_after
from sandbox.switches import FaultKind, Switches

Moment = Literal["before", "after"]

_GATEWAY_PAGE: Final = (
    b"<!doctype html><html><head><title>One moment</title></head><body><h1>One moment, please</h1></body></html>"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One attempt's misfortune: `before` or `after` its work is done and kept."""

    kind: FaultKind
    moment: Moment


class Dice:
    """Draws faults. It counts the attempts under each key, so that a retry gets a draw of its own."""

    def __init__(self) -> None:
        self._attempts: Counter[str] = Counter()

    def draw(self, name: str, switches: Switches) -> Fault | None:
        """The fault of the next attempt called `name` (route and idempotency key, or the body's digest without one)."""
        if switches.fault_per_mille == 0:
            return None
        self._attempts[name] += 1
        drawn = blake2b(f"{switches.fault_seed}:{name}:{self._attempts[name]}".encode(), digest_size=12).digest()
        if int.from_bytes(drawn[:4]) % 1000 >= switches.fault_per_mille:
            return None
        kind = switches.faults[int.from_bytes(drawn[4:8]) % len(switches.faults)]
        return Fault(kind, _moment(switches, is_late=bool(drawn[8] & 1)))

    def reset(self) -> None:
        """Forgets every attempt."""
        self._attempts.clear()


def _moment(switches: Switches, *, is_late: bool) -> Moment:
    match switches.fault_moment:
        case "before" | "after" as moment:
            return moment
        case "either":
            return "after" if is_late else "before"
        case _:
            assert_never(switches.fault_moment)


def spoilt(kind: FaultKind, answer: Answer | None, request_id: str, switches: Switches, now: float) -> Answer:
    """What is sent instead of `answer` (None where there is none yet)."""
    match kind:
        case "error_500":
            return ApiError("internal_error", "Something went wrong on our side.").answer(request_id)
        case "error_503":
            outage = ApiError("internal_error", "The service is taking a break.", status=503)
            outage.headers = retry_after(switches.retry_after, 1, now)
            return outage.answer(request_id)
        case "reset":
            return Answer(0, b"", breakage="reset")
        case "truncated":
            whole = answer or said({"doc": {"id": 0, "title": ""}}, switches.success_status)
            return Answer(whole.status, whole.body, whole.code, breakage="truncated")
        case "empty":
            return Answer(switches.success_status, b"")
        case "html":
            return Answer(200, _GATEWAY_PAGE, media_type="text/html; charset=utf-8")
        case _:
            assert_never(kind)
