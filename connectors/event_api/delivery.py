"""From one intent to its verdict: send, wait, send again, within the bounds of the policy, as the table of delivery.md says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never, cast

from connectors.errors import OutageError
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
    in_short,
)
from connectors.event_api.route import REFUSED_BY_PROXY, Closed, MayLeave, Route, unavailable
from connectors.retry import Clock, Random, RetryPolicy, Sleep
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

_EARLIER_RUN = 0
"""Stands among the rows that failed for those of a run before this one."""


class CircuitBreaker:
    """Closed while the service answers; open after one failure more than there are slots, without a success between them.

    Closed, it lets at most so many requests out that they cannot exceed that number. Open, it lets out one request at a
    time, always for the same row (the probe). The first success closes it. If the probe uses up its own budget, and other
    rows have failed as well, it stays open for good: `cause` says why. A row that fails alone is no outage: the next row
    becomes the probe.

    `slots` is the number of rows in hand at a time.
    """

    def __init__(self, clock: Clock, slots: Callable[[], int]) -> None:
        self.is_open = False
        self.cause: OutageError | None = None
        self._clock = clock
        self._slots = slots
        self._failures = 0
        self._failing_since = 0.0
        self._rows: set[int] = set()
        self._in_hand: dict[int, int] = {}
        self._probe: int | None = None
        self._out = 0
        self._change = asyncio.Event()

    def begin_open(self) -> None:
        """Begin as an earlier run ended: one row goes first, and its failure is that run's failure."""
        self.is_open = True
        self._rows.add(_EARLIER_RUN)
        self._failing_since = self._clock()

    def is_probing(self, row: int) -> bool:
        """Return whether the row is the one that tries whether the service is back, after others have failed as well."""
        return self._is_probe(row) and self._is_outage

    async def admit(self, row: int) -> OutageError | None:
        """Wait until a request of the row may leave; return the cause if none will."""
        while self.cause is None and not self._may_leave(row):
            await self._change.wait()
        return self.cause

    def take(self, row: int) -> bool:
        """Let a request of the row out now; return whether it may leave. Each one that leaves must come `back`."""
        if self.cause is not None or not self._may_leave(row):
            return False
        if self.is_open:
            self._probe = row
        self._out += 1
        return True

    def back(self) -> None:
        """Note that a request has its answer, or will have none."""
        self._out -= 1
        self._wake()

    def passed(self) -> None:
        """Note a success."""
        if self.cause is None:
            self.is_open, self._probe, self._failures = False, None, 0
            self._rows.clear()
            self._in_hand.clear()
            self._wake()

    def failed(self, row: int, attempts: int) -> None:
        """Note a failure of the row, which has made so many `attempts`. The row with the fewest becomes the probe."""
        if not self._failures and not self.is_open:
            self._failing_since = self._clock()
        self._failures += 1
        self._rows.add(row)
        self._in_hand[row] = attempts
        if not self.is_open and self._failures > self._slots():
            self.is_open = True
            self._elect()
        self._wake()

    def leave(self, row: int, last: str = "") -> None:
        """Note that the row asks no more. `last`: what its last failure was, where failures have used up its budget."""
        self._in_hand.pop(row, None)
        if not self._is_probe(row):
            return
        if last and self._is_outage:
            self.cause = _outage(self._failures, self._clock() - self._failing_since, last)
        self._elect()
        self._wake()

    @property
    def _is_outage(self) -> bool:
        return len(self._rows) > 1

    def _is_probe(self, row: int) -> bool:
        return self.is_open and self._probe == row

    def _may_leave(self, row: int) -> bool:
        if self.is_open:
            return self._out == 0 and self._probe in {None, row}
        return not self._failures or self._out == 0 or self._failures + self._out <= self._slots()

    def _elect(self) -> None:
        self._probe = min(self._in_hand, key=self._in_hand.__getitem__, default=None)

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _outage(failures: int, seconds: float, last: str) -> OutageError:
    return OutageError(
        f"the service gave no usable answer for {seconds:.0f} s, to {failures} attempts in a row; the last one: {last}",
        hint="nothing is lost: run again when the service is back; the next run sends one row first, and the others once it "
        "has passed; if the service never answered, check EVENT_API_BASE_URL",
    )


