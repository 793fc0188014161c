"""From one intent to its verdict: ask, wait, ask again, in the bounds of the policy, as delivery.md's table says.

What an answer means is read in `answers`, how requests share the route is `pacing`'s, the request itself is `client`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from connectors.admission import Closed
from connectors.circuit_breaker import CircuitBreaker
from connectors.event_api import complaints
from connectors.event_api.answers import (
    Created,
    Failing,
    Foreign,
    KeyRefused,
    KeyUsed,
    Lost,
    Meaning,
    NoAccess,
    NotReached,
    RateLimited,
    Redirected,
    Refused,
    ScopeMissing,
    Unreadable,
)
from connectors.event_api.case import Case
from connectors.event_api.route import REFUSED_BY_PROXY, Route
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.delivery import (
    DENYING,
    Answer,
    Blocked,
    Conflict,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.errors import SyncError
from mappings.row_key import IdempotencyKey

MOST_ASIDE = 256
"""So many rows at most wait beside the slots until they ask again about a 409."""
_REMEMBERED = 4096
"""So many ids are kept to compare with: far more than there are requests under way."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """Not sent again: the service may have forgotten the key of an attempt that it may have carried out."""


_TOO_LATE = Answer(
    status=0, code="key_memory", message="not sent again: by now the service may have forgotten the key of an unanswered attempt"
)


class _TooLateError(Exception):
    """Ends one attempt after its admission; never leaves this module."""


class _CircuitOpenError(Exception):
    """Ends one attempt as the circuit breaker has opened since its admission; never leaves this module."""


async def _not_recorded(_intent: Intent) -> None:
    """Where no ledger counts attempts."""


class Courier:
    """Carries intents over one route. `post` sends one request and reads its answer; it never raises for an answer.

    `record` is awaited before each further attempt of an intent that may have created an event already. `aside` are the
    entries that wait until they ask again about a 409: they need no slot; `on_aside` is called when one is added.
    """

    def __init__(
        self,
        post: Callable[[Intent], Awaitable[Meaning]],
        route: Route,
        circuit: CircuitBreaker,
        *,
        policy: RetryPolicy,
        sleep: Sleep,
        random: Random,
    ) -> None:
        self._post = post
        self._route = route
        self._clock = route.pacer.clock
        self._circuit = circuit
        self._policy = policy
        self.record: Callable[[Intent], Awaitable[None]] = _not_recorded
        self.aside: set[int] = set()
        self.on_aside: Callable[[], None] = lambda: None
        self._sleep = sleep
        self._random = random
        self._barred: dict[int, Postponed] = {}
        self._given: dict[int, IdempotencyKey] = {}
        self._stored: dict[str, IdempotencyKey] = {}

    async def deliver(self, intent: Intent) -> Verdict:
        """Return what became of `intent`; every request sends the same key and body. Never raises for a row's fate.

        Once the key lacks the scope for a channel, its further intents are postponed without a request.
        """
        barred = self._barred.get(intent.channel_id)
        if barred is not None:
            return replace(barred, attempts=0)
        case = Case(intent, self._policy, started=self._clock())
        last = ""
        try:
            met = await ask_until(
                lambda met: self._is_settled(case, met),
                lambda: self._ask(case),
                wait_s=lambda _, met: self._wait_s(case, met),
                is_spent=lambda _, wait_s: case.is_spent(self._clock(), wait_s),
                sleep=lambda wait_s: self._rest(case, wait_s),
            )
            if not isinstance(met, Closed | TooLate) and self._is_failure(met):
                last = complaints.in_short(met.answer)
        finally:
            self._circuit.leave(intent.entry_id, last)
        return self._verdict(case, met)

    async def _ask(self, case: Case) -> Meaning | Closed | TooLate:
        """Send one attempt that counts, once the circuit breaker and the route's pace let it go."""
        while True:
            cause = await self._circuit.admit(case.intent.entry_id)
            if cause is not None:
                return Closed(cause)
            try:
                return await self._route.pass_through(lambda: self._send(case))
            except _CircuitOpenError:
                continue
            except _TooLateError:
                return TooLate()

    async def _send(self, case: Case) -> Meaning:
        left = self._clock()
        if case.is_too_late(left):  # after the admission, which may have taken a long pause
            raise _TooLateError
        if not case.is_recorded:
            await self.record(case.intent)
            case.is_recorded = True
        if not self._circuit.take(case.intent.entry_id):
            raise _CircuitOpenError
        try:
            meaning = self._own(case, await self._post(case.intent))
        finally:
            self._circuit.back()
        case.spent_s += self._clock() - left
        self._note(case, meaning, left)
        return meaning

    def _wait_s(self, case: Case, met: object) -> float:
        is_probing = self._circuit.is_probing(case.intent.entry_id)
        return case.wait_s(met, self._policy.probing if is_probing else self._policy, self._random)

    async def _rest(self, case: Case, wait_s: float) -> None:
        """Wait for the next attempt; aside where a 409 is to be asked about, unless too many rows do so already."""
        case.spent_s += wait_s
        entry = case.intent.entry_id
        if not isinstance(case.last, KeyUsed) or len(self.aside) >= MOST_ASIDE:
            await self._sleep(wait_s)
            return
        self.aside.add(entry)
        self.on_aside()
        try:
            await self._sleep(wait_s)
        finally:
            self.aside.discard(entry)

    def _own(self, case: Case, meaning: Meaning) -> Meaning:
        """Take as this row's own what concerns no other: a stored denial of access, told again.

        And doubt an id that another row was given a moment ago: it is a copy of that row's answer, not the answer to this one.
        """
        if isinstance(meaning, KeyRefused | ScopeMissing | NoAccess) and case.is_stored_denial(meaning.answer):
            return Refused(meaning.answer)
        if not isinstance(meaning, Created):
            return meaning
        if self._given.setdefault(meaning.event_id, case.intent.key) != case.intent.key:
            said = f"the service gave event {meaning.event_id} to another row a moment ago"
            return Unreadable(replace(meaning.answer, message=said))
        if len(self._given) > _REMEMBERED:
            del self._given[next(iter(self._given))]
        return meaning

    def _note(self, case: Case, meaning: Meaning, left: float) -> None:
        is_acquainted = self._route.acquaintance.is_made and meaning.answer.status not in REFUSED_BY_PROXY
        case.note(meaning, left, is_acquainted=is_acquainted)
        if isinstance(meaning, Created):
            self._route.acquaintance.is_made = True
        if self._is_failure(meaning) and not self._is_own_failure(case, meaning.answer):
            self._circuit.failed(case.intent.entry_id, case.attempts)
        elif not isinstance(meaning, RateLimited | Redirected | Foreign):
            self._circuit.passed()

    def _is_own_failure(self, case: Case, answer: Answer) -> bool:
        """Whether a failure is stored under the row's key: the service works. A gateway gives all rows the same request id."""
        return case.is_told_again and self._stored.setdefault(answer.request_id, case.intent.key) == case.intent.key

    def _is_failure(self, meaning: Meaning) -> bool:
        """Whether nothing is known after an answer. Other words than the service's are a failure once it has answered."""
        if isinstance(meaning, Foreign):
            return self._route.acquaintance.is_made and meaning.answer.status not in REFUSED_BY_PROXY
        return isinstance(meaning, Failing | Lost | NotReached | Unreadable)

    def _is_settled(self, case: Case, met: Meaning | Closed | TooLate) -> bool:
        match met:
            case Closed() | TooLate() | Created() | Refused() | NoAccess() | ScopeMissing() | KeyRefused() | Redirected():
                return True
            case KeyUsed(is_under_way=is_under_way):
                return not is_under_way and case.is_used_up(self._clock())
            case Foreign(answer):
                return not self._route.acquaintance.is_made or answer.status in REFUSED_BY_PROXY
            case Failing():
                return case.is_told_again
            case Unreadable() | NotReached() | Lost() | RateLimited():
                return False
            case _:
                assert_never(met)

    def _verdict(self, case: Case, met: Meaning | Closed | TooLate) -> Verdict:  # noqa: PLR0911  # one arm for each kind of end
        match met:
            case Created(answer, event_id):
                return Receipt(event_id, answer, case.attempts, case.copies)
            case Refused(answer):
                return _refusal(case, answer)
            case NoAccess(answer):
                return Blocked(answer, case.attempts, case.copies, case.is_limited, case.has_left)
            case KeyUsed():
                return self._used_key(case, met)
            case Closed(cause):
                return _postponed(case, case.last.answer if case.last else Answer(0, "not_sent", str(cause)), cause)
            case TooLate():
                return Uncertain(_TOO_LATE, case.attempts, case.copies)
            case _:
                return self._unsettled(case, met)

    def _used_key(self, case: Case, met: KeyUsed) -> Verdict:
        """Explain a 409 by our own records; where nothing of ours explains it, a person decides."""
        if case.may_exist:
            is_told = not met.is_under_way and case.is_used_up(self._clock())
            if is_told and case.intent.refused_request_id:
                # Our attempt has created it, or the refusal of the earlier body still holds the key: the row may be nowhere.
                return Conflict(met.answer, case.attempts, case.copies)
            return (Unconfirmed if is_told else Uncertain)(met.answer, case.attempts, case.copies)
        if case.intent.refused_request_id and not met.is_under_way:
            return Superseded(met.answer, case.attempts, case.copies)
        return Conflict(met.answer, case.attempts, case.copies)

    def _unsettled(self, case: Case, met: Meaning) -> Verdict:
        if isinstance(met, Foreign) and self._route.acquaintance.is_made and met.answer.status in REFUSED_BY_PROXY:
            return Refusal(met.answer, case.attempts, case.copies)
        if isinstance(met, ScopeMissing):
            return self._out_of_scope(case, met.answer)
        if self._route.closed is not None:
            return _postponed(case, met.answer, self._route.closed)
        if case.has_left:
            return Uncertain(case.told(met.answer), case.attempts, case.copies)
        return _postponed(case, met.answer, self._circuit.cause or complaints.unavailable(met.answer, case.attempts))

    def _out_of_scope(self, case: Case, answer: Answer) -> Verdict:
        channel_id = case.intent.channel_id
        cause = self._route.scope_missing(answer, channel_id)
        self._barred.setdefault(channel_id, Postponed(answer, cause))
        return _postponed(case, answer, cause)


def _refusal(case: Case, answer: Answer) -> Verdict:
    is_replay = bool(answer.request_id) and answer.request_id == case.intent.refused_request_id
    is_stored = is_replay or answer.status in DENYING
    return (Superseded if is_stored else Refusal)(answer, case.attempts, case.copies)


def _postponed(case: Case, answer: Answer, cause: SyncError) -> Postponed:
    return Postponed(answer, cause, case.attempts, case.copies, case.is_limited, case.has_left)
