"""The rules of one row, as pure functions over a few closed values; nothing here knows SQL or the time.

An entry has an **outcome**, the last answer under its present key; **attempts**, the requests under that key that have no usable
answer, or whose answer is stored under it; and an **observation**, what its source says otherwise than the entry shows. What
people see is derived from these, and stored nowhere.

**The law**: while an event may exist under a key, neither the key nor the body under it changes without a person. An answer is
certain about one attempt, not about the key.

| outcome   | may an event exist? | state shown           | sent next                  | waits for a person          |
|-----------|---------------------|-----------------------|----------------------------|-----------------------------|
| owed      | no, limited         | pending               | the body                   | drift                       |
| owed      | maybe               | pending               | the same request           | drift, vanished             |
| created   | yes                 | delivered             |                            | drift, vanished             |
| used      | yes                 | delivered_unconfirmed |                            | unconfirmed, drift, vanished |
| refused   | no, limited         | refused               | another body, the same key | refused, while in its source |
| refused   | maybe               | uncertain             | the same request           | uncertain, drift, vanished  |
| denied    | any                 | blocked               | the same request           | blocked, drift, vanished    |
| unclear   | maybe               | uncertain             | the same request           | uncertain, drift, vanished  |
| conflict  | maybe               | conflict              |                            | conflict, drift, vanished   |
| removed   | gone                | as before its removal |                            | drift, once it is back      |
| held      | no                  | held                  |                            | held                        |
| moved     | no                  | superseded            |                            |                             |
| idle      | no                  | refused, not asked for | the next body             |                             |
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from itertools import product
from typing import NamedTuple

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
from state.enums import Decision, EntryState, Grant, Observed, Outcome, Waiting


class May(StrEnum):
    """Whether an event may exist under the present key. `limited`: its requests were all answered 429, which does not show that
    nothing was created; `gone`: a person has removed it.
    """

    NO = "no"
    LIMITED = "limited"
    MAYBE = "maybe"
    YES = "yes"
    GONE = "gone"


class Tried(StrEnum):
    """What was tried under the present key: nothing that may have created an event, only what was answered 429, or more."""

    NO = "no"
    LIMITED = "limited"
    MAYBE = "maybe"


class Reading(StrEnum):
    """What a read says about a known row: the payload that is shown, another one, cancelled, gone, or gone after its event."""

    SAME = "same"
    OTHER = "other"
    CANCELLED = "cancelled"
    ABSENT = "absent"
    OVER = "over"


class Plan(StrEnum):
    """The action for a known row.

    `pin`: its payload replaces one from which nothing was created. `leave_out`: an owed or held entry is withdrawn. `cancel`: the
    event is to be withdrawn by a person. `settle`: there is nothing more to report. `vanish`, `end`: gone before or after the
    event, or without one. `keep`: nothing changes.
    """

    UNCHANGED = "unchanged"
    STILL_REFUSED = "still_refused"
    DRIFT = "drift"
    PIN = "pin"
    HOLD = "hold"
    RETURN = "return"
    CANCEL = "cancel"
    LEAVE_OUT = "leave_out"
    SETTLE = "settle"
    WITHDRAW = "withdraw"
    VANISH = "vanish"
    END = "end"
    KEEP = "keep"


class Attempts(NamedTuple):
    """The requests under one key. `requests`: those that may have created the event; `is_limited`: one was answered 429.

    `refused_id`, `denied_id`: the request ids of the refusal and the denial stored under the key, None without one. `granted`:
    what a person allows the next call.
    """

    requests: int = 0
    is_limited: bool = False
    refused_id: str | None = None
    denied_id: str | None = None
    granted: Grant | None = None

    @property
    def tried(self) -> Tried:
        """What was tried."""
        if self.requests:
            return Tried.MAYBE
        return Tried.LIMITED if self.is_limited else Tried.NO


NO_ATTEMPTS = Attempts()
_WITHOUT_EVENT = (Outcome.HELD, Outcome.MOVED, Outcome.IDLE)
_EXISTS = {Outcome.CREATED: May.YES, Outcome.USED: May.YES, Outcome.REMOVED: May.GONE}
_EXISTS |= dict.fromkeys(_WITHOUT_EVENT, May.NO)
_EXISTS |= dict.fromkeys((Outcome.UNCLEAR, Outcome.CONFLICT), May.MAYBE)
_STATES = {
    Outcome.OWED: EntryState.PENDING,
    Outcome.CREATED: EntryState.DELIVERED,
    Outcome.USED: EntryState.DELIVERED_UNCONFIRMED,
    Outcome.REFUSED: EntryState.REFUSED,
    Outcome.DENIED: EntryState.BLOCKED,
    Outcome.UNCLEAR: EntryState.UNCERTAIN,
    Outcome.CONFLICT: EntryState.CONFLICT,
    Outcome.REMOVED: EntryState.DELIVERED,
    Outcome.HELD: EntryState.HELD,
    Outcome.MOVED: EntryState.SUPERSEDED,
    Outcome.IDLE: EntryState.REFUSED,
}
_GONE = (Observed.VANISHED, Observed.GONE)
_DRIFT = (Observed.EDITED, Observed.TO_PUBLISH, Observed.CANCELLED)


def may_exist(outcome: Outcome, tried: Tried) -> May:
    """Return whether an event may exist under the present key."""
    return _EXISTS.get(outcome) or May(tried)


def may_be_pinned(outcome: Outcome, may: May) -> bool:
    """Return whether another body may take the place of the pinned one."""
    return may is May.NO or (outcome is Outcome.REFUSED and may is May.LIMITED)


@cache
def plan(outcome: Outcome, tried: Tried, reading: Reading) -> Plan:  # noqa: PLR0911 # one arm for each cell of the table
    """Return the action for a known row.

    | outcome, may exist                       | same          | other  | cancelled | absent        |
    |------------------------------------------|---------------|--------|-----------|---------------|
    | owed, no                                 | unchanged     | pin    | withdrawn | withdrawn     |
    | owed, limited or maybe                   | unchanged     | drift  | drift     | kept          |
    | refused, no or limited                   | still refused | pin    | left out  | gone          |
    | refused, maybe                           | unchanged     | drift  | drift     | vanished      |
    | denied, no                               | unchanged     | pin    | left out  | gone          |
    | denied, limited or maybe                 | unchanged     | drift  | drift     | vanished      |
    | unclear, conflict, created, used         | unchanged     | drift  | drift     | vanished      |
    | removed                                  | drift         | drift  | settled   | settled       |
    | held                                     | held          | held   | withdrawn | withdrawn     |
    | moved                                    | held          | held   | left out  | kept          |
    | idle                                     | pin           | pin    | left out  | kept          |

    An entry whose event is over is gone, not vanished; so is one of which only answers 429 are known.
    """
    may = may_exist(outcome, tried)
    if reading is Reading.CANCELLED:
        if may is May.GONE:
            return Plan.SETTLE
        return Plan.LEAVE_OUT if may_be_pinned(outcome, may) else Plan.CANCEL
    if reading in (Reading.ABSENT, Reading.OVER):
        return _plan_absent(outcome, may, reading)
    if outcome in (Outcome.HELD, Outcome.MOVED):
        return Plan.HOLD
    if outcome is Outcome.REMOVED:
        return Plan.RETURN
    if outcome is Outcome.IDLE:
        return Plan.PIN
    if reading is Reading.SAME:
        return Plan.STILL_REFUSED if outcome is Outcome.REFUSED and may is not May.MAYBE else Plan.UNCHANGED
    return Plan.PIN if may_be_pinned(outcome, may) else Plan.DRIFT


def _plan_absent(outcome: Outcome, may: May, reading: Reading) -> Plan:
    match outcome:
        case Outcome.OWED:
            return Plan.WITHDRAW if may is May.NO else Plan.KEEP
        case Outcome.HELD:
            return Plan.WITHDRAW
        case Outcome.MOVED | Outcome.IDLE:
            return Plan.KEEP
        case Outcome.REMOVED:
            return Plan.SETTLE
        case _:
            is_to_come = reading is Reading.ABSENT
    return Plan.VANISH if is_to_come and may in (May.YES, May.MAYBE) else Plan.END


def state_of(outcome: Outcome, tried: Tried, *, has_event_id: bool = True) -> EntryState:
    """Return the state that people see."""
    if outcome is Outcome.REFUSED and tried is Tried.MAYBE:
        return EntryState.UNCERTAIN
    if outcome is Outcome.REMOVED and not has_event_id:
        return EntryState.DELIVERED_UNCONFIRMED
    return _STATES[outcome]


@cache
def waits(outcome: Outcome, tried: Tried, observed: Observed) -> frozenset[Waiting]:
    """Return the lists that an entry is on, unless it is ignored or its event is over."""
    if outcome in (Outcome.MOVED, Outcome.IDLE):
        return frozenset()
    if outcome is Outcome.REMOVED:
        return frozenset({Waiting.DRIFT}) if observed is Observed.RETURNED else frozenset()
    state, found = state_of(outcome, tried), set[Waiting]()
    is_listed = state not in (EntryState.PENDING, EntryState.DELIVERED)
    if is_listed and not (state in (EntryState.REFUSED, EntryState.BLOCKED, EntryState.HELD) and observed in _GONE):
        found.add(Waiting(state.value))
    if observed in _DRIFT:
        found.add(Waiting.DRIFT)
    if observed is Observed.VANISHED and may_exist(outcome, tried) in (May.YES, May.MAYBE):
        found.add(Waiting.VANISHED)
    return frozenset(found)


Facts = tuple[Outcome, Tried, Observed]
"""An entry's outcome, what was tried under its key, and what its source says."""


