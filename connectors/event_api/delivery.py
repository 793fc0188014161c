"""The client of the service: its questions, and from one intent to its verdict.

Send, wait, send again, within the bounds of the policy, as the answers in docs/ledger.md say.

The circuit breaker stops sending when the service fails, and tries it with one row at a time. It counts attempts over all rows. A
**failure** is an attempt after which nothing is known: 408, 425, 5xx, a timeout, no or a lost connection, an unreadable answer.
A **success** is any usable answer, a refusal or a 409 included, and a failure that the service repeats from under the row's key:
it shows that the service works. A 429 is neither. Each worker has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from connectors.errors import OutageError
from connectors.event_api import lists
from connectors.event_api.answers import AnswerKind, HttpAnswer, Meaning, created_id, in_short, interpret
from connectors.event_api.lists import Classifications, EventList
from connectors.event_api.media import Uploader
from connectors.event_api.openapi import NoPage, PageBody, fetch_page
from connectors.event_api.route import FAILURES, REFUSED_BY_PROXY, MayLeave, Route, unavailable
from connectors.event_api.transport import ServiceHttp
from connectors.rate_limit import RateLimiter
from connectors.retry import Clock, Random, RetryPolicy
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
        return self.is_open and self._probe == row and len(self._rows) > 1

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
        if last and self.is_probing(row):
            seconds = self._clock() - self._failing_since
            self.cause = OutageError(
                f"the service gave no usable answer for {seconds:.0f} s, to {self._failures} attempts in a row; "
                f"the last one: {last}",
                hint="nothing is lost: run again when the service is back; the next run sends one row first, and the others once "
                "it has passed; if the service never answered, check EVENT_API_BASE_URL",
            )
        if self.is_open and self._probe == row:
            self._elect()
            self._wake()

    def _may_leave(self, row: int) -> bool:
        if self.is_open:
            return self._out == 0 and self._probe in {None, row}
        return not self._failures or self._out == 0 or self._failures + self._out <= self._slots()

    def _elect(self) -> None:
        self._probe = min(self._in_hand, key=self._in_hand.__getitem__, default=None)

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


USED_KEY_ASKS = 4
"""How often a 409 is met at least before we take it that our earlier attempt will not be shown to us."""
_SAME_FAILURES = 3
"""So many failures under one request id are one failure, kept under the key and repeated."""
_SHORTEST_ASK_S = 1.0
"""How long to wait at least where the service names a time to ask again: such asking is not bounded in number."""
_LONGEST_ASK_S = 5.0
"""How long to wait at most between two questions about a bare 409: the answer is near, one way or the other."""
_LONG_AGO_S = 3600.0
"""After so long nothing that an earlier run sent is in flight; its last request left some time after its claim."""
_UNANSWERED = frozenset({AnswerKind.FAILING, AnswerKind.FOREIGN, AnswerKind.LOST, AnswerKind.UNREADABLE, AnswerKind.REDIRECTED})
"""After these the event may have been created without our knowing."""
_UNSETTLED = frozenset(
    {AnswerKind.FOREIGN, AnswerKind.LOST, AnswerKind.NOT_REACHED, AnswerKind.UNREADABLE, AnswerKind.IN_PROGRESS}
)
_NEUTRAL = frozenset({AnswerKind.RATE_LIMITED, AnswerKind.REDIRECTED, AnswerKind.ANOTHER_HOST, AnswerKind.REFUSED_BY_PROXY})
"""For the circuit breaker neither a failure nor a success."""
_ACCESS = frozenset({AnswerKind.KEY_REFUSED, AnswerKind.SCOPE_MISSING, AnswerKind.NO_ACCESS})


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
    in_progress_until: float = 0.0
    """Until when such an attempt may still be at work in the service."""
    has_left: bool = False
    """Such an attempt is one of this call's."""
    used_key_answers: int = 0
    in_progress_answers: int = 0
    same_failures: int = 0
    spent_s: float = 0.0
    """Of the budget: time at the service, and waits between attempts; not the time that rate limiter and circuit breaker took."""
    last: Meaning | None = None

    def __post_init__(self) -> None:
        """Begin with what the ledger knows of earlier runs."""
        if self.intent.is_unanswered and not self.intent.is_limited:
            self.unanswered_since = self.started - self.intent.unanswered_s
            is_over = self.intent.quiet_s >= _LONG_AGO_S
            self.in_progress_until = self.started + (0.0 if is_over else self.policy.at_work_s)

    @property
    def may_exist(self) -> bool:
        """Whether the event may have been created without our knowing. A 429 is no proof that it was not."""
        return self.unanswered_since is not None or self.intent.is_unanswered or self.is_limited

    def is_too_late(self, clock_s: float) -> bool:
        """Return whether the service may have forgotten the key of an attempt that it may have carried out."""
        return self.unanswered_since is not None and clock_s - self.unanswered_since >= self.policy.key_memory_s

    def note(self, meaning: Meaning, began: float) -> None:
        """Note what came back of the attempt that began at `began`."""
        if meaning.kind is AnswerKind.RATE_LIMITED:
            self.is_limited = True
            return
        self.attempts += 1
        is_failure = meaning.kind is AnswerKind.FAILING and bool(meaning.answer.request_id)
        is_same = (
            self.last is not None
            and self.last.kind is AnswerKind.FAILING
            and self.last.answer.request_id == meaning.answer.request_id
        )
        self.same_failures = (self.same_failures + 1 if is_same else 1) if is_failure else 0
        self.last = meaning
        self.used_key_answers += meaning.kind is AnswerKind.KEY_USED
        self.in_progress_answers += meaning.kind is AnswerKind.IN_PROGRESS
        if meaning.kind is AnswerKind.READ or meaning.kind in _UNANSWERED:
            self.copies += 1
            self.is_recorded = False
        if meaning.kind in _UNANSWERED:
            self.has_left = True
            self.unanswered_since = began if self.unanswered_since is None else self.unanswered_since
            self.in_progress_until = max(self.in_progress_until, began + self.policy.at_work_s)

    @property
    def is_repeated(self) -> bool:
        """Whether the service keeps repeating one failure: it stored it under the key, and will not try again."""
        return self.same_failures >= _SAME_FAILURES

    def is_used_up(self, clock_s: float) -> bool:
        """Return whether a bare 409 explains nothing any more but itself: no attempt of ours can still be at work."""
        return not self.may_exist or (self.used_key_answers >= USED_KEY_ASKS and clock_s >= self.in_progress_until)

    def is_settled(self, met: Meaning, clock_s: float) -> bool:
        """Return whether nothing more is to be asked of the service."""
        if met.kind is AnswerKind.KEY_USED:
            return self.is_used_up(clock_s)
        return self.is_repeated if met.kind is AnswerKind.FAILING else met.kind not in _UNSETTLED

    def is_stored_denial(self, answer: Answer) -> bool:
        """Whether denied access is, or may be, an earlier answer that the service stored under this row's key.

        It is where it has the earlier one's request id: then nothing else was ever stored there. Under another one it may be,
        or access is missing still and the event exists, made before our records began: only a person can take that risk.
        """
        denial = self.intent.denial
        return denial is not None and (denial.is_repeated_by(answer) or (denial.is_resent and not self.has_left))

    def wait_s(self, met: Meaning, policy: RetryPolicy, random: Random) -> float:
        """Return how long to wait after an answer that settles nothing. A 409 is asked about at growing intervals."""
        backoff_s = policy.wait_s(self.attempts, random)
        if met.kind not in {AnswerKind.KEY_USED, AnswerKind.IN_PROGRESS}:
            return backoff_s
        if met.wait_s is not None:
            return max(met.wait_s, _SHORTEST_ASK_S)
        asks = self.used_key_answers + self.in_progress_answers
        longest_s = (
            self.policy.longest_wait_s if met.kind is AnswerKind.IN_PROGRESS else min(self.policy.longest_wait_s, _LONGEST_ASK_S)
        )
        return min(max(backoff_s, self.policy.first_wait_s * 2.0 ** min(asks, 60)), longest_s)

    def is_spent(self, clock_s: float, next_wait_s: float) -> bool:
        """Return whether to give up: attempts, time, or the service's memory of the key would be overrun.

        Asking about a bare 409 ends by itself, once our own attempt's time is over.
        """
        if self.is_too_late(clock_s + next_wait_s):
            return True
        if self.last is not None and self.last.kind is AnswerKind.KEY_USED and self.may_exist:
            return False
        counted = self.attempts - self.in_progress_answers - self.used_key_answers
        return self.policy.is_spent(counted, self.spent_s, next_wait_s)


