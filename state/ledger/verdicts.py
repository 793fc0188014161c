"""What a verdict on an intent does to its ledger entry: a pure decision over a closed union.

| verdict     | state                 | the mark of an unanswered attempt                                    |
|-------------|-----------------------|----------------------------------------------------------------------|
| Receipt     | delivered             | cleared                                                              |
| Unconfirmed | delivered_unconfirmed | cleared                                                              |
| Refusal     | refused               | cleared                                                              |
| Superseded  | pending, next key     | cleared: nothing was created under the old key, or it is a conflict  |
| Blocked     | blocked               | as before, or set: where access is checked before the key, 403 proves nothing |
| Uncertain   | uncertain             | kept                                                                 |
| Conflict    | conflict              | as before                                                            |
| Postponed   | pending               | as before, or set by this call                                       |

A person's `retry` goes under the same key first. If that is refused for certain once more, it may be the stored answer sent
again under another request id; nothing was created under the key either way, so the next one is due, once for each retry.

An answer 429 proves nothing either: an entry whose unanswered attempts were all answered 429 keeps the mark, and
`is_limited` beside it.

Denied access (401, 403, 404) is no such refusal: the service may look at that before the key, so it proves nothing of
what was created under the key before these books began. That very answer repeated, as its request id shows, is proof:
it is what the service stored; access may long be back, and the old key would never show it. Without it the next key is a
person's risk to take, by `resend`. A failure (5xx) that is repeated with its request id after a person's `resend` shows
that the key is used up: the next one is due, once for each resend.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from mappings.delivery import (
    DENYING,
    Answer,
    Blocked,
    Conflict,
    Denial,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from state.enums import EntryState

_UNNAMED = "unnamed"  # a refusal without a request id is a refusal all the same


@dataclass(frozen=True, slots=True)
class Claim:
    """What was true of an entry when this drain claimed it.

    `copies`: how many attempts may have created an event before; `was_limited`: those without an answer were all answered 429.
    `is_begun`: an attempt was recorded as begun; `is_retry`: a person has asked for it, after it was turned away; `denial`: the
    last one that came under its key; `failed`: the last answer, if that was a failure and a person lets it be sent again.
    """

    revision: int
    was_unanswered: bool
    refused_request_id: str
    is_begun: bool
    is_retry: bool = False
    copies: int = 0
    was_limited: bool = False
    denial: Denial | None = None
    failed: Answer | None = None

    @property
    def has_another_key(self) -> bool:
        """Whether being refused again leads to the next key: a person's word stands, and no attempt is unaccounted for."""
        return self.is_retry and bool(self.refused_request_id) and not self.was_unanswered

    def is_told_again(self, answer: Answer) -> bool:
        """Whether this very answer turned the entry away before: it is what the service stored under the key."""
        is_refused_again = bool(answer.request_id) and answer.request_id == self.refused_request_id
        return is_refused_again or (self.denial is not None and self.denial.is_repeated_by(answer))

    def is_failed_again(self, answer: Answer) -> bool:
        """Whether this answer is the very failure after which a person let the row be sent again: no attempt came to more."""
        return self.failed is not None and bool(answer.request_id) and answer.request_id == self.failed.request_id


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of the entry. `keeps_unanswered`: the mark of an unanswered attempt stays, if there is one.

    `is_limited`: such attempts were all answered 429.
    """

    state: EntryState
    refused_request_id: str
    denied_request_id: str
    event_id: int | None = None
    keeps_unanswered: bool = False
    is_limited: bool = False
    is_next_revision: bool = False


_NEXT_KEY = Effect(EntryState.PENDING, "", "", is_next_revision=True)


def effect_of(verdict: Verdict, claim: Claim) -> Effect:  # noqa: C901, PLR0911 # one arm for each member of the union
    """Decide what a verdict means for the entry that was claimed."""
    match verdict:
        case Receipt(event_id=event_id):
            return _become(EntryState.DELIVERED, claim, event_id=event_id)
        case Unconfirmed():
            return _become(EntryState.DELIVERED_UNCONFIRMED, claim)
        case Refusal():
            return _refuse(verdict, claim)
        case Superseded():
            return _supersede(verdict, claim)
        case Blocked() | Postponed():
            return _turn_away(verdict, claim)
        case Uncertain() if verdict.attempts and claim.is_failed_again(verdict.answer):
            return _NEXT_KEY
        case Uncertain():
            return _become(EntryState.UNCERTAIN, claim, keeps_unanswered=True)
        case Conflict():
            return _conflict(claim)
        case _:
            assert_never(verdict)


def _become(state: EntryState, claim: Claim, *, event_id: int | None = None, keeps_unanswered: bool = False) -> Effect:
    """Return the effect that leaves as it was what is remembered of refusals and denials."""
    denied = "" if claim.denial is None else claim.denial.request_id
    return Effect(state, claim.refused_request_id, denied, event_id, keeps_unanswered)


def _refuse(verdict: Refusal, claim: Claim) -> Effect:
    """Remember the refusal to know it again; a row refused without a request leaves no trace at the service."""
    if not verdict.attempts:
        return _become(EntryState.REFUSED, claim)
    if claim.has_another_key:
        return _NEXT_KEY
    return replace(_become(EntryState.REFUSED, claim), refused_request_id=refused_as(verdict.answer))


def _turn_away(verdict: Blocked | Postponed, claim: Claim) -> Effect:
    """Remember the denial to know it again; a row that was held up without a request of its own was not denied itself."""
    is_denied = verdict.attempts > 0 and verdict.answer.status in DENYING
    state = EntryState.BLOCKED if isinstance(verdict, Blocked) else EntryState.PENDING
    is_unanswered = verdict.is_unanswered or (claim.was_unanswered and not claim.was_limited)
    is_limited = not is_unanswered and (verdict.is_limited or claim.was_limited)
    effect = _become(state, claim, keeps_unanswered=is_unanswered or is_limited)
    effect = replace(effect, is_limited=is_limited)
    return replace(effect, denied_request_id=refused_as(verdict.answer)) if is_denied else effect


def _supersede(verdict: Superseded, claim: Claim) -> Effect:
    """Move on to the next revision of the key, once: only where our own record shows what holds the present one.

    That is the stored answer itself, repeated with its own request id; or another 4xx after a refusal, unless it may
    mean an attempt with the corrected body that was never answered; or a denial, of which a person takes the risk.
    """
    is_refused = bool(claim.refused_request_id) and not claim.was_unanswered
    is_resent = claim.denial is not None and claim.denial.is_resent and verdict.answer.status in DENYING
    if is_refused or is_resent or claim.is_told_again(verdict.answer):
        return _NEXT_KEY
    return _conflict(claim)


def _conflict(claim: Claim) -> Effect:
    effect = _become(EntryState.CONFLICT, claim, keeps_unanswered=claim.was_unanswered)
    return replace(effect, is_limited=claim.was_limited)


def refused_as(answer: Answer) -> str:
    """Return what to recognise a stored refusal or denial by; one without a request id is one all the same."""
    return answer.request_id or _UNNAMED
