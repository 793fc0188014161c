"""What passes between the ledger and the service: an intent to create one event, and the answers it can end in."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from mappings.errors import SyncError
from mappings.outcome import Cover
from mappings.row_key import IdempotencyKey, RowKey


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service said last, kept for people: `status` 0 where no HTTP answer arrived."""

    status: int
    code: str = ""
    message: str = ""
    request_id: str = ""
    field: str = ""
    issue: str = ""


@dataclass(frozen=True, slots=True)
class Denial:
    """An earlier answer under this very key that denied access (401, 403, 404): a service may have stored it.

    It says nothing of what was created under the key before. `is_resent`: a person lets the row go on under its next key,
    should access be denied once more.
    """

    request_id: str
    is_resent: bool = False

    def is_repeated_by(self, answer: Answer) -> bool:
        """Whether an answer is that very one, and so says nothing of today."""
        return answer.status in DENYING and bool(answer.request_id) and answer.request_id == self.request_id


DENYING = frozenset({401, 403, 404})
"""What denies access: to the key, its scope, the channel (spec, Errors). A service may look at that before the row's key."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One event to create: the same `key` and byte-identical `body` on every attempt, in every run.

    `is_unanswered`: an earlier claim may have sent it and never saw the answer; `is_limited`: all that it saw were answers
    429, which prove nothing and start no clock. `unanswered_s`: seconds since the first such attempt began, `quiet_s`: since
    the last such claim was written down, both as the intent was handed out.
    `refused_request_id`: the request id of an earlier definitive refusal under this very key, "" if there was none.
    `denial`: the last one that was received under this key.
    `cover` is set while the image still has to be fetched and its id put into the body.
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

    Of every verdict, `attempts` counts the requests of this call that were not paced away; `copies` those that may have
    created an event, answers 429 aside: a service which ignores the key may have so many more events.
    """

    event_id: int
    answer: Answer
    attempts: int = 1
    copies: int = 1


@dataclass(frozen=True, slots=True)
class _Undelivered:
    """What all other verdicts have in common."""

    answer: Answer
    attempts: int = 1
    copies: int = 0


class Unconfirmed(_Undelivered):
    """The service says that the key was used, and our own record shows an unanswered attempt with this body."""


class Refusal(_Undelivered):
    """A definitive 4xx: nothing was created."""


class Superseded(_Undelivered):
    """What was answered is an earlier refusal, stored under the key (or a 409 for it): the next revision of the key is due."""


class Conflict(_Undelivered):
    """A 409 that our own records do not explain: a person decides."""


@dataclass(frozen=True, slots=True)
class Uncertain(_Undelivered):
    """Transient failures outlasted the budget, or the answer could not be understood. It may have been created."""

    copies: int = 1


@dataclass(frozen=True, slots=True)
class Blocked(_Undelivered):
    """The channel is not accessible to this key (403 forbidden, 404).

    `is_unanswered`: an earlier attempt of this call may have been carried out; the refusal proves nothing about it.
    `is_limited`: nor does it about one that was answered 429.
    """

    is_limited: bool = False
    is_unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Postponed:
    """Nothing about the row itself: the route as a whole stops for `cause`, and the row is still pending.

    Certainly not created by this call, unless `is_unanswered`; most probably not if `is_limited`: an answer 429 came.
    """

    answer: Answer
    cause: SyncError
    attempts: int = 1
    copies: int = 0
    is_limited: bool = False
    is_unanswered: bool = False


Verdict = Receipt | Unconfirmed | Refusal | Superseded | Blocked | Uncertain | Conflict | Postponed
"""What one intent's attempts ended in."""
API_PREFIX = "/api/public/v1"
"""Base URLs are accepted with it and without."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def service_of(base_url: str) -> str:
    """Normalise a base URL: scheme and host in lower case, one name for loopback, no default port, no trailing slash.

    A text that is no URL is returned as it is.
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
    """Join a service and a namespace."""
    return f"{service_of(base_url)}#{namespace}"


def split_destination(destination: str) -> tuple[str, str]:
    """Return the service and the namespace of a destination; all of it is the service where it names no namespace."""
    service, separator, namespace = destination.rpartition("#")
    return (service, namespace) if separator else (destination, "")