@cache
def combinations() -> tuple[Facts, ...]:
    """Return all combinations, of which SQL conditions are made: no rule is written twice."""
    return tuple(product(Outcome, Tried, Observed))


def those(holds: Callable[[Outcome, Tried, Observed], bool]) -> tuple[Facts, ...]:
    """Return the combinations for which a rule holds."""
    return tuple(facts for facts in combinations() if holds(*facts))


def has_event(outcome: Outcome, tried: Tried) -> bool:
    """Return whether the service has, or may have, an event of the entry."""
    return may_exist(outcome, tried) in (May.YES, May.MAYBE)


def may_get_event(outcome: Outcome, tried: Tried, _: Observed = Observed.SAME) -> bool:
    """Return whether an entry has an event, or may still get one without a change of its row."""
    return outcome in (Outcome.OWED, Outcome.DENIED) or has_event(outcome, tried)


class Effect(NamedTuple):
    """What an answer leads to. `attempts`: those under the key that was used; with `is_next_key` the entry goes on under the next
    one.
    """

    outcome: Outcome
    attempts: Attempts
    event_id: int | None = None
    is_next_key: bool = False

    @property
    def state(self) -> EntryState:
        """The state in which it leaves the entry."""
        return state_of(self.outcome, Tried.NO if self.is_next_key else self.attempts.tried)


