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
what was created under the key before this ledger began. That very answer repeated, as its request id shows, is proof:
it is what the service stored; access may long be back, and the old key would never show it. Without it the next key is a
person's risk to take, by `resend`. A failure (5xx) that is repeated with its request id after a person's `resend` shows
that the key is used up: the next one is due, once for each resend.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, assert_never

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
from mappings.row_key import IdempotencyKey, RowKey
from state.enums import Decision, EntryState
from state.ledger.accounts import load_answer


class Claim(NamedTuple):
    """An entry as it was when this drain claimed it, column by column: made for every row, so that it is made of the row at once.

    `copies`: how many attempts may have created an event before; `is_limited`: those without an answer were all answered 429.
    """

    id: int
    row_key: RowKey
    idempotency_key: IdempotencyKey
    body: bytes
    channel_id: int
    revision: int
    unanswered_at: datetime | None
    refused_request_id: str
    cover_url: str | None
    cover_on_error: str | None
    decision: str | None
    updated_at: datetime
    answer: str | None
    denied_request_id: str
    copies: int
    is_limited: bool

    @property
    def was_unanswered(self) -> bool:
        """Whether an earlier attempt was never answered."""
        return self.unanswered_at is not None

    @property
    def denial(self) -> Denial | None:
        """The last denial of access under this key."""
        if not self.denied_request_id:
            return None
        is_retry = self.decision == Decision.RETRY and self.unanswered_at is None
        return Denial(self.denied_request_id, is_resent=is_retry or self.decision == Decision.RESEND)

    def is_turned_away_again(self, answer: Answer) -> bool:
        """Whether this very answer turned the entry away before: it is what the service stored under the key."""
        is_refused_again = bool(answer.request_id) and answer.request_id == self.refused_request_id
        return is_refused_again or (self.denial is not None and self.denial.is_repeated_by(answer))

    def is_failed_again(self, answer: Answer) -> bool:
        """Whether this answer is the very failure after which a person let the row be sent again: no attempt came to more."""
        if self.answer is None or self.decision != Decision.RESEND or not answer.request_id:
            return False
        last = load_answer(self.answer)
        return last.status >= HTTPStatus.INTERNAL_SERVER_ERROR and last.request_id == answer.request_id


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
    become = partial(Effect, refused_request_id=claim.refused_request_id, denied_request_id=claim.denied_request_id)
    is_retry = claim.decision == Decision.RETRY
    is_refused = bool(claim.refused_request_id) and not claim.was_unanswered
    match verdict:
        case Receipt(event_id=event_id):
            return become(EntryState.DELIVERED, event_id=event_id)
        case Unconfirmed():
            return become(EntryState.DELIVERED_UNCONFIRMED)
        case Refusal() if not verdict.attempts:  # refused without a request, it leaves no trace at the service
            return become(EntryState.REFUSED)
        case Refusal() if is_retry and is_refused:  # a person's word stands, and no attempt is unaccounted for
            return _NEXT_KEY
        case Refusal():
            return replace(become(EntryState.REFUSED), refused_request_id=refused_as(verdict.answer))
        case Blocked() | Postponed():
            return _turn_away(verdict, claim, become(EntryState.BLOCKED if isinstance(verdict, Blocked) else EntryState.PENDING))
        case Uncertain() if verdict.attempts and claim.is_failed_again(verdict.answer):
            return _NEXT_KEY
        case Uncertain():
            return become(EntryState.UNCERTAIN, keeps_unanswered=True)
        case Superseded():
            # The next revision of the key, once: only where our own record shows what holds the present one. That is the stored
            # answer itself, repeated with its own request id; or another 4xx after a refusal, unless it may mean an attempt with
            # the corrected body that was never answered; or a denial, of which a person takes the risk.
            is_resent = claim.denial is not None and claim.denial.is_resent and verdict.answer.status in DENYING
            if is_refused or is_resent or claim.is_turned_away_again(verdict.answer):
                return _NEXT_KEY
        case Conflict():
            pass
        case _:
            assert_never(verdict)
    return become(EntryState.CONFLICT, keeps_unanswered=claim.was_unanswered, is_limited=claim.is_limited)


def _turn_away(verdict: Blocked | Postponed, claim: Claim, effect: Effect) -> Effect:
    """Remember the denial to know it again; a row that was held up without a request of its own was not denied itself."""
    is_unanswered = verdict.is_unanswered or (claim.was_unanswered and not claim.is_limited)
    is_limited = not is_unanswered and (verdict.is_limited or claim.is_limited)
    effect = replace(effect, keeps_unanswered=is_unanswered or is_limited, is_limited=is_limited)
    is_denied = verdict.attempts > 0 and verdict.answer.status in DENYING
    return replace(effect, denied_request_id=refused_as(verdict.answer)) if is_denied else effect


def refused_as(answer: Answer) -> str:
    """Return what to recognise a stored refusal or denial by; one without a request id is one all the same."""
    return answer.request_id or "unnamed"
