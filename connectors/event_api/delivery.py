"""The service's client: creates events (one intent to one verdict), and requests the account's lists.

An intent is sent repeatedly within the limits of the policy, as the table of answers in docs/ledger.md says.

The circuit breaker stops sending when the service fails, and then probes it with one row at a time. It counts attempts over all
rows. A **failure** is an attempt with an unknown result: 408, 425, 5xx, a timeout, no or a lost connection, an unreadable
answer. A **success** is any usable answer, including a refusal, a taken key, and a stored failure that the service repeats for
the row's key, which shows that the service works. A 429 is neither. Each worker has its own breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import orjson

from connectors.errors import OutageError
from connectors.event_api import lists
from connectors.event_api.answers import KEY_TAKEN, AnswerKind, Created, HttpAnswer, Meaning, in_short, interpret, read_created
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
"""Stands for the failed rows of an earlier run."""


class CircuitBreaker:
    """The circuit breaker: opens after one more failure than there are slots, without a success between them.

    Closed, it limits requests so that they cannot exceed that number. Open, it admits one request at a time, always for the
    same row (the probe). The first success closes it. If the probe uses up its budget and other rows failed as well, it stays
    open permanently with a `cause`. If only that row failed, the next row becomes the probe.

    `slots`: the number of rows delivered at the same time.
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
        """Start open, after an earlier run that ended in an outage: the first row is the probe."""
        self.is_open = True
        self._rows.add(_EARLIER_RUN)
        self._failing_since = self._clock()

    def is_probing(self, row: int) -> bool:
        """Return whether the row is the probe, after other rows have failed as well."""
        return self.is_open and self._probe == row and len(self._rows) > 1

    async def admit(self, row: int) -> OutageError | None:
        """Wait until a request of the row may be sent; return the cause if sending has stopped."""
        while self.cause is None and not self._may_leave(row):
            await self._change.wait()
        return self.cause

    def take(self, row: int) -> bool:
        """Admit a request of the row now; return whether it may be sent. The caller must then call `back`."""
        if self.cause is not None or not self._may_leave(row):
            return False
        if self.is_open:
            self._probe = row
        self._out += 1
        return True

    def back(self) -> None:
        """Record that a request has been answered or has failed."""
        self._out -= 1
        self._wake()

    def passed(self) -> None:
        """Record a success."""
        if self.cause is None:
            self.is_open, self._probe, self._failures = False, None, 0
            self._rows.clear()
            self._in_hand.clear()
            self._wake()

    def failed(self, row: int, attempts: int) -> None:
        """Record a failure of the row after so many `attempts`. The row with the fewest attempts becomes the probe."""
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
        """Record that the row is finished. `last`: its last failure, if failures have used up its budget."""
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
"""How many answers at least must say that the key is used before we conclude that our earlier attempt will never be confirmed."""
_SAME_FAILURES = 3
"""How many failures with the same request id count as one stored failure that is repeated."""
_SHORTEST_ASK_S = 1.0
"""The least time between requests if the service names a time to ask again, as their number is unlimited, in seconds."""
_LONGEST_ASK_S = 5.0
"""The most time between requests about a used key, in seconds."""
_LONG_AGO_S = 3600.0
"""After this time, in seconds, no request of an earlier run is in flight; its last request may have left after its claim."""
_UNANSWERED = frozenset({AnswerKind.FAILING, AnswerKind.FOREIGN, AnswerKind.LOST, AnswerKind.UNREADABLE, AnswerKind.REDIRECTED})
"""Results after which the event may have been created."""
_CREATED = frozenset({AnswerKind.READ, AnswerKind.WITHOUT_ID})
_UNSETTLED = frozenset(
    {AnswerKind.FOREIGN, AnswerKind.LOST, AnswerKind.NOT_REACHED, AnswerKind.UNREADABLE, AnswerKind.IN_PROGRESS}
)
_NEUTRAL = frozenset(
    {
        *(AnswerKind.RATE_LIMITED, AnswerKind.REDIRECTED, AnswerKind.ANOTHER_HOST, AnswerKind.REFUSED_BY_PROXY),
        AnswerKind.UNTRUSTED,
    }
)
"""Results that the circuit breaker counts neither as failure nor as success."""
_ACCESS = frozenset({AnswerKind.KEY_REFUSED, AnswerKind.SCOPE_MISSING, AnswerKind.NO_ACCESS})


