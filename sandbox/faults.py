"""Faults for rehearsals: which attempt goes wrong, how and when, and what is sent instead of the answer.

Drawn from seed, key and attempt alone, so that a rehearsal can be repeated; how a connection is broken is `wire`'s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Literal, assert_never

from sandbox.answers import Answer, ApiError, said
from sandbox.limits import retry_after
from sandbox.switches import ErrorKind, FaultKind, Switches

Moment = Literal["before", "after"]

_HTML: Final = "text/html; charset=utf-8"
_BREAK_S: Final = 0.2
"""How long a 429 or a 503 asks to stay away, as far as `Retry-After` can say it."""
_WRONG_IDS: Final = ("100001", 100001.5, True, -1)

_GATEWAY_PAGE: Final = (
    b"<!doctype html><html><head><title>One moment</title></head><body><h1>One moment, please</h1></body></html>"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One attempt's misfortune: `before` or `after` its work is done and kept. `draw`: a number for what is left to chance."""

    kind: FaultKind
    moment: Moment
    draw: int = 0


class Dice:
    """Draws faults. It counts the attempts under each key, so that a retry gets a draw of its own."""

    def __init__(self) -> None:
        self._attempts: Counter[str] = Counter()

    def draw(self, name: str, switches: Switches) -> Fault | None:
        """The fault of the next attempt called `name` (route and idempotency key, or the body's digest without one)."""
        if switches.fault_per_mille == 0:
            return None
        self._attempts[name] += 1
        if 0 < switches.fault_attempts < self._attempts[name]:
            return None
        drawn = blake2b(f"{switches.fault_seed}:{name}:{self._attempts[name]}".encode(), digest_size=12).digest()
        if int.from_bytes(drawn[:4]) % 1000 >= switches.fault_per_mille:
            return None
        kind = switches.faults[int.from_bytes(drawn[4:8]) % len(switches.faults)]
        return Fault(kind, _moment(switches, is_late=bool(drawn[8] & 1)), drawn[9])

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


def spoilt(fault: Fault, answer: Answer | None, visit_id: str, switches: Switches, now: float) -> Answer:
    """What is sent instead of `answer` (None where there is none yet); `visit_id` is the request's id."""
    match fault.kind:
        case "error_408" | "error_425" | "error_429" | "error_500" | "error_503" | "stored_500":
            return _told(fault.kind, visit_id, switches, now)
        case "error_502" | "error_504" | "error_520":
            return Answer(int(fault.kind[-3:]), _GATEWAY_PAGE, media_type=_HTML)
        case "reset" | "closed" | "hang" | "late":
            # A `late` one was reset before its work: now nobody is there.
            return Answer(0, b"", breakage="hang" if fault.kind == "late" else fault.kind)
        case "reset_midway" | "drip" | "truncated" | "twice":
            return replace(answer or _nothing_yet(switches), breakage=fault.kind)
        case "empty" | "no_content" | "no_doc" | "malformed" | "wrong_id" | "html":
            return _untold(fault, answer or _nothing_yet(switches), switches)
        case "redirect":
            # What was done is answered with 303, what is to be done elsewhere with 307 (RFC 9110, 15.4).
            return Answer(307 if fault.moment == "before" else 303, b"", headers=(("Location", "/elsewhere"),))
        case _:
            assert_never(fault.kind)


def _told(kind: ErrorKind, request_id: str, switches: Switches, now: float) -> Answer:
    match kind:
        case "error_500" | "stored_500":
            return ApiError("internal_error", "Something went wrong on our side.").answer(request_id)
        case "error_408":
            return ApiError("internal_error", "The request took too long.", status=408).answer(request_id)
        case "error_425":
            return ApiError("internal_error", "Too early.", status=425).answer(request_id)
        case "error_429":
            refusal = ApiError("rate_limited", "Too many requests just now.")
        case "error_503":
            refusal = ApiError("internal_error", "The service is taking a break.", status=503)
        case _:
            assert_never(kind)
    refusal.headers = retry_after(switches.retry_after, _BREAK_S, now)
    return refusal.answer(request_id)


def _untold(fault: Fault, answer: Answer, switches: Switches) -> Answer:
    """A success that does not tell the id of what it created."""
    match fault.kind:
        case "no_content":
            return Answer(204, b"")
        case "no_doc":
            return Answer(switches.success_status, b"{}")
        case "malformed":
            return replace(answer, body=answer.body.replace(b":", b"=>", 1))
        case "wrong_id":
            return said({"doc": {"id": _WRONG_IDS[fault.draw % len(_WRONG_IDS)], "title": ""}}, switches.success_status)
        case "html":
            return Answer(200, _GATEWAY_PAGE, media_type=_HTML)
        case _:
            return Answer(switches.success_status, b"")


def _nothing_yet(switches: Switches) -> Answer:
    return said({"doc": {"id": 0, "title": ""}}, switches.success_status)
