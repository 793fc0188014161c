"""An Event Publishing service as a model: what it creates, what it remembers, what becomes of its answers on their way.

It also keeps what the worker must never do: create a row twice, or use one key for two bodies of which the first may have
been carried out. What the worker promises is `test_delivery_machine`'s.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import httpx
from unit.connectors_api.wired import created, page, told

Idempotency = Literal["replay", "refuse", "ignore"]
WORDS = (
    *("unreachable", "lost_request", "lost_answer", "late", "slow", "500_before", "500_after", "503"),
    *("429", "429_garbage", "429_after", "html", "empty", "without_id", "gateway"),
    *("refused", "refused_page", "denied", "key_denied"),
)
"""What may become of one request, beside being answered as it should."""
_WORK_S = {"late": 95.0, "slow": 20.0}
"""How long the service is at work on a request whose answer nobody waits for: longer than the client does, or not."""


class KilledError(BaseException):
    """The worker's process has ended in this instant. No handler of ours catches it, as none would run."""


@dataclass
class Death:
    """Ends the worker at the `count`-th time that it comes by `point`; from then on nothing it does has an effect."""

    point: str = ""
    count: int = 1
    is_dead: bool = False
    _passed: Counter[str] = field(default_factory=Counter)

    def at(self, point: str) -> None:
        self._passed[point] += 1
        self.is_dead |= point == self.point and self._passed[point] >= self.count
        if self.is_dead:
            raise KilledError


@dataclass(frozen=True, slots=True)
class Character:
    """What this service is like where the specification leaves it open."""

    idempotency: Idempotency
    memory: timedelta
    keeps_refusals: bool
    replays_other_bodies: bool
    names_a_wait: bool
    checks_channel_first: bool = False
    """Access to the channel is looked at before the idempotency key, as access by the API key is everywhere."""
    keeps_denials: Literal["no", "as told", "told anew"] = "no"
    """A denied key or channel is stored under an idempotency key that was not used before, and told again: with its request
    id, or with another one each time."""


