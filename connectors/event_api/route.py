"""One route of the service as all of its requests share it: admission, pauses, and its end for everyone.

How the pace is learned is `pacing`'s; what one row's answers add up to is `delivery`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from connectors.admission import Admitted, Closed
from connectors.event_api import complaints
from connectors.event_api.answers import (
    Failing,
    Foreign,
    KeyRefused,
    Lost,
    NotReached,
    RateLimited,
    Redirected,
    ScopeMissing,
    Unreadable,
)
from connectors.event_api.departure import HeldBackError, may_leave
from connectors.event_api.rate_headers import rate_hint
from connectors.pacing import Pacer
from mappings.delivery import Answer
from mappings.errors import SyncError


class Understood(Protocol):
    """Any answer that was read: it keeps what people may want to know of it."""

    @property
    def answer(self) -> Answer: ...  # the class says it


M = TypeVar("M", bound=Understood)

REFUSED_BY_PROXY = frozenset({400, 413, 414, 415, 422, 431})
"""What a proxy in front of the service refuses in its own words, before the service has seen it."""


@dataclass(slots=True)
class Acquaintance:
    """Whether the service has answered in its own words yet: until then, other words mean another host."""

    is_made: bool = False

    def note(self, answer: Answer) -> None:
        """Take note of an answer in the service's own words: an envelope with its code, or what was asked for."""
        self.is_made = self.is_made or (answer.status > 0 and bool(answer.code))


class Route:
    """Lets requests go at the route's pace. `scope` is what the spec wants of the key here, "" where it names none.

    `has_channels`: a missing scope may be missing for one channel only (spec, Authentication 5), and closes nothing.
    """

    def __init__(
        self,
        pacer: Pacer,
        acquaintance: Acquaintance,
        *,
        key_tail: str,
        scope: str,
        has_channels: bool = False,
    ) -> None:
        self.pacer = pacer
        self.acquaintance = acquaintance
        self._key_tail = key_tail
        self._scope = scope
        self._has_channels = has_channels

    @property
    def closed(self) -> SyncError | None:
        """Why no request leaves any more, or None."""
        return self.pacer.closed

    def scope_missing(self, answer: Answer, channel_id: int | None = None) -> SyncError:
        """Return the error in which a missing scope reaches people."""
        return complaints.scope_missing(answer, self._key_tail, self._scope, channel_id)

    def heed(self, headers: Mapping[str, str], now: datetime) -> None:
        """Keep to what the headers of an answer tell of the route's limit, if they do; they have lower-case names."""
        hint = rate_hint(headers, now)
        if hint is not None:
            self.pacer.hinted(hint)

    async def pass_through(self, send: Callable[[], Awaitable[M]]) -> M | Closed:
        """Send when the pace allows, again after each 429, and return the first answer that is no 429.

        An answer that concerns every request (401, mostly a missing scope, a redirect, another host) closes the route.
        """
        await self.pacer.crowd.enter()
        try:
            while True:
                admitted = await self.pacer.admit()
                if isinstance(admitted, Closed):
                    return admitted
                meaning = await self._sent(admitted, send)
                if meaning is not None and not isinstance(meaning, RateLimited):
                    return meaning
        finally:
            self.pacer.crowd.leave()

    async def _sent(self, admitted: Admitted, send: Callable[[], Awaitable[M]]) -> M | None:
        """Send, and return what came back; None where a pause began before anything was written."""
        began, is_well = self.pacer.clock(), None
        self.pacer.crowd.sent()
        looked = may_leave.set(lambda: self.pacer.may_leave(admitted))
        try:
            meaning = await send()
            is_well = not isinstance(meaning, RateLimited | Failing | Lost | NotReached)
        except HeldBackError:
            return None
        finally:
            may_leave.reset(looked)
            if is_well is None:
                self.pacer.crowd.withdraw()
            else:
                self.pacer.crowd.back(self.pacer.clock() - began, is_well=is_well)
        self.acquaintance.note(meaning.answer)
        self._tell_pacer(admitted, meaning)
        return meaning

    def _tell_pacer(self, admitted: Admitted, meaning: Understood) -> None:
        match meaning:
            case RateLimited(_, wait_s):
                self.pacer.limited(admitted, wait_s)
            case Failing(_, wait_s):
                self.pacer.failed()
                if wait_s is not None:
                    self.pacer.limited(admitted, wait_s)
            case NotReached() | Lost() | Unreadable():
                self.pacer.failed()
            case Foreign(answer) if self.acquaintance.is_made and answer.status not in REFUSED_BY_PROXY:
                self.pacer.failed()
            case _:
                self._close_or_pass(meaning)

    def _close_or_pass(self, meaning: Understood) -> None:
        match meaning:
            case Foreign(answer) if not self.acquaintance.is_made:
                self.pacer.close(complaints.not_the_service(answer))
            case KeyRefused(answer):
                self.pacer.close(complaints.key_refused(answer, self._key_tail))
            case ScopeMissing(answer) if not self._has_channels:
                self.pacer.close(self.scope_missing(answer))
            case Redirected(answer, location):
                self.pacer.close(complaints.redirect_refused(answer, location))
            case _:
                self.pacer.passed()