def stored_as(answer: Answer) -> str:
    """Return the id by which a stored refusal or denial is recognised, "unnamed" without a request id."""
    return answer.request_id or "unnamed"


def effect_of(  # noqa: PLR0911 # one arm for each verdict
    verdict: Verdict, before: Attempts, *, are_denials_own: bool = True, is_failed_again: bool = False
) -> Effect:
    """Return what a verdict leads to, for an entry with these attempts before it.

    `are_denials_own`: the request ids of denials differ from row to row. `is_failed_again`: the answer is the failure after which
    a person sent the row again.

    A person's `resend` is used up by the next call, whatever its answer, a `retry` only once something was tried, or by a refusal
    or a denial.

    A person's `resend` takes the risk of the attempts before it. A definitive refusal after it ends the key: the next edit leaves
    under the next one. A `retry` that is refused again may have met the stored refusal, so the next key is due, once.

    Denied access (401, 403, 404) is no refusal: the service may check access before the key, and the answer does not show what
    was created under it. The same answer with the same request id is the stored one, where request ids differ from row to row.
    """
    requests = before.requests + verdict.copies
    is_limited = before.is_limited or getattr(verdict, "is_limited", False)
    now = Attempts(requests, is_limited, before.refused_id, before.denied_id, before.granted)
    is_clear, is_new_risk = now.tried is Tried.NO, bool(verdict.copies) or getattr(verdict, "is_limited", False)
    answered_as, is_denied = stored_as(verdict.answer), verdict.attempts > 0 and verdict.answer.status in DENYING
    used = now._replace(granted=None)
    kept = now if is_clear and now.granted is Grant.RETRY else used
    next_key = Effect(Outcome.OWED, used, is_next_key=True)
    match verdict:
        case Receipt(event_id):
            return Effect(Outcome.CREATED, used, event_id)
        case Unconfirmed():
            return Effect(Outcome.USED, used)
        case Refusal() if not verdict.attempts:  # refused without a request, it leaves no trace at the service
            return Effect(Outcome.REFUSED, used)
        case Refusal():
            if before.granted is Grant.RETRY and before.refused_id is not None and is_clear:
                return next_key
            is_risked = before.granted is Grant.RESEND and before.tried is not Tried.NO and not is_new_risk
            return Effect(Outcome.REFUSED, used._replace(refused_id=answered_as), is_next_key=is_risked)
        case Blocked():
            return Effect(Outcome.DENIED, used._replace(denied_id=answered_as) if is_denied else used)
        case Postponed():
            return Effect(Outcome.OWED, kept._replace(denied_id=answered_as) if is_denied else kept)
        case Uncertain():
            is_stored = before.granted is Grant.RESEND and verdict.attempts > 0 and is_failed_again
            return next_key if is_stored else Effect(Outcome.UNCLEAR, kept)
        case Superseded():
            is_risked = before.granted is Grant.RESEND and not is_new_risk
            return _superseded(verdict, before, used, are_denials_own=are_denials_own, is_risked=is_risked)
        case Conflict():
            return Effect(Outcome.CONFLICT, used)


