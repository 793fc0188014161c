"""One running sandbox: its parts, wired, with the steps that every public request goes through.

What a route then does is its own room's; responses and paths are `app`'s.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
import zoneinfo
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, assert_never

from starlette.requests import Request

from sandbox.answers import Answer, ApiError
from sandbox.faults import Dice, Wire
from sandbox.idempotency import HEADER as KEY_HEADER
from sandbox.idempotency import Memory
from sandbox.limits import Limiter
from sandbox.store import (
    ALL_SCOPES,
    CHANNELS,
    DEFAULT_KEY,
    OWNER,
    ApiKey,
    Attempt,
    Channel,
    Keyring,
    Records,
    Store,
    classifications,
    made_key,
    open_database,
    seed_keys,
    writing,
)
from sandbox.switches import Rate, Switches
from sandbox.validation import Rules

Route = Literal["channels", "classifications", "events", "events_list", "media", "openapi"]
"""The public routes, as limits, idempotency and audit name them; `events` is POST, `events_list` GET."""

_SLUGS: Final = {
    "first": frozenset(one.slug for one in classifications("first")[1]),
    "revised": frozenset(one.slug for one in classifications("revised")[1]),
}


def _request_id() -> str:
    return f"req_{secrets.token_hex(10)}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a sandbox is handed: the time (seconds since the epoch), waiting (seconds), request ids, the connections."""

    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    new_request_id: Callable[[], str] = _request_id
    wire: Wire = field(default_factory=Wire)


@dataclass(slots=True)
class Visit:
    """One public request with its audit line and the headers that tell its limit, both filled in on the way."""

    request: Request
    route: Route
    attempt: Attempt
    hints: tuple[tuple[str, str], ...] = ()


class Sandbox:
    """The parts of one sandbox. `switches` may be replaced while it runs; `api_key` is the default key's secret."""

    def __init__(self, database: sqlite3.Connection, switches: Switches, api_key: str, around: Surroundings) -> None:
        self.switches = switches
        self.api_key = api_key
        self.around = around
        self.database = database
        self.store = Store(database)
        self.records = Records(database)
        self.memory = Memory(self.store)
        self.limiter = Limiter()
        self.dice = Dice()
        self.channels: dict[int, Channel] = {}
        self.keyring = Keyring(())
        self._zones = frozenset(zoneinfo.available_timezones())
        self._plant()

    @property
    def rules(self) -> Rules:
        """What a payload is held against now."""
        return Rules(_SLUGS[self.switches.classification_list], self._zones, self.records.image_ids, self.switches)

    def arrive(self, request: Request, route: Route) -> Visit:
        """The visit of a request that has just come in."""
        attempt = Attempt(self.around.clock(), self.around.new_request_id(), route)
        attempt.idempotency_key = request.headers.get(KEY_HEADER, "")
        return Visit(request, route, attempt)

    def admit(self, visit: Visit, scope: str) -> ApiKey:
        """The caller's key, its request counted; `scope` "none" asks for none. Raises ApiError 401, 403 or 429."""
        key = self.keyring.bearer(visit.request.headers.get("authorization"), visit.attempt.at)
        visit.attempt.key_name = key.name
        if scope != "none" and scope not in key.scopes:
            raise ApiError(self.switches.missing_scope, f"This API key lacks the scope {scope}.")
        self.count(visit)
        return key

    def count(self, visit: Visit) -> None:
        """Counts the request against its route's limit. Raises ApiError 429."""
        attempt, rate = visit.attempt, _rate(visit.route, self.switches)
        visit.hints = self.limiter.admit(attempt.route, attempt.key_name, rate, self.switches, attempt.at)

    def leave(self, visit: Visit, answer: Answer) -> None:
        """Writes the request's audit line, unless that was done with its work."""
        attempt = visit.attempt
        if attempt.outcome == "":
            attempt.outcome = "refused" if answer.code else "answered"
            self.note(attempt, answer)

    def note(self, attempt: Attempt, answer: Answer) -> None:
        """Writes the audit line of a request that was answered so."""
        attempt.status, attempt.code = answer.status, answer.code
        self.records.add_attempt(attempt)

    def channel_for(self, key: ApiKey, channel_id: int) -> Channel:
        """The channel, if the key's owner may use it at this moment. Raises ApiError as the switches say."""
        channel = self.channels.get(channel_id)
        if channel is None:
            field = "channelId" if self.switches.channel_unknown == "invalid_request" else ""
            raise ApiError(
                self.switches.channel_unknown, f"There is no channel {channel_id}.", field=field, issue="no such channel"
            )
        if key.owner not in channel.owners:
            raise ApiError(self.switches.channel_denied, f"The owner of this API key has no access to channel {channel_id}.")
        return channel

    def channels_of(self, key: ApiKey) -> list[Channel]:
        """The channels that the key's owner may use now, by id."""
        return [channel for channel in self.channels.values() if key.owner in channel.owners]

    def look_up(self) -> None:
        """Reads channels, access and API keys anew, after they were changed."""
        self.channels = {channel.id: channel for channel in self.store.channels()}
        self.keyring = Keyring(self.store.api_keys())

    async def pause(self, wait_ms: int) -> None:
        """Waits as a switch asks; 0 is no wait at all."""
        if wait_ms:
            await self.around.sleep(wait_ms / 1000)

    def reset(self) -> None:
        """As freshly made: nothing that callers left, the seed's keys and access. Switches and added keys stay."""
        with writing(self.database):
            self.records.clear()
            self.store.clear_access()
            self._seed()
        self.limiter.reset()
        self.dice.reset()
        self.look_up()

    def close(self) -> None:
        """Closes the database; doing so twice is harmless."""
        self.database.close()

    def _plant(self) -> None:
        """Seeds a fresh database; in an old one only the default key's secret may be another than last time."""
        default = made_key(DEFAULT_KEY, OWNER, self.api_key, ALL_SCOPES)
        known = {key.name: key for key in self.store.api_keys()}
        with writing(self.database):
            if not known:
                self._seed()
            elif known[DEFAULT_KEY].digest != default.digest:
                self.store.put_key(default)
        self.look_up()

    def _seed(self) -> None:
        for channel in CHANNELS:
            self.store.add_channel(channel)
        for key in seed_keys(self.api_key):
            self.store.put_key(key)


def open_sandbox(
    state: Path | None, switches: Switches, api_key: str | None = None, around: Surroundings | None = None
) -> Sandbox:
    """A sandbox on its state folder (None: in memory). Without an `api_key` the default key gets a new secret.

    Raises StateInUseError if another sandbox holds the folder.
    """
    secret = api_key or f"sandbox_{secrets.token_urlsafe(24)}"
    return Sandbox(open_database(state), switches, secret, around or Surroundings())


def _rate(route: Route, switches: Switches) -> Rate | None:
    match route:
        case "events":
            return switches.rate_events
        case "media":
            return switches.rate_media
        case "channels" | "classifications" | "events_list":
            return switches.rate_lists
        case "openapi":
            return None
        case _:
            assert_never(route)
