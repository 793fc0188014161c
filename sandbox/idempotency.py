"""Used `Idempotency-Key`s: the answer of each, per API key and route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from sandbox.answers import Answer, ApiError, invalid
from sandbox.limits import retry_after
from sandbox.store import Store, StoredAnswer
from sandbox.switches import Switches

HEADER: Final = "Idempotency-Key"
_SOON_S: Final = 0.2


class Slot(NamedTuple):
    """The scope of one idempotency key: the API key's name, the route, the key itself."""

    key_name: str
    route: str
    key: str


@dataclass(frozen=True, slots=True)
class NewWork:
    """The work is still to be done; its answer is stored in `slot`, or nowhere if None."""

    slot: Slot | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """The work was done before and is not repeated."""

    answer: Answer


class IdempotencyKeys:
    """Decides whether a key means new work or a stored answer. Work in progress is kept in memory: a crash ends it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._in_progress: set[Slot] = set()

    def enter(self, slot: Slot | None, digest: bytes, switches: Switches, now: float) -> NewWork | Replay:
        """Begin the work of a request, or return its stored answer. Raises ApiError 409; call `leave` afterwards."""
        if slot is None or switches.idempotency == "ignore":
            return NewWork(None, digest)
        if slot in self._in_progress:
            raise _in_progress(switches, now)
        stored = self._store.stored_answer(slot)
        if stored is None or (switches.idempotency_memory_s and now - stored.at >= switches.idempotency_memory_s):
            self._in_progress.add(slot)
            return NewWork(slot, digest)
        return _replay(stored, digest, switches)

    def store(self, work: NewWork, answer: Answer, now: float) -> None:
        """Store the answer: the key will never bring another one."""
        if work.slot is not None:
            self._store.store_answer(work.slot, StoredAnswer(work.digest, answer, now))

    def leave(self, decision: NewWork | Replay) -> None:
        """End what `enter` began."""
        if isinstance(decision, NewWork) and decision.slot is not None:
            self._in_progress.discard(decision.slot)


def read_key(headers: Mapping[str, str], switches: Switches) -> str:
    """Return the request's idempotency key, "" without one. Raises ApiError 400 for a blank or overlong one."""
    key = headers.get(HEADER)
    if key is None:
        return ""
    if not key.strip():
        raise invalid(HEADER, "must not be blank")
    if len(key) > switches.key_max_chars:
        raise invalid(HEADER, f"must not be longer than {switches.key_max_chars} characters")
    return key


def digest_of(body: bytes) -> bytes:
    """Return the digest by which two bodies are the same: 16 bytes of BLAKE2b."""
    return blake2b(body, digest_size=16).digest()


def _replay(stored: StoredAnswer, digest: bytes, switches: Switches) -> Replay:
    if switches.idempotency == "refuse":
        raise ApiError("conflict", "This Idempotency-Key was used before.")
    if stored.digest != digest and switches.idempotency_other_body == "conflict":
        raise ApiError("conflict", "This Idempotency-Key was used before with another body.")
    return Replay(stored.answer)


def uses_up_key(answer: Answer, switches: Switches) -> bool:
    """Whether an answer is stored under its key, as the switches say."""
    match switches.stored_refusals:
        case "all":
            return True
        case "validation":
            return answer.code in {"", "invalid_request"}
        case "none":
            return answer.code == ""


def _in_progress(switches: Switches, now: float) -> ApiError:
    refusal = ApiError("conflict", "The first request with this Idempotency-Key is still in progress.")
    if switches.in_progress == "retry_after":
        refusal.headers = retry_after(switches.retry_after, _SOON_S, now)
    return refusal