@dataclass(frozen=True, slots=True)
class Used:
    """What is remembered of a used key: the body, and the event, the request id of the refusal, or the denial."""

    body: bytes
    event_id: int
    refusal: str
    at: datetime
    denial: httpx.Response | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A request that has arrived and is carried out at `due`, whether or not anybody waits for its answer."""

    key: str
    body: bytes
    due: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """A created event. `is_excused`: the key had been used and was forgotten, which nobody but a ledger could know."""

    id: int
    key: str
    body: bytes
    is_excused: bool


@dataclass
class ModelService:
    """Answers POST /events. `now` is the time of day, on the running loop's clock while there is one."""

    now: Callable[[], datetime]
    character: Character
    words: deque[str] = field(default_factory=deque)
    death: Death = field(default_factory=Death)
    is_key_good: bool = True
    is_channel_open: bool = True
    events: list[Event] = field(default_factory=list)
    used: dict[str, Used] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    """The last body that left under each key."""
    may_exist: set[str] = field(default_factory=set)
    """The keys under which something may have been created, as far as the worker can know."""
    limited: set[str] = field(default_factory=set)
    """The keys of which a request was limited, which does not show that it was not carried out."""
    pinned: set[str] = field(default_factory=set)
    """The limited keys that were not refused since: their body stays."""
    forgotten: set[str] = field(default_factory=set)
    """Keys of events that were forgotten and are denied since: only a ledger could know that the next key doubles the event."""
    lost: set[str] = field(default_factory=set)
    """Keys of events that were created before the ledger was lost or replaced by an older copy."""
    wrongs: list[str] = field(default_factory=list)
    """What the worker must not do and has done."""
    requests: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    """How many requests have left under each key, arrived or not."""
    _under_way: list[Work] = field(default_factory=list)
    _answers: dict[str, httpx.Response] = field(default_factory=dict)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.death.at("send")
        self.requests += 1
        if request.method == "GET":  # after a page of a gateway, whether it stands in front of the service
            return httpx.Response(200, json={"version": "2026-01-01", "docs": []})
        word = self.words.popleft() if self.words else "ok"
        key, body = request.headers["idempotency-key"], request.content
        self.asked[key] += 1
        may_exist = key in self.may_exist
        if word == "unreachable":
            raise httpx.ConnectError("no route to host")
        self._leave(key, body)
        answer = await self._answer(key, body, word)
        self.death.at("answer")
        self._note(key, answer, was_open=may_exist)
        return answer

    def pass_time(self) -> None:
        """Carry out what is due by now."""
        for work in [work for work in self._under_way if work.due <= self.now()]:
            self._under_way.remove(work)
            self._answers[work.key] = self._carry_out(work)

    def forget_bodies(self) -> None:
        """The worker has lost its books: from here on it cannot know what it sent before."""
        self.lost = {event.key for event in self.events}
        self.bodies.clear()
        self.may_exist.clear()
        self.limited.clear()
        self.pinned.clear()

    def _leave(self, key: str, body: bytes) -> None:
        if key in self.may_exist | self.pinned and self.bodies[key] != body:
            self.wrongs.append(f"the key {key} was used for {body!r} after {self.bodies[key]!r}, which may have arrived")
        self.bodies[key] = body
        self.may_exist.add(key)

    def _note(self, key: str, answer: httpx.Response, *, was_open: bool) -> None:
        """An answer is certain about its own request only: an earlier one without an answer stays as uncertain as it was."""
        status = answer.status_code
        if status == 429:
            self.limited.add(key)
            self.pinned.add(key)
        if status in {400, 413}:
            self.pinned.discard(key)
        if not was_open and status in {400, 401, 403, 409, 413, 429}:
            self.may_exist.discard(key)

    def let_go(self, key: str) -> None:
        """A person takes the risk of all requests under this key so far."""
        for keys in (self.may_exist, self.limited, self.pinned):
            keys.discard(key)

    def possible_keys(self) -> set[str]:
        """Return the keys under which there is an event, or may be as far as the worker can know."""
        return self.may_exist | self.limited | {event.key for event in self.events}

    async def _answer(self, key: str, body: bytes, word: str) -> httpx.Response:  # noqa: PLR0911  # a table of words
        match word:
            case "lost_request":
                raise httpx.ReadError("the connection broke")
            case "500_before":
                return self._said(500, "internal_error")
            case "503":
                return self._said(503, "internal_error", headers={"retry-after": "2"})
            case "429":
                return self._said(429, "rate_limited", headers={"retry-after": "1"})
            case "429_garbage":
                return self._said(429, "rate_limited", headers={"retry-after": "soon"})
            case "gateway":
                return page(502)
            case "refused" | "refused_page" | "denied" | "key_denied":
                return self._turned_away(key, word)
            case "429_after" if self.character.idempotency == "ignore":  # copies of such a service cannot be counted
                return self._said(429, "rate_limited", headers={"retry-after": "1"})
            case _:
                return self._spoilt(await self._heard(key, body, word), word)

    def _spoilt(self, answer: httpx.Response, word: str) -> httpx.Response:
        match word:
            case "lost_answer":
                raise httpx.ReadError("the connection broke")
            case "500_after":
                return self._said(500, "internal_error")
            case "html":
                return page(200)
            case "empty":
                return httpx.Response(201)
            case "without_id":
                is_created = answer.status_code == 201
                return httpx.Response(201, json={"doc": {"id": "ev", "title": "An evening"}}) if is_created else answer
            case "429_after":
                return self._said(429, "rate_limited", headers={"retry-after": "1"})
            case _:
                return answer

    async def _heard(self, key: str, body: bytes, word: str) -> httpx.Response:
        """What the service itself says, once it has carried the request out."""
        self.pass_time()
        denial = self._denial(is_late=False)
        if denial is not None:
            return self._kept(denial, key, body)
        if self.character.idempotency != "ignore" and (answer := self._of_used_key(key, body)) is not None:
            return answer
        wait_s = _WORK_S.get(word, 0.02)
        self._under_way.append(Work(key, body, self.now() + timedelta(seconds=wait_s)))
        if word == "slow":
            raise httpx.ReadError("the connection broke")
        await asyncio.sleep(wait_s + 0.01)
        self.pass_time()
        return self._answers[key]

    def _of_used_key(self, key: str, body: bytes) -> httpx.Response | None:
        if any(work.key == key for work in self._under_way):
            headers = {"retry-after": "1"} if self.character.names_a_wait else None
            return self._said(409, "conflict", headers=headers)
        used = self._remembered(key)
        if used is None:
            return None
        if used.denial is not None:
            anew = self._said(used.denial.status_code, used.denial.json()["error"]["code"])
            return used.denial if self.character.keeps_denials == "as told" else anew
        is_other = used.body != body and not self.character.replays_other_bodies
        if self.character.idempotency == "refuse" or is_other:
            return self._said(409, "conflict")
        return created(used.event_id) if used.event_id else _refusal(used.refusal)

    def _remembered(self, key: str) -> Used | None:
        used = self.used.get(key)
        return used if used is not None and self.now() - used.at < self.character.memory else None

    def _carry_out(self, work: Work) -> httpx.Response:
        denial = self._denial(is_late=True)
        if denial is not None:
            return self._kept(denial, work.key, work.body)
        if "bad" in json.loads(work.body)["title"]:
            request_id = f"req_refused_{self.requests}"
            if self.character.keeps_refusals:
                self.used[work.key] = Used(work.body, 0, request_id, self.now())
            return _refusal(request_id)
        event = Event(1000 + len(self.events), work.key, work.body, is_excused=self._was_used(work.key))
        self.events.append(event)
        self.used[work.key] = Used(work.body, event.id, "", self.now())
        return created(event.id)

    def _was_used(self, key: str) -> bool:
        return key in self.used and self.used[key].denial is None

    def _denial(self, *, is_late: bool) -> httpx.Response | None:
        """What denies access now: the API key is looked at first, the channel first or once the work has begun."""
        if not self.is_key_good and not is_late:
            return self._said(401, "invalid_api_key")
        is_asked = is_late or self.character.checks_channel_first
        return self._said(403, "forbidden") if is_asked and not self.is_channel_open else None

    def _kept(self, denial: httpx.Response, key: str, body: bytes) -> httpx.Response:
        """Store a denial, where that is this service's way and nothing is stored under the key."""
        is_kept = self.character.keeps_denials != "no" and self.character.idempotency == "replay"
        if is_kept and self._remembered(key) is None:
            if self._was_used(key):
                self.forgotten.add(key)
            self.used[key] = Used(body, 0, "", self.now(), denial)
        return denial

    def _turned_away(self, key: str, word: str) -> httpx.Response:
        """A gateway answers, whatever the service holds; all its denials have one request id."""
        if key in self.lost:
            self.forgotten.add(key)
        match word:
            case "refused":
                return _refusal(f"req_{self.requests}")
            case "refused_page":
                return page(413)
            case "denied":
                return told(403, "forbidden", request_id="gateway")
            case _:
                return told(401, "invalid_api_key", request_id="gateway")

    def _said(self, status: int, code: str, **more: Any) -> httpx.Response:
        return told(status, code, request_id=f"req_{self.requests}", **more)


def _refusal(request_id: str) -> httpx.Response:
    return told(400, "invalid_request", request_id=request_id, field="title", issue="is not a title")
