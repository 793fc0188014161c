"""The pace that all workers of one key share, kept in the state DB: the bridge between the pacer and its book.

What a pace is and how it is shared is `connectors`'; how it is kept is `state`'s.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime

import structlog

from connectors.rate_limit import OpenSharing
from connectors.rate_limit_state import Sharing
from mappings.errors import SyncError
from pipelines.clock import monotonic_s, now
from pipelines.settings import Settings
from state.database import StateDb
from state.holders import this_process
from state.pace import PaceBook


def sharing_over(engine: StateDb, settings: Settings, now: Callable[[], datetime] = now) -> OpenSharing:
    """Return what opens a route's shared pace, for one worker: one open client of the service. `now` is the time of day."""
    worker, limited = str(this_process(secrets.token_hex(8))), limited_together(settings)
    return lambda route: Sharing(PaceBook(engine, limited, route, worker, now), monotonic_s, _log_once)


def limited_together(settings: Settings) -> str:
    """Name what a limit is counted for, the service and the key: namespaces do not matter to it.

    The key appears as four bytes of a digest salted with the address: enough to tell a few keys apart, far too little to
    find one by.
    """
    service = settings.service_url
    salt = hashlib.blake2b(service.encode(), digest_size=16).digest()
    key = settings.api_key.get_secret_value().encode()
    return f"{service} {hashlib.blake2b(key, digest_size=4, salt=salt).hexdigest()}"


def _log_once(trouble: SyncError) -> None:
    structlog.get_logger().warning("the pace is not shared any more: this run goes on alone", trouble=str(trouble))