@dataclass(slots=True)
class DeliveryState:
    """The state of one call of `deliver`. Times are seconds on the route's clock."""

    intent: Intent
    policy: RetryPolicy
    started: float
    title: str = ""
    attempts: int = 0
    copies: int = 0
    """How many attempts of this call may have created an event."""
    is_recorded: bool = True
    """Whether the ledger already counts the next attempt: it belongs to the claim, or nothing was created by the previous one."""
    is_limited: bool = False
    """Whether an attempt of this call was answered 429."""
    unanswered_since: float | None = None
    """When the first attempt without an answer began, in this or an earlier run, None if there is none."""
    in_progress_until: float = 0.0
    """Until when an unanswered attempt may still be processed by the service."""
    used_key_answers: int = 0
    in_progress_answers: int = 0
    same_failures: int = 0
    doubted_id: int | None = None
    """The event id of an answer that seemed to be another row's."""
    spent_s: float = 0.0
    """Time counted against the budget: at the service and between attempts, without waits for rate limiter and circuit breaker.
    """
    last: Meaning | None = None

    def __post_init__(self) -> None:
        """Take over what the ledger knows about earlier runs."""
        if self.intent.is_unanswered and not self.intent.is_limited:
            self.unanswered_since = self.started - self.intent.unanswered_s
            is_over = self.intent.quiet_s >= _LONG_AGO_S
            self.in_progress_until = self.started + (0.0 if is_over else self.policy.at_work_s)

    @property
    def may_exist(self) -> bool:
        """Whether the event may already exist. A 429 does not prove that it does not."""
        return self.unanswered_since is not None or self.intent.is_unanswered or self.is_limited

    def is_too_late(self, clock_s: float) -> bool:
        """Return whether the service may have forgotten the key of an attempt that it may have carried out."""
        return self.unanswered_since is not None and clock_s - self.unanswered_since >= self.policy.key_memory_s

    def note(self, meaning: Meaning, began: float) -> None:
        """Record the result of the attempt that began at `began`."""
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
        if meaning.kind in _CREATED or meaning.kind in _UNANSWERED:
            self.copies += 1
            self.is_recorded = False
        if meaning.kind in _UNANSWERED:
            self.unanswered_since = began if self.unanswered_since is None else self.unanswered_since
            self.in_progress_until = max(self.in_progress_until, began + self.policy.at_work_s)

    @property
    def is_repeated(self) -> bool:
        """Whether the service repeats a failure that it stored under the key, so that retrying is useless."""
        return self.same_failures >= _SAME_FAILURES

    def is_used_up(self, clock_s: float) -> bool:
        """Return whether a taken key can no longer be caused by an attempt of ours that is still being processed."""
        return not self.may_exist or (self.used_key_answers >= USED_KEY_ASKS and clock_s >= self.in_progress_until)

    def is_settled(self, met: Meaning, clock_s: float) -> bool:
        """Return whether no further request is needed."""
        if met.kind is AnswerKind.KEY_USED:
            return self.is_used_up(clock_s)
        return self.is_repeated if met.kind is AnswerKind.FAILING else met.kind not in _UNSETTLED

    def is_stored_denial(self, answer: Answer) -> bool:
        """Return whether a denial of access is, or may be, an earlier answer stored under this row's key.

        With the request id of an earlier denial it is that one, and nothing else was ever stored. With another id it may be, or
        access is still missing and the event exists from before our records began; only a person may take that risk.
        """
        denial = self.intent.denial
        return denial is not None and (denial.is_repeated_by(answer) or (denial.is_resent and not self.copies))

    def wait_s(self, met: Meaning, policy: RetryPolicy, random: Random) -> float:
        """Return how long to wait after an inconclusive answer; while the key is taken the intervals grow."""
        backoff_s = policy.wait_s(self.attempts, random)
        if met.kind not in KEY_TAKEN:
            return backoff_s
        if met.wait_s is not None:
            return max(met.wait_s, _SHORTEST_ASK_S)
        asks = self.used_key_answers + self.in_progress_answers
        longest_s = (
            self.policy.longest_wait_s if met.kind is AnswerKind.IN_PROGRESS else min(self.policy.longest_wait_s, _LONGEST_ASK_S)
        )
        return min(max(backoff_s, self.policy.first_wait_s * 2.0 ** min(asks, 60)), longest_s)

    def is_spent(self, clock_s: float, next_wait_s: float) -> bool:
        """Return whether to give up: the attempts, the time or the service's memory of the key would be exceeded.

        Requests about a taken key are not counted; if it is used, they end when our own attempt cannot be in flight any more.
        """
        if self.is_too_late(clock_s + next_wait_s):
            return True
        if self.last is not None and self.last.kind is AnswerKind.KEY_USED and self.may_exist:
            return False
        counted = self.attempts - self.in_progress_answers - self.used_key_answers
        return self.policy.is_spent(counted, self.spent_s, next_wait_s)


