"""What a verdict on an intent does to its ledger entry: a pure decision over a closed union.

How it is written is `outbox`'s; how a verdict is reached is the client's.

| verdict     | state                 | the mark of an unanswered attempt                                    |
|-------------|-----------------------|----------------------------------------------------------------------|
| Receipt     | delivered             | cleared                                                              |
| Unconfirmed | delivered_unconfirmed | cleared                                                              |
| Refusal     | refused               | cleared                                                              |
| Superseded  | pending, next key     | cleared: nothing was created under the old key, or it is a conflict  |
| Blocked     | blocked               | as before, or set: access is checked before the key, so 403 proves nothing of an attempt |
| Uncertain   | uncertain             | kept                                                                 |
| Conflict    | conflict              | as before                                                            |
| Postponed   | pending               | as before, or set by this call                                       |

A person's `retry` goes under the same key first. If that is turned away for certain once more (Refusal, Blocked), it may
be the stored answer told anew under another request id; nothing was created under the key either way, so the next one
is due, once for each retry. A blocked row needs no word of a person for that where the answer's request id shows that
it is the stored one: access may long be back, and the old key would never tell. A failure (5xx) that is repeated in the
same way after a person's `resend` shows that the key is used up: the next one is due, once for each resend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from mappings.delivery import (
    DENYING,
    Answer,
    Blocked,
    Conflict,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from state.words import EntryState

_UNNAMED = "unnamed"  # a refusal without a request id is a refusal all the same


@dataclass(frozen=True, slots=True)
class Claim:
    """What was true of an entry when this drain claimed it. `is_begun`: an attempt was recorded as begun; `is_retry`: a
    person has asked for it, after it was turned away; `denied`: the last answer, if that refused the API key or its scope,
    and no attempt is unaccounted for; `failed`: the last answer, if that was a failure and a person lets the row be sent again.
    """

    revision: int
    was_unanswered: bool
    refused_request_id: str
    is_begun: bool
    is_retry: bool = False
    denied: Answer | None = None
    failed: Answer | None = None

    @property
    def has_another_key(self) -> bool:
        """Whether being turned away again leads to the next key: a person's word stands, and no attempt is unaccounted for."""
        return self.is_retry and bool(self.refused_request_id) and not self.was_unanswered

    def answer_to_keep(self, verdict: Verdict) -> Answer:
        """Return the answer that the entry keeps: a row that was only held up keeps its own denial, to know it again."""
        is_held_up = isinstance(verdict, Postponed) and not verdict.attempts
        return self.denied if is_held_up and self.denied is not None else verdict.answer

    def is_told_again(self, request_id: str) -> bool:
        """Whether this answer is the stored one that turned the entry away before, and no attempt is unaccounted for."""
        return bool(request_id) and request_id == self.refused_request_id and not self.was_unanswered

    def is_failed_again(self, answer: Answer) -> bool:
        """Whether this answer is the very failure after which a person let the row be sent again: no attempt came to more."""
        return self.failed is not None and bool(answer.request_id) and answer.request_id == self.failed.request_id


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of the entry. `keeps_unanswered`: the mark of an unanswered attempt stays, if there is one."""

    state: EntryState
    refused_request_id: str
    event_id: int | None = None
    keeps_unanswered: bool = False
    is_next_revision: bool = False


_NEXT_KEY = Effect(EntryState.PENDING, "", is_next_revision=True)


def effect_of(verdict: Verdict, claim: Claim) -> Effect:  # noqa: C901, PLR0911 # one arm for each member of the union
    """Decide what a verdict means for the entry that was claimed."""
    before = claim.refused_request_id
    match verdict:
        case Receipt(event_id=event_id):
            return Effect(EntryState.DELIVERED, before, event_id)
        case Unconfirmed():
            return Effect(EntryState.DELIVERED_UNCONFIRMED, before)
        case Refusal() | Blocked(is_unanswered=False) if claim.has_another_key and verdict.attempts:
            return _NEXT_KEY
        case Refusal():
            return Effect(EntryState.REFUSED, _refusal_id(verdict, before))
        case Superseded():
            return _supersede(verdict, claim)
        case Blocked(is_unanswered=False) if verdict.attempts and claim.is_told_again(verdict.answer.request_id):
            return _NEXT_KEY
        case Blocked(is_unanswered=is_unanswered):
            may_exist = claim.was_unanswered or is_unanswered
            refusal = before if may_exist else _refusal_id(verdict, before)
            return Effect(EntryState.BLOCKED, refusal, keeps_unanswered=may_exist)
        case Uncertain() if verdict.attempts and claim.is_failed_again(verdict.answer):
            return _NEXT_KEY
        case Uncertain():
            return Effect(EntryState.UNCERTAIN, before, keeps_unanswered=True)
        case Conflict():
            return Effect(EntryState.CONFLICT, before, keeps_unanswered=claim.was_unanswered)
        case Postponed(is_unanswered=is_unanswered):
            return Effect(EntryState.PENDING, before, keeps_unanswered=claim.was_unanswered or is_unanswered)
        case _:
            assert_never(verdict)


def _supersede(verdict: Superseded, claim: Claim) -> Effect:
    """Move on to the next revision of the key, once: only where our own record shows a refusal under the present one.

    After an unanswered attempt with the corrected body a bare 409 may mean that attempt: only the refusal itself,
    replayed with its own request id, proves that nothing was created. A stored 401 or 403 proves it of its key as well.
    """
    if claim.denied is not None and verdict.answer.status in DENYING:
        return _NEXT_KEY
    before = claim.refused_request_id
    is_replayed = bool(before) and verdict.answer.request_id == before
    if not before or (claim.was_unanswered and not is_replayed):
        return Effect(EntryState.CONFLICT, before, keeps_unanswered=claim.was_unanswered)
    return _NEXT_KEY


def _refusal_id(verdict: Refusal | Blocked, before: str) -> str:
    """Return the request id to recognise the refusal by; a row refused without a request leaves no trace at the service."""
    return refused_as(verdict.answer) if verdict.attempts else before


def refused_as(answer: Answer) -> str:
    """Return what to recognise a stored refusal by; one without a request id is a refusal all the same."""
    return answer.request_id or _UNNAMED
