"""The memory of `Idempotency-Key`s: what a used key is answered, per API key and route.

Where the answers are stored is `store`'s; what the work behind a fresh key is, is its route's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from sandbox.answers import Answer, ApiError, invalid
from sandbox.limits import retry_after
from sandbox.store import Kept, Store
from sandbox.switches import Switches

HEADER: Final = "Idempotency-Key"
_SOON_S: Final = 0.2


class Slot(NamedTuple):
    """Where one key counts: the API key's name, the route, the idempotency key."""

    key_name: str
    route: str
    key: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """The work is to be done; its answer is kept in `slot`, or nowhere if None."""

    slot: Slot | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class Again:
    """The work was done before and is not repeated."""

    answer: Answer


class Memory:
    """Decides what a key leads to. Work in progress is known to this process alone: a crash ends it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._in_progress: set[Slot] = set()

    def enter(self, slot: Slot | None, digest: bytes, switches: Switches, now: float) -> Fresh | Again:
        """Begins the work of a request, or returns its stored answer. Raises ApiError 409; `leave` what was begun."""
        if slot is None or switches.idempotency == "ignore":
            return Fresh(None, digest)
        if slot in self._in_progress:
            raise _in_progress(switches, now)
        kept = self._store.kept(slot)
        if kept is None or (switches.idempotency_memory_s and now - kept.at >= switches.idempotency_memory_s):
            self._in_progress.add(slot)
            return Fresh(slot, digest)
        return _used(kept, digest, switches)

    def keep(self, fresh: Fresh, answer: Answer, switches: Switches, now: float) -> None:
        """Stores the answer of work that was done, if the switches say that it uses up its key."""
        if fresh.slot is not None and _uses_up(answer, switches):
            self._store.keep(fresh.slot, Kept(fresh.digest, answer, now))

    def keep_failure(self, fresh: Fresh, answer: Answer, now: float) -> None:
        """Stores the answer of work that failed: the key will never bring another one."""
        if fresh.slot is not None:
            self._store.keep(fresh.slot, Kept(fresh.digest, answer, now))

    def leave(self, decision: Fresh | Again) -> None:
        """Ends what `enter` began."""
        if isinstance(decision, Fresh) and decision.slot is not None:
            self._in_progress.discard(decision.slot)


def read_key(headers: Mapping[str, str], switches: Switches) -> str:
    """The request's idempotency key, "" without one. Raises ApiError 400 for a blank or overlong one."""
    key = headers.get(HEADER)
    if key is None:
        return ""
    if not key.strip():
        raise invalid(HEADER, "must not be blank")
    if len(key) > switches.key_max_chars:
        raise invalid(HEADER, f"must not be longer than {switches.key_max_chars} characters")
    return key


def digest_of(body: bytes) -> bytes:
    """What two bodies must share to be the same: 16 bytes of BLAKE2b over every byte of them."""
    return blake2b(body, digest_size=16).digest()


def _used(kept: Kept, digest: bytes, switches: Switches) -> Again:
    if switches.idempotency == "refuse":
        raise _conflict("This Idempotency-Key was used before.")
    if kept.digest != digest and switches.idempotency_other_body == "conflict":
        raise _conflict("This Idempotency-Key was used before with another body.")
    return Again(kept.answer)


def _uses_up(answer: Answer, switches: Switches) -> bool:
    match switches.stored_refusals:
        case "all":
            return True
        case "validation":
            return answer.code in {"", "invalid_request"}
        case "none":
            return answer.code == ""


def _in_progress(switches: Switches, now: float) -> ApiError:
    refusal = _conflict("The first request with this Idempotency-Key is still in progress.")
    if switches.in_progress == "retry_after":
        refusal.headers = retry_after(switches.retry_after, _SOON_S, now)
    return refusal


def _conflict(message: str) -> ApiError:
    return ApiError("conflict", message)