MOST_ASKING_LATER = 256
"""How many rows at most may wait outside the slots to ask again about a taken key."""
_REMEMBERED = 4096
"""How many event ids to keep for comparison; far more than there are requests in flight."""
_TOO_LATE = Answer(
    status=0, code="key_memory", message="not sent again: by now the service may have forgotten the key of an unanswered attempt"
)


def _mixed_up(meaning: Meaning, why: str) -> Meaning:
    """Return an answer that belongs to another row as one that cannot be used."""
    return Meaning(AnswerKind.UNREADABLE, replace(meaning.answer, message=why))


_STORED_FAILURE = "the service stored this failure under the row's key and repeats it; the event may exist: a person decides"


def _title_of(body: bytes) -> str:
    return str(orjson.loads(body).get("title", ""))


async def _not_recorded(_intent: Intent) -> None:
    """Record nothing, for callers without a ledger."""


class EventApi:
    """The API client. It uses `http` (see `open_http`), which the caller must close.

    `limiter` spaces the creation of events over all requests in flight; other routes get their own limiters, since limits apply
    per route (spec, Limits). The `circuit` breaker stops creation in an outage. `record` is awaited before each further attempt
    of an intent that may have created an event. `asking_later`: entries that wait to ask again about a taken key and need no
    slot; `on_asking_later` is called when one is added.
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
        self._keys_of_denials: dict[str, IdempotencyKey] = {}
        self._titles: dict[str, None] = {}
        self.surprises: dict[str, None] = {}
        """What answers had that the specification does not know, as sentences."""
        self.uploader = Uploader(self._events.sibling("POST /media"))

    @property
    def stopped(self) -> SyncError | None:
        """Why no event is sent any more (key, redirect, pause, outage), None while the route is open."""
        return self._events.closed or self.circuit.cause

    async def deliver(self, intent: Intent) -> Verdict:
        """Create one event, retrying within the policy, and return the verdict. Never raises because of a row.

        Every request has the same key and body. A cancelled call may have created the event: its intent is unanswered. Once the
        key lacks the scope for a channel, further intents for it are postponed without a request.
        """
        barred = self._barred.get(intent.channel_id)
        if barred is not None:
            return replace(barred, attempts=0)
        state = DeliveryState(intent, self._events.policy, started=self._clock(), title=_title_of(intent.body))
        self._titles[state.title] = None
        if len(self._titles) > _REMEMBERED:
            del self._titles[next(iter(self._titles))]
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
        """Return the ids of all channels available to the key's owner, by slug. Raises as `Route.get` does."""
        return await lists.channels(self._events.sibling("GET /channels", "channels:read"))

    async def classifications(self) -> Classifications:
        """Return the classification list, requested without the key first. Raises as `Route.get` does."""
        # A refusal with the key closes a route, one without it must not.
        return await lists.classifications(*(self._events.sibling("GET /classifications") for _ in range(2)))

    async def contract(self, etag: str = "") -> PageBody | NoPage | None:
        """Request the service's OpenAPI page once, without the key; return None if it is unchanged since `etag`."""
        return await fetch_page(self._http, etag)

    def events(self) -> EventList:
        """Return the list of the account's events, to be read once; this sends no request yet."""
        return EventList(self._events.sibling("GET /events"))

    async def probe(self) -> Meaning:
        """Send an event without fields, which the service must refuse (spec, Event), and return its answer.

        It has no idempotency key, so that no row's key is used up.
        """
        request = self._http.request("POST", self._events_url, content=b"{}", headers={"content-type": "application/json"})
        answer = await self._http.exchange(request, attempt_s=self._events.policy.attempt_s)
        if isinstance(answer, HttpAnswer):
            return interpret(answer, self.limiter.timing.now())
        return answer or Meaning(AnswerKind.NOT_REACHED, Answer(0, "not_sent"))

    async def _attempt(self, state: DeliveryState) -> Meaning:
        """Send one attempt, once the circuit breaker and the rate limiter admit it."""
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
        """Wait for the next attempt. A row whose key is taken waits outside the slots, unless too many rows do already."""
        state.spent_s += wait_s
        is_taken = state.last is not None and state.last.kind in KEY_TAKEN
        if not is_taken or len(self.asking_later) >= MOST_ASKING_LATER:
            await self._events.timing.sleep(wait_s)
            return
        self.asking_later.add(state.intent.entry_id)
        self.on_asking_later()
        try:
            await self._events.timing.sleep(wait_s)
        finally:
            self.asking_later.discard(state.intent.entry_id)

    def _doubted(self, state: DeliveryState, meaning: Meaning) -> Meaning:
        """Reinterpret doubtful answers.

        A stored denial of access becomes a refusal of this row alone. An answer with the title of another row, or with an event
        id that another row was given recently, is that row's, so it becomes unreadable.
        """
        if meaning.kind in _ACCESS:
            request_id, key = meaning.answer.request_id, state.intent.key
            is_own = not request_id or self._keys_of_denials.setdefault(request_id, key) == key
            is_stored = is_own and state.is_stored_denial(meaning.answer)
            return replace(meaning, kind=AnswerKind.REFUSED) if is_stored else meaning
        if meaning.kind is not AnswerKind.READ:
            return meaning
        created: Created = meaning.value
        if created.id is None:
            return meaning
        if created.title != state.title and created.title in self._titles and state.doubted_id != created.id:
            state.doubted_id = created.id
            self._http.renew()
            return _mixed_up(meaning, f"the service answered with the title of another row: {created.title[:80]}")
        if self._keys_of_events.setdefault(created.id, state.intent.key) != state.intent.key:
            return _mixed_up(meaning, f"the service gave event {created.id} to another row a moment ago")
        if len(self._keys_of_events) > _REMEMBERED:
            del self._keys_of_events[next(iter(self._keys_of_events))]
        return meaning

    def _verdict(self, state: DeliveryState, met: Meaning) -> Verdict:  # noqa: PLR0911  # one arm for each kind of end
        answer, facts = met.answer, (state.attempts, state.copies, state.is_limited)
        match met.kind:
            case AnswerKind.READ:
                return Receipt(met.value.id, answer, state.attempts, state.copies)
            case AnswerKind.WITHOUT_ID:
                self.surprises[f"the service's answers have changed: {answer.message}"] = None
                return Unconfirmed(answer, *facts)
            case AnswerKind.REFUSED:
                is_replay = bool(answer.request_id) and answer.request_id == state.intent.refused_request_id
                return (Superseded if is_replay or answer.status in DENYING else Refusal)(answer, *facts)
            case AnswerKind.REFUSED_BY_PROXY:
                return Refusal(answer, *facts)
            case AnswerKind.NO_ACCESS:
                return Blocked(answer, *facts)
            case AnswerKind.SCOPE_MISSING:
                missing = self._events.scope_missing(answer, state.intent.channel_id)
                self._barred.setdefault(state.intent.channel_id, Postponed(answer, missing))
                return Postponed(answer, missing, *facts)
            case kind if kind in KEY_TAKEN:
                return self._explained(state, met)(answer, *facts)
            case AnswerKind.CLOSED:
                cause = met.cause or unavailable(answer, state.attempts)
                return Postponed(state.last.answer if state.last else answer, cause, *facts)
            case AnswerKind.TOO_LATE:
                return Uncertain(answer, *facts)
            case _ if self._events.closed is None and state.copies:
                message = f"{_STORED_FAILURE}: {answer.message}" if state.is_repeated else answer.message
                return Uncertain(replace(answer, message=message), *facts)
            case _:
                cause = self._events.closed or self.circuit.cause or unavailable(answer, state.attempts)
                return Postponed(answer, cause, *facts)

    def _explained(self, state: DeliveryState, met: Meaning) -> type[Superseded | Conflict | Uncertain | Unconfirmed]:
        """Explain a taken key by our own records; where nothing of ours explains it, a person decides."""
        is_bare, was_refused = met.kind is AnswerKind.KEY_USED, bool(state.intent.refused_request_id)
        if not state.may_exist:
            return Superseded if was_refused and is_bare else Conflict
        if not is_bare or not state.is_used_up(self._clock()):
            return Uncertain
        # Where the key was refused before, its refusal may still hold the key, and the row may be nowhere.
        return Conflict if was_refused else Unconfirmed

    async def _post_event(self, intent: Intent, may_leave: MayLeave) -> Meaning | None:
        headers = {"content-type": "application/json", "idempotency-key": intent.key}
        request = self._http.request("POST", self._events_url, content=intent.body, headers=headers)
        meaning = await self._events.ask_once(request, read_created, may_leave)
        if meaning is not None and meaning.kind is AnswerKind.ANOTHER_HOST and meaning.answer.status in REFUSED_BY_PROXY:
            with suppress(SyncError):  # ask for something harmless: a proxy may refuse this row, another host would refuse all
                await self.classifications()
            return self._events.place(meaning)
        return meaning