USED_KEY_ASKS = 4
"""How often a 409 is met at least before we take it that our earlier attempt will not be shown to us."""
_SAME_FAILURES = 3
"""So many failures under one request id are one failure, kept under the key and repeated."""
_SHORTEST_LOOK_S = 1.0
"""How long to wait at least where the service names a time to ask again: such asking is not bounded in number."""
_LONGEST_LOOK_S = 5.0
"""How long to wait at most between two questions about a bare 409: the answer is near, one way or the other."""
_LONG_AGO_S = 3600.0
"""After so long nothing that an earlier run sent is in flight; its last request left some time after its claim."""


@dataclass(slots=True)
class DeliveryState:
    """What one call of `deliver` has seen. Times are the route's clock's, in seconds."""

    intent: Intent
    policy: RetryPolicy
    started: float
    attempts: int = 0
    copies: int = 0
    """How many attempts of this call may have created an event."""
    is_recorded: bool = True
    """The ledger counts the next attempt already: the claim's own, or one after which certainly nothing was created."""
    is_limited: bool = False
    """An attempt of this call was answered 429."""
    unanswered_since: float | None = None
    """When the first attempt began that may have been carried out without our seeing its answer: now, or in an earlier run."""
    under_way_until: float = 0.0
    """Until when such an attempt may still be at work in the service."""
    has_left: bool = False
    """Such an attempt is one of this call's."""
    used_key_answers: int = 0
    under_way_answers: int = 0
    same_failures: int = 0
    spent_s: float = 0.0
    """Of the budget: time at the service, and waits between attempts; not the time that rate limiter and circuit breaker took."""
    last: Meaning | None = None

    def __post_init__(self) -> None:
        """Begin with what the ledger knows of earlier runs."""
        if self.intent.is_unanswered and not self.intent.is_limited:
            self.unanswered_since = self.started - self.intent.unanswered_s
            is_over = self.intent.quiet_s >= _LONG_AGO_S
            self.under_way_until = self.started + (0.0 if is_over else self.policy.at_work_s)

    @property
    def may_exist(self) -> bool:
        """Whether the event may have been created without our knowing. A 429 is no proof that it was not."""
        return self.unanswered_since is not None or self.intent.is_unanswered or self.is_limited

    def is_too_late(self, clock_s: float) -> bool:
        """Return whether the service may have forgotten the key of an attempt that it may have carried out."""
        return self.unanswered_since is not None and clock_s - self.unanswered_since >= self.policy.key_memory_s

    def note(self, meaning: Meaning, began: float, *, is_acquainted: bool) -> None:
        """Note what came back of the attempt that began at `began`; a 4xx in strange words once `is_acquainted` is a failure."""
        if isinstance(meaning, RateLimited):
            self.is_limited = True
            return
        self.attempts += 1
        self._count_the_same(meaning)
        self.last = meaning
        match meaning:
            case Created():
                self._count_copy()
            case Failing() | Lost() | Unreadable() | Redirected():
                self._leave_unanswered(began)
            case Foreign() if is_acquainted:
                self._leave_unanswered(began)
            case KeyUsed(is_under_way=True):
                self.under_way_answers += 1
            case KeyUsed():
                self.used_key_answers += 1
            case _:
                pass

    @property
    def is_repeated(self) -> bool:
        """Whether the service keeps repeating one failure: it stored it under the key, and will not try again."""
        return self.same_failures >= _SAME_FAILURES

    def is_used_up(self, clock_s: float) -> bool:
        """Return whether a bare 409 explains nothing any more but itself: no attempt of ours can still be at work."""
        return not self.may_exist or (self.used_key_answers >= USED_KEY_ASKS and clock_s >= self.under_way_until)

    def is_stored_denial(self, answer: Answer) -> bool:
        """Whether denied access is, or may be, an earlier answer that the service stored under this row's key.

        It is where it has the earlier one's request id: then nothing else was ever stored there. Under another one it may be,
        or access is missing still and the event exists, made before our books began: only a person can take that risk.
        """
        denial = self.intent.denial
        if denial is None:
            return False
        return denial.is_repeated_by(answer) or (denial.is_resent and not self.has_left)

    def wait_s(self, met: object, policy: RetryPolicy, random: Random) -> float:
        """Return how long to wait after an answer that settles nothing. A 409 is asked about at growing intervals."""
        ours = policy.wait_s(self.attempts, random)
        match met:
            case KeyUsed(wait_s=float(asked_s)):
                return max(asked_s, _SHORTEST_LOOK_S)
            case KeyUsed(is_under_way=is_under_way):
                asks = self.used_key_answers + self.under_way_answers
                longest_s = self.policy.longest_wait_s if is_under_way else min(self.policy.longest_wait_s, _LONGEST_LOOK_S)
                return min(max(ours, self.policy.first_wait_s * 2.0 ** min(asks, 60)), longest_s)
            case _:
                return ours

    def is_spent(self, clock_s: float, next_wait_s: float) -> bool:
        """Return whether to give up: attempts, time, or the service's memory of the key would be overrun.

        Asking about a bare 409 ends by itself, once our own attempt's time is over.
        """
        if self.is_too_late(clock_s + next_wait_s):
            return True
        if isinstance(self.last, KeyUsed) and not self.last.is_under_way and self.may_exist:
            return False
        counted = self.attempts - self.under_way_answers - self.used_key_answers
        return self.policy.is_spent(counted, self.spent_s, next_wait_s)

    def explained(self, answer: Answer) -> Answer:
        """Return an answer for people: with what its repetition means, where the service keeps repeating one failure."""
        if not self.is_repeated:
            return answer
        said = "the service stored this failure under the row's key and repeats it; the event may exist: a person decides"
        return replace(answer, message=f"{said}: {answer.message}")

    def _count_copy(self) -> None:
        self.copies += 1
        self.is_recorded = False

    def _leave_unanswered(self, began: float) -> None:
        self._count_copy()
        self.has_left = True
        self.unanswered_since = began if self.unanswered_since is None else self.unanswered_since
        self.under_way_until = max(self.under_way_until, began + self.policy.at_work_s)

    def _count_the_same(self, meaning: Meaning) -> None:
        is_failure = isinstance(meaning, Failing) and bool(meaning.answer.request_id)
        is_same = isinstance(self.last, Failing) and self.last.answer.request_id == meaning.answer.request_id
        self.same_failures = (self.same_failures + 1 if is_same else 1) if is_failure else 0


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