def _superseded(verdict: Superseded, before: Attempts, used: Attempts, *, are_denials_own: bool, is_risked: bool) -> Effect:
    """Return what an answer leads to that is stored under the key, or to a taken key.

    It shows that nothing was created only where no request of ours may have created the event, or where a person has taken that
    risk (`is_risked`) and this call has added nothing to it.
    """
    next_key = Effect(Outcome.OWED, used, is_next_key=True)
    answered_as, is_clear = stored_as(verdict.answer), used.tried is Tried.NO
    is_denied = verdict.attempts > 0 and verdict.answer.status in DENYING
    if is_denied and before.denied_id is not None:
        is_stored = are_denials_own and bool(verdict.answer.request_id) and verdict.answer.request_id == before.denied_id
        if is_risked or (is_clear and (is_stored or before.granted is Grant.RETRY)):
            return next_key
        return Effect(Outcome.DENIED, used._replace(denied_id=answered_as))
    if before.refused_id is not None and (is_clear or is_risked):  # only the refusal can hold the key
        return next_key
    if before.refused_id is not None and answered_as == before.refused_id:
        return Effect(Outcome.REFUSED, used)
    return Effect(Outcome.CONFLICT, used)


class Change(NamedTuple):
    """The effect of a decision. `takes_wanted`: what the source asks for becomes the body; `grant`: what the next call may do;
    `has_risk`: a second event may come of it.
    """

    outcome: Outcome
    is_next_key: bool = False
    takes_wanted: bool = False
    grant: Grant | None = None
    has_risk: bool = False


def decide(decision: Decision, outcome: Outcome, attempts: Attempts, observed: Observed) -> Change | None:  # noqa: PLR0911 # one arm for each
    """Return the effect of a decision about one entry, None if it has none; `same_as` and `undo` concern more than that."""
    may = may_exist(outcome, attempts.tried)
    match decision:
        case Decision.EVENT_ID | Decision.RECONCILED if outcome not in (*_WITHOUT_EVENT, Outcome.REMOVED):
            return Change(Outcome.CREATED)
        case Decision.RESEND:
            return _resend(outcome, attempts, observed, may)
        case Decision.RETRY if outcome in (Outcome.REFUSED, Outcome.DENIED) and observed not in _GONE:
            return Change(Outcome.OWED, grant=Grant.RETRY if outcome is Outcome.REFUSED and may is not May.MAYBE else None)
        case Decision.IGNORE if outcome is Outcome.OWED:
            return Change(Outcome.UNCLEAR) if may is May.MAYBE else None
        case Decision.IGNORE if outcome not in (Outcome.MOVED, Outcome.IDLE):
            is_as_shown = observed in (Observed.SAME, Observed.COUNTED, Observed.GONE)
            return None if outcome in (Outcome.CREATED, Outcome.REMOVED) and is_as_shown else Change(outcome)
        case Decision.APPLIED if may is May.YES and observed in (Observed.EDITED, Observed.TO_PUBLISH):
            return Change(outcome, takes_wanted=True)
        case Decision.REMOVED if may is May.YES and observed in (Observed.VANISHED, Observed.CANCELLED):
            return Change(Outcome.REMOVED)
        case Decision.RELEASE if outcome is Outcome.HELD:
            return Change(Outcome.OWED, takes_wanted=True)
    return None


def _resend(outcome: Outcome, attempts: Attempts, observed: Observed, may: May) -> Change | None:
    match outcome:
        case Outcome.OWED if attempts.granted is not None or (may is not May.MAYBE and attempts.denied_id is None):
            return None
        case Outcome.OWED | Outcome.UNCLEAR | Outcome.DENIED | Outcome.REFUSED:
            is_risky = attempts.tried is not Tried.NO or outcome is Outcome.UNCLEAR
            grant = Grant.RESEND if is_risky else Grant.RETRY
            return Change(Outcome.OWED, grant=grant, has_risk=is_risky or attempts.denied_id is not None)
        case Outcome.CONFLICT | Outcome.USED:
            return Change(Outcome.OWED, is_next_key=True, has_risk=True)
        case Outcome.REMOVED if observed is Observed.RETURNED:
            return Change(Outcome.OWED, is_next_key=True, takes_wanted=True)
    return None
