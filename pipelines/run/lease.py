"""Keep the lease of a feed while a run works: renew it by a heartbeat, and check it before each request leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import Protocol, Self

import structlog

from mappings.errors import SyncError
from state.holders import LeaseLostError
from state.ledger.lease import LEASE_TTL_S

HEARTBEAT_S = LEASE_TTL_S / 6
"""How often the lease is renewed, so that several attempts may fail before it expires."""
FRESH_S = LEASE_TTL_S / 4
"""How long after a renewal a request may leave without another one. A process that was stopped for longer asks first."""
_LAST_BEAT_S = 0.5
"""How long leaving waits for a heartbeat that is under way."""

OnLoss = Callable[[SyncError], None]


class Renewable(Protocol):
    """A lease with its fencing token."""

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    def renew(self) -> None:
        """Extend the lease; raises `LeaseLostError`."""
        ...

    def release(self) -> None:
        """Give the lease up."""
        ...


class LeaseKeeper:
    """One lease, renewed by a thread every `beat_s` seconds for the length of a `with` block, which ends by releasing it.

    `clock_s` must go on while the process is stopped and the machine sleeps. A renewal that fails because the state DB
    is busy is tried again with the next beat; only another run's takeover loses the lease.
    """

    def __init__(self, lease: Renewable, clock_s: Callable[[], float], *, beat_s: float = HEARTBEAT_S) -> None:
        self._lease = lease
        self._clock_s = clock_s
        self._beat_s = beat_s
        self._renewed_at = clock_s()
        self._lost: LeaseLostError | None = None
        self._tell: OnLoss = lambda _lost: None
        self._over = threading.Event()
        self._asking = asyncio.Lock()
        begin = copy_context().run  # what is logged there names the same run and feed
        self._thread = threading.Thread(target=begin, args=(self._beat,), name="eventsync-heartbeat", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token that each transaction shows."""
        return self._lease.token

    def on_loss(self, tell: OnLoss) -> None:
        """Have `tell` called, in the heartbeat's thread, as soon as another run is known to have the feed."""
        self._tell = tell
        if self._lost is not None:
            tell(self._lost)

    async def assure(self) -> None:
        """Return if the lease was renewed a moment ago; after a longer time renew it first.

        Raises:
            LeaseLostError: another run has the feed; nothing may be sent any more.
            SyncError: the state DB cannot be asked, so that nothing may be sent either.
        """
        if self.is_fresh():
            return
        async with self._asking:
            if not self.is_fresh():
                await asyncio.to_thread(self._renew)

    def __enter__(self) -> Self:
        """Start the heartbeat."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the heartbeat and release the lease. One that cannot be released expires, or is taken from a dead process."""
        self._over.set()
        self._thread.join(_LAST_BEAT_S)
        try:
            self._lease.release()
        except SyncError as problem:
            structlog.get_logger().warning("the lease could not be released", problem=str(problem))

    def is_fresh(self) -> bool:
        """Whether the lease was renewed a moment ago."""
        return self._clock_s() - self._renewed_at <= FRESH_S

    def _renew(self) -> None:
        """Renew; the time of the request counts, not that of the answer."""
        if self._lost is not None:
            raise self._lost
        asked_at = self._clock_s()
        self._lease.renew()
        self._renewed_at = asked_at

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self._renew()
            except LeaseLostError as lost:
                self._lose(lost)
                return
            except SyncError as problem:
                structlog.get_logger().warning("the lease could not be renewed; it is tried again", problem=str(problem))

    def _lose(self, lost: LeaseLostError) -> None:
        if not self._over.is_set():
            self._lost = lost
            self._tell(lost)
