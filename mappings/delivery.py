"""Types between the ledger and the service: an intent to create one event, and the verdicts that it can end in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from mappings.errors import SyncError
from mappings.row_key import IdempotencyKey, RowKey


@dataclass(frozen=True, slots=True)
class Cover:
    """The cover image of an event; it is fetched, checked and uploaded before the event's first attempt."""

    url: str
    on_error: str
    """What to do if the image is unusable: `omit` it, send the event as a `draft` without it, `reject` the row, or `default`
    and, after a space, the address of another image.
    """

    @property
    def stand_in(self) -> str:
        """The address of the image to use instead, "" if there is none."""
        return self.on_error.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Answer:
    """The service's last answer, kept for people; `status` is 0 if no HTTP answer arrived."""

    status: int
    code: str = ""
    message: str = ""
    request_id: str = ""
    field: str = ""
    issue: str = ""


@dataclass(frozen=True, slots=True)
class Denial:
    """An earlier answer with this key that denied access (401, 403, 404); the service may have stored it.

    It does not show whether an earlier attempt created the event. `is_resent`: a person allowed the next key if access is
    denied again.
    """

    request_id: str
    is_resent: bool = False

    def is_repeated_by(self, answer: Answer) -> bool:
        """Return whether an answer is a stored copy of this denial, with the same request id, and so says nothing new."""
        return answer.status in DENYING and bool(answer.request_id) and answer.request_id == self.request_id


DENYING = frozenset({401, 403, 404})
"""Statuses that deny access by key, scope or channel (spec, Errors). The service may check these before the idempotency key."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One event to create. Every attempt in every run sends the same `key` and the same bytes of `body`.

    `is_unanswered`: an earlier claim may have sent it without receiving an answer. `is_limited`: all earlier answers were 429,
    which do not show that the event was created. `unanswered_s`, `quiet_s`: seconds since the first and the last such claim, at
    the time of this claim. `refused_request_id`: the request id of an earlier refusal with this key, "" if none. `denial`: the
    last denial of access with this key. `cover`: an image to upload first, whose id goes into the body.
    """

    entry_id: int
    row_key: RowKey
    key: IdempotencyKey
    body: bytes
    channel_id: int
    is_unanswered: bool = False
    is_limited: bool = False
    refused_request_id: str = ""
    cover: Cover | None = None
    denial: Denial | None = None
    unanswered_s: float = field(default=0.0, compare=False)
    quiet_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Delivered: the service returned `event_id`.

    In every verdict, `attempts` counts the requests of this call that left, and `copies` those that may have created an event
    (without answers 429): a service that ignores keys may have that many events.
    """

    event_id: int
    answer: Answer
    attempts: int = 1
    copies: int = 1


@dataclass(frozen=True, slots=True)
class _Undelivered:
    """The fields that all other verdicts share. `is_limited`: an attempt of this call was answered 429."""

    answer: Answer
    attempts: int = 1
    copies: int = 0
    is_limited: bool = False


class Unconfirmed(_Undelivered):
    """The event exists, and its id is unknown.

    The service says that the key was used, and our records have an unanswered attempt with this body; or it created the event
    and did not say under which id.
    """


class Refusal(_Undelivered):
    """The last attempt was definitively refused with a 4xx. An attempt before it may have created the event."""


class Superseded(_Undelivered):
    """The answer was an earlier refusal or denial stored under the key."""


class Conflict(_Undelivered):
    """A taken key that our records do not explain; a person decides."""


@dataclass(frozen=True, slots=True)
class Uncertain(_Undelivered):
    """No clear answer within the budget of attempts and time. The event may have been created."""

    copies: int = 1


class Blocked(_Undelivered):
    """The key has no access to the channel (403 forbidden, 404)."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """The whole route stopped because of `cause`; the row stays pending."""

    answer: Answer
    cause: SyncError
    attempts: int = 1
    copies: int = 0
    is_limited: bool = False


Verdict = Receipt | Unconfirmed | Refusal | Superseded | Blocked | Uncertain | Conflict | Postponed
"""The result of an intent's attempts."""
API_PREFIX = "/api/public/v1"
"""The path prefix of the API; base URLs may include it or not."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def service_of(base_url: str) -> str:
    """Normalise a base URL: lower-case scheme and host, one name for loopback, no default port, no trailing slash.

    A text that is not a URL is returned unchanged.
    """
    text = base_url.strip().rstrip("/").removesuffix(API_PREFIX).rstrip("/")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return text
    if not parts.scheme or not host:
        return text
    host = "127.0.0.1" if host in _LOOPBACK else host
    host = f"[{host}]" if ":" in host else host
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme.lower()) else f":{port}"
    return f"{parts.scheme.lower()}://{host}{suffix}{parts.path}"


def destination_of(base_url: str, namespace: str) -> str:
    """Return the destination of a service and a namespace."""
    return f"{service_of(base_url)}#{namespace}"


def split_destination(destination: str) -> tuple[str, str]:
    """Split a destination into service and namespace; the namespace is "" if there is none."""
    service, separator, namespace = destination.rpartition("#")
    return (service, namespace) if separator else (destination, "")


Severity = Literal["error", "warning"]
"""error: every payload that was checked would be refused. warning: some of them."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference from the contract: where, what the page says, what we do, what fails as a result, and what to do.

    `fields`: the payload paths that a refusal may name for it (`offers[].url`).
    """

    severity: Severity
    where: str
    page: str
    ours: str
    breaks: str
    helps: str
    fields: tuple[str, ...] = ()

    @property
    def statement(self) -> str:
        """One sentence with what the page says and what we do."""
        return f"{self.where}: the service's page says: {self.page}; {self.ours}"

    def __str__(self) -> str:
        return f"{self.statement}: {self.breaks}; {self.helps}"