MOST_ASKING_LATER = 256
"""So many rows at most wait beside the slots until they ask again about a 409."""
_REMEMBERED = 4096
"""So many ids are kept to compare with: far more than there are requests in flight."""
_TOO_LATE = Answer(
    status=0, code="key_memory", message="not sent again: by now the service may have forgotten the key of an unanswered attempt"
)
_STORED_FAILURE = "the service stored this failure under the row's key and repeats it; the event may exist: a person decides"


async def _not_recorded(_intent: Intent) -> None:
    """Where no ledger counts attempts."""


class EventApi:
    """Asks and delivers through `http` (see `open_http`), which stays the caller's to close.

    `limiter` spaces the creation of events, one for all requests in flight; the other routes get limiters of its kind, as
    limits are applied per route (spec, Limits). Its `circuit` breaker stops the creation of events in an outage.

    `record` is awaited before each further attempt of an intent that may have created an event already. `asking_later` are the
    entries that wait until they ask again about a 409: they need no slot; `on_asking_later` is called when one is added.
    """

    def __init__(self, http: ServiceHttp, *, limiter: RateLimiter, policy: RetryPolicy) -> None:
        self.limiter = limiter
        self.record: Callable[[Intent], Awaitable[None]] = _not_recorded
        self.asking_later: set[int] = set()
        self.on_asking_later: Callable[[], None] = lambda: None
        self._http = http
        self._clock = limiter.clock
        self._events_url = http.url("/events")
        self._events = Route(http, limiter, policy, scope="events:create", has_channels=True)
        self.circuit = CircuitBreaker(limiter.clock, lambda: limiter.concurrency.room)
        self._barred: dict[int, Postponed] = {}
        self._keys_of_events: dict[int, IdempotencyKey] = {}
        self._keys_of_failures: dict[str, IdempotencyKey] = {}
        self.uploader = Uploader(self._events.sibling("POST /media"))

    @property
    def stopped(self) -> SyncError | None:
        """Why no event is sent any more (key, redirect, pause, outage), or None while the route is open."""
        return self._events.closed or self.circuit.cause

    async def deliver(self, intent: Intent) -> Verdict:
        """Create one event, insisting within the policy, and return what became of `intent`. Never raises for the row's fate.

        Every request sends the same key and body. A cancelled call may have created the event: its intent is unanswered.
        Once the key lacks the scope for a channel, its further intents are postponed without a request.
        """
        barred = self._barred.get(intent.channel_id)
        if barred is not None:
            return replace(barred, attempts=0)
        state = DeliveryState(intent, self._events.policy, started=self._clock())
        last_failure = ""
        try:
            met = await self._attempt(state)
            while not state.is_settled(met, self._clock()):
                is_probing = self.circuit.is_probing(intent.entry_id)
                wait_s = state.wait_s(met, state.policy.probing if is_probing else state.policy, self._events.timing.random)
                if state.is_spent(self._clock(), wait_s):
                    break
                await self._rest(state, wait_s)
                met = await self._attempt(state)
            last_failure = in_short(met.answer) if met.kind in FAILURES else ""
        finally:
            self.circuit.leave(intent.entry_id, last_failure)
        return self._verdict(state, met)

    async def channels(self) -> dict[str, int]:
        """Return the ids of all channels available to the key's owner, by slug; errors as `Route.get` names them."""
        return await lists.channels(self._events.sibling("GET /channels", "channels:read"))

    async def classifications(self) -> Classifications:
        """Return the classification list, asked without the key first; errors as `Route.get` names them."""
        # A refusal with the key closes a route, one without it must not.
        return await lists.classifications(*(self._events.sibling("GET /classifications") for _ in range(2)))

    async def contract(self, etag: str = "") -> PageBody | NoPage | None:
        """Return the service's OpenAPI page, asked once, without the key; None where it is still the one of `etag`."""
        return await fetch_page(self._http, etag)

    def events(self) -> EventList:
        """Return the list of the account's events, to be read once; nothing is asked yet."""
        return EventList(self._events.sibling("GET /events"))

    async def probe(self) -> Meaning:
        """Send one event without any field, which the service must refuse (spec, Event), and return what it answers.

        No idempotency key goes along, so that no row's key is used up.
        """
        request = self._http.request("POST", self._events_url, content=b"{}", headers={"content-type": "application/json"})
        answer = await self._http.exchange(request, attempt_s=self._events.policy.attempt_s)
        if isinstance(answer, HttpAnswer):
            return interpret(answer, self.limiter.timing.now())
        return answer or Meaning(AnswerKind.NOT_REACHED, Answer(0, "not_sent"))

    async def _attempt(self, state: DeliveryState) -> Meaning:
        """Send one attempt that counts, once the circuit breaker and the rate limiter let it go."""
        while True:
            cause = await self.circuit.admit(state.intent.entry_id)
            if cause is not None:
                return Meaning(AnswerKind.CLOSED, Answer(0, "not_sent", str(cause)), cause=cause)
            meaning = await self._events.pass_through(partial(self._send, state))
            if meaning.kind is not AnswerKind.CIRCUIT_OPEN:
                return meaning

    async def _send(self, state: DeliveryState, may_leave: MayLeave) -> Meaning | None:
        began = self._clock()
        if state.is_too_late(began):  # after the admission, which may have taken a long pause
            return Meaning(AnswerKind.TOO_LATE, _TOO_LATE)
        if not state.is_recorded:
            await self.record(state.intent)
            state.is_recorded = True
        if not self.circuit.take(state.intent.entry_id):
            return Meaning(AnswerKind.CIRCUIT_OPEN, Answer(0, "not_sent"))
        try:
            meaning = await self._post_event(state.intent, may_leave)
        finally:
            self.circuit.back()
        if meaning is None:
            state.is_recorded = True
            return None
        meaning = self._doubted(state, meaning)
        state.spent_s += self._clock() - began
        state.note(meaning, began)
        key, request_id = state.intent.key, meaning.answer.request_id
        # A failure that is stored under the row's key shows that the service works; a gateway gives all rows the same request id.
        is_own = state.is_repeated and self._keys_of_failures.setdefault(request_id, key) == key
        if meaning.kind in FAILURES and not is_own:
            self.circuit.failed(state.intent.entry_id, state.attempts)
        elif meaning.kind not in _NEUTRAL:
            self.circuit.passed()
        return meaning

    async def _rest(self, state: DeliveryState, wait_s: float) -> None:
        """Wait for the next attempt; aside where a 409 is to be asked about, unless too many rows do so already."""
        state.spent_s += wait_s
        is_used = state.last is not None and state.last.kind in {AnswerKind.KEY_USED, AnswerKind.IN_PROGRESS}
        if not is_used or len(self.asking_later) >= MOST_ASKING_LATER:
            await self._events.timing.sleep(wait_s)
            return
        self.asking_later.add(state.intent.entry_id)
        self.on_asking_later()
        try:
            await self._events.timing.sleep(wait_s)
        finally:
            self.asking_later.discard(state.intent.entry_id)

    def _doubted(self, state: DeliveryState, meaning: Meaning) -> Meaning:
        """Take a stored denial of access, repeated, for a refusal of this row alone.

        And doubt an id that another row was given a moment ago: it is a copy of that row's answer, not the answer to this one.
        """
        if meaning.kind in _ACCESS and state.is_stored_denial(meaning.answer):
            return replace(meaning, kind=AnswerKind.REFUSED)
        if meaning.kind is not AnswerKind.READ:
            return meaning
        if self._keys_of_events.setdefault(meaning.value, state.intent.key) != state.intent.key:
            said = f"the service gave event {meaning.value} to another row a moment ago"
            return Meaning(AnswerKind.UNREADABLE, replace(meaning.answer, message=said))
        if len(self._keys_of_events) > _REMEMBERED:
            del self._keys_of_events[next(iter(self._keys_of_events))]
        return meaning

    def _verdict(self, state: DeliveryState, met: Meaning) -> Verdict:  # noqa: PLR0911  # one arm for each kind of end
        answer, counts, flags = met.answer, (state.attempts, state.copies), (state.is_limited, state.has_left)
        match met.kind:
            case AnswerKind.READ:
                return Receipt(met.value, answer, *counts)
            case AnswerKind.REFUSED:
                is_replay = bool(answer.request_id) and answer.request_id == state.intent.refused_request_id
                return (Superseded if is_replay or answer.status in DENYING else Refusal)(answer, *counts)
            case AnswerKind.REFUSED_BY_PROXY:
                return Refusal(answer, *counts)
            case AnswerKind.NO_ACCESS:
                return Blocked(answer, *counts, *flags)
            case AnswerKind.SCOPE_MISSING:
                missing = self._events.scope_missing(answer, state.intent.channel_id)
                self._barred.setdefault(state.intent.channel_id, Postponed(answer, missing))
                return Postponed(answer, missing, *counts, *flags)
            case AnswerKind.KEY_USED | AnswerKind.IN_PROGRESS:
                # Explain a 409 by our own records; where nothing of ours explains it, a person decides.
                is_bare, was_refused = met.kind is AnswerKind.KEY_USED, bool(state.intent.refused_request_id)
                if not state.may_exist:
                    return (Superseded if was_refused and is_bare else Conflict)(answer, *counts)
                if not is_bare or not state.is_used_up(self._clock()):
                    return Uncertain(answer, *counts)
                # Where the key was refused before, its refusal may still hold the key, and the row may be nowhere.
                return (Conflict if was_refused else Unconfirmed)(answer, *counts)
            case AnswerKind.CLOSED:
                cause = met.cause or unavailable(answer, state.attempts)
                return Postponed(state.last.answer if state.last else answer, cause, *counts, *flags)
            case AnswerKind.TOO_LATE:
                return Uncertain(answer, *counts)
            case _ if self._events.closed is None and state.has_left:
                message = f"{_STORED_FAILURE}: {answer.message}" if state.is_repeated else answer.message
                return Uncertain(replace(answer, message=message), *counts)
            case _:
                cause = self._events.closed or self.circuit.cause or unavailable(answer, state.attempts)
                return Postponed(answer, cause, *counts, *flags)

    async def _post_event(self, intent: Intent, may_leave: MayLeave) -> Meaning | None:
        headers = {"content-type": "application/json", "idempotency-key": intent.key}
        request = self._http.request("POST", self._events_url, content=intent.body, headers=headers)
        meaning = await self._events.ask_once(request, created_id, may_leave)
        if meaning is not None and meaning.kind is AnswerKind.ANOTHER_HOST and meaning.answer.status in REFUSED_BY_PROXY:
            with suppress(SyncError):  # ask for something harmless: a proxy may refuse this row, another host would refuse all
                await self.classifications()
            return self._events.place(meaning)
        return meaning