class Delivery:
    """Delivers intents over one route. `post` sends one request and reads its answer; it never raises for an answer.

    `record` is awaited before each further attempt of an intent that may have created an event already. `aside` are the
    entries that wait until they ask again about a 409: they need no slot; `on_aside` is called when one is added.
    """

    def __init__(
        self,
        post: Callable[[Intent, MayLeave], Awaitable[Meaning | None]],
        route: Route,
        circuit: CircuitBreaker,
        *,
        policy: RetryPolicy,
        sleep: Sleep,
        random: Random,
    ) -> None:
        self._post = post
        self._route = route
        self._clock = route.limiter.clock
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
        state = DeliveryState(intent, self._policy, started=self._clock())
        last_failure = ""
        try:
            met = await self._attempt(state)
            while not self._is_settled(state, met):
                wait_s = self._wait_s(state, met)
                if state.is_spent(self._clock(), wait_s):
                    break
                await self._rest(state, wait_s)
                met = await self._attempt(state)
            if not isinstance(met, Closed | TooLate) and self._is_failure(met):
                last_failure = in_short(met.answer)
        finally:
            self._circuit.leave(intent.entry_id, last_failure)
        return self._verdict(state, met)

    async def _attempt(self, state: DeliveryState) -> Meaning | Closed | TooLate:
        """Send one attempt that counts, once the circuit breaker and the rate limiter let it go."""
        while True:
            cause = await self._circuit.admit(state.intent.entry_id)
            if cause is not None:
                return Closed(cause)
            try:
                return cast("Meaning | Closed", await self._route.pass_through(partial(self._send, state)))
            except _CircuitOpenError:
                continue
            except _TooLateError:
                return TooLate()

    async def _send(self, state: DeliveryState, may_leave: MayLeave) -> Meaning | None:
        left = self._clock()
        if state.is_too_late(left):  # after the admission, which may have taken a long pause
            raise _TooLateError
        if not state.is_recorded:
            await self.record(state.intent)
            state.is_recorded = True
        if not self._circuit.take(state.intent.entry_id):
            raise _CircuitOpenError
        try:
            answered = await self._post(state.intent, may_leave)
        finally:
            self._circuit.back()
        if answered is None:
            state.is_recorded = True
            return None
        meaning = self._own(state, answered)
        state.spent_s += self._clock() - left
        self._note(state, meaning, left)
        return meaning

    def _wait_s(self, state: DeliveryState, met: object) -> float:
        is_probing = self._circuit.is_probing(state.intent.entry_id)
        return state.wait_s(met, self._policy.probing if is_probing else self._policy, self._random)

    async def _rest(self, state: DeliveryState, wait_s: float) -> None:
        """Wait for the next attempt; aside where a 409 is to be asked about, unless too many rows do so already."""
        state.spent_s += wait_s
        entry = state.intent.entry_id
        if not isinstance(state.last, KeyUsed) or len(self.aside) >= MOST_ASIDE:
            await self._sleep(wait_s)
            return
        self.aside.add(entry)
        self.on_aside()
        try:
            await self._sleep(wait_s)
        finally:
            self.aside.discard(entry)

    def _own(self, state: DeliveryState, meaning: Meaning) -> Meaning:
        """Take as this row's own what concerns no other: a stored denial of access, repeated.

        And doubt an id that another row was given a moment ago: it is a copy of that row's answer, not the answer to this one.
        """
        if isinstance(meaning, KeyRefused | ScopeMissing | NoAccess) and state.is_stored_denial(meaning.answer):
            return Refused(meaning.answer)
        if not isinstance(meaning, Created):
            return meaning
        if self._given.setdefault(meaning.event_id, state.intent.key) != state.intent.key:
            said = f"the service gave event {meaning.event_id} to another row a moment ago"
            return Unreadable(replace(meaning.answer, message=said))
        if len(self._given) > _REMEMBERED:
            del self._given[next(iter(self._given))]
        return meaning

    def _note(self, state: DeliveryState, meaning: Meaning, left: float) -> None:
        is_acquainted = self._route.acquaintance.is_made and meaning.answer.status not in REFUSED_BY_PROXY
        state.note(meaning, left, is_acquainted=is_acquainted)
        if isinstance(meaning, Created):
            self._route.acquaintance.is_made = True
        if self._is_failure(meaning) and not self._is_own_failure(state, meaning.answer):
            self._circuit.failed(state.intent.entry_id, state.attempts)
        elif not isinstance(meaning, RateLimited | Redirected | Foreign):
            self._circuit.passed()

    def _is_own_failure(self, state: DeliveryState, answer: Answer) -> bool:
        """Whether a failure is stored under the row's key: the service works. A gateway gives all rows the same request id."""
        return state.is_repeated and self._stored.setdefault(answer.request_id, state.intent.key) == state.intent.key

    def _is_failure(self, meaning: Meaning) -> bool:
        """Whether nothing is known after an answer. Other words than the service's are a failure once it has answered."""
        if isinstance(meaning, Foreign):
            return self._route.acquaintance.is_made and meaning.answer.status not in REFUSED_BY_PROXY
        return isinstance(meaning, Failing | Lost | NotReached | Unreadable)

    def _is_settled(self, state: DeliveryState, met: Meaning | Closed | TooLate) -> bool:
        match met:
            case Closed() | TooLate() | Created() | Refused() | NoAccess() | ScopeMissing() | KeyRefused() | Redirected():
                return True
            case KeyUsed(is_under_way=is_under_way):
                return not is_under_way and state.is_used_up(self._clock())
            case Foreign(answer):
                return not self._route.acquaintance.is_made or answer.status in REFUSED_BY_PROXY
            case Failing():
                return state.is_repeated
            case Unreadable() | NotReached() | Lost() | RateLimited():
                return False
            case _:
                assert_never(met)

    def _verdict(self, state: DeliveryState, met: Meaning | Closed | TooLate) -> Verdict:  # noqa: PLR0911  # one arm for each kind of end
        match met:
            case Created(answer, event_id):
                return Receipt(event_id, answer, state.attempts, state.copies)
            case Refused(answer):
                return _refusal(state, answer)
            case NoAccess(answer):
                return Blocked(answer, state.attempts, state.copies, state.is_limited, state.has_left)
            case KeyUsed():
                return self._used_key(state, met)
            case Closed(cause):
                return _postponed(state, state.last.answer if state.last else Answer(0, "not_sent", str(cause)), cause)
            case TooLate():
                return Uncertain(_TOO_LATE, state.attempts, state.copies)
            case _:
                return self._unsettled(state, met)

    def _used_key(self, state: DeliveryState, met: KeyUsed) -> Verdict:
        """Explain a 409 by our own records; where nothing of ours explains it, a person decides."""
        if state.may_exist:
            is_explained = not met.is_under_way and state.is_used_up(self._clock())
            if is_explained and state.intent.refused_request_id:
                # Our attempt has created it, or the refusal of the earlier body still holds the key: the row may be nowhere.
                return Conflict(met.answer, state.attempts, state.copies)
            return (Unconfirmed if is_explained else Uncertain)(met.answer, state.attempts, state.copies)
        if state.intent.refused_request_id and not met.is_under_way:
            return Superseded(met.answer, state.attempts, state.copies)
        return Conflict(met.answer, state.attempts, state.copies)

    def _unsettled(self, state: DeliveryState, met: Meaning) -> Verdict:
        if isinstance(met, Foreign) and self._route.acquaintance.is_made and met.answer.status in REFUSED_BY_PROXY:
            return Refusal(met.answer, state.attempts, state.copies)
        if isinstance(met, ScopeMissing):
            return self._out_of_scope(state, met.answer)
        if self._route.closed is not None:
            return _postponed(state, met.answer, self._route.closed)
        if state.has_left:
            return Uncertain(state.explained(met.answer), state.attempts, state.copies)
        return _postponed(state, met.answer, self._circuit.cause or unavailable(met.answer, state.attempts))

    def _out_of_scope(self, state: DeliveryState, answer: Answer) -> Verdict:
        channel_id = state.intent.channel_id
        cause = self._route.scope_missing(answer, channel_id)
        self._barred.setdefault(channel_id, Postponed(answer, cause))
        return _postponed(state, answer, cause)


def _refusal(state: DeliveryState, answer: Answer) -> Verdict:
    is_replay = bool(answer.request_id) and answer.request_id == state.intent.refused_request_id
    is_stored = is_replay or answer.status in DENYING
    return (Superseded if is_stored else Refusal)(answer, state.attempts, state.copies)


def _postponed(state: DeliveryState, answer: Answer, cause: SyncError) -> Postponed:
    return Postponed(answer, cause, state.attempts, state.copies, state.is_limited, state.has_left)
