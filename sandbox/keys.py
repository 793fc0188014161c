"""API keys: who may knock, whose channels they may use, and what a key that no longer works is told.

A key's secret is kept as a digest and shown by its last four characters; how keys are stored is `store`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sandbox.answers import ApiError

KeyState = Literal["active", "revoked", "disabled", "expired"]
KEY_STATES: Final[tuple[KeyState, ...]] = ("active", "revoked", "disabled", "expired")
STARTING_SCOPES: Final = frozenset({"channels:read", "events:create"})
"""The scopes of a new key (specification, section Authentication)."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as the service knows it. `expires_at`: seconds since the epoch, None for never."""

    name: str
    owner: str
    digest: bytes = field(repr=False)
    last_four: str
    state: KeyState
    scopes: frozenset[str]
    expires_at: float | None = None

    def state_at(self, now: float) -> KeyState:
        """The state at `now`: an active key expires by itself."""
        if self.state == "active" and self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return self.state


def made_key(name: str, owner: str, secret: str, scopes: Iterable[str], state: KeyState = "active") -> ApiKey:
    """A key for `secret`, of which only the digest and the last four characters are kept."""
    return ApiKey(name, owner, digest_of(secret), secret[-4:], state, frozenset(scopes))


def digest_of(secret: str) -> bytes:
    """What is stored of a secret: its SHA-256 digest, 32 bytes."""
    return hashlib.sha256(secret.encode()).digest()


class Keyring:
    """The keys of a sandbox, found by their secret's digest."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._by_name = {key.name: key for key in keys}
        self._by_digest = {key.digest: key for key in self._by_name.values()}

    def bearer(self, header: str | None, now: float) -> ApiKey:
        """The active key of an `Authorization` header. Raises ApiError 401 for every other one."""
        scheme, _, secret = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _unknown("Send the API key as `Authorization: Bearer <API_KEY>`.")
        key = self._by_digest.get(digest_of(secret.strip()))
        if key is None:
            raise _unknown("This API key is not known.")
        state = key.state_at(now)
        if state != "active":
            raise _unknown(f"This API key is {state}.")
        return key

    def named(self, name: str) -> ApiKey | None:
        """The key of that name, if there is one."""
        return self._by_name.get(name)


def in_state(key: ApiKey, state: KeyState) -> ApiKey:
    """The same key in another state; one made active again does not expire."""
    return replace(key, state=state, expires_at=None if state == "active" else key.expires_at)


def _unknown(message: str) -> ApiError:
    return ApiError("invalid_api_key", message)
