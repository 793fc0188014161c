"""What one HTTP answer of the service means, as a closed union: a pure reading of status, headers and body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from connectors.event_api.wire import created_id, error_body
from connectors.retry import retry_after_s
from mappings.delivery import Answer

_LONGEST_TEXT = 500
_PASSING = frozenset({408, 425, 460, 499})
"""4xx that say nothing about the request but that it took too long, or came too early; the last two are proxies'."""
_TURNED_BACK = frozenset({407, 421})
"""4xx of what stands before the service: it wants a login of its own, or the connection leads elsewhere."""
_UNDER_WAY = re.compile(
    r"in[ _-]?progress|in[ _-]?flight|under ?way|concurrent|(still|being|currently) (being )?(process|execut|handl|run)"
    r"|not (yet )?(been )?(finish|complet)",
    re.IGNORECASE,
)
"""What a 409 says whose first request is still at work; its exact words are not shown by the spec."""


@dataclass(frozen=True, slots=True)
class Created:
    """2xx with an integer `doc.id`."""

    answer: Answer
    event_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A definitive 4xx in the service's envelope: nothing was created."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NoAccess:
    """403 forbidden or 404: the channel is not accessible to this key."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class ScopeMissing:
    """403 insufficient_scope."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class KeyRefused:
    """401, with or without the envelope."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class KeyUsed:
    """409: usually the idempotency key (spec, Errors). `wait_s` as `Retry-After` asks.

    `is_under_way`: it says so, in its words or by naming a time to ask again; a bare 409 may mean anything.
    """

    answer: Answer
    wait_s: float | None = None
    is_under_way: bool = False


@dataclass(frozen=True, slots=True)
class RateLimited:
    """429: nothing was done; the route pauses for `wait_s`, or for as long as we think fit."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """408, 425, 499 or 5xx: another attempt may clear it; this one may still have been carried out."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """2xx without the document that was asked for: something was done, and we cannot know what."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Redirected:
    """3xx: never followed. `location` as the answer gives it, without its query.

    A 303 answers a request that was carried out (RFC 9110, 15.4.4); the others ask to make it elsewhere.
    """

    answer: Answer
    location: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A 4xx that is not in the service's envelope: a proxy's, or another host's."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NotReached:
    """No connection could be established, or a proxy let nothing through: certainly nothing was done."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Lost:
    """The request left and its answer did not arrive whole: it may have been carried out."""

    answer: Answer


Meaning = (
    Created
    | Refused
    | NoAccess
    | ScopeMissing
    | KeyRefused
    | KeyUsed
    | RateLimited
    | Failing
    | Unreadable
    | Redirected
    | Foreign
    | NotReached
    | Lost
)


def interpret(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Meaning:
    """Read one answer to a create call. `headers` has lower-case names; `now` is aware. Never raises."""
    if not 200 <= status <= 299:
        return interpret_failure(status, headers, body, now)
    event_id = created_id(body)
    if event_id is None:
        return Unreadable(foreign_answer(status, headers, body))
    return Created(Answer(status=status, request_id=_kept(headers.get("x-request-id", ""))), event_id)


def interpret_failure(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Meaning:  # noqa: PLR0911  # the table, one line a status
    """Read one answer outside of 2xx, to any request. `headers` has lower-case names; `now` is aware. Never raises."""
    told = error_body(body)
    answer = _answer(status, headers, body)
    match status:
        case 401:
            return KeyRefused(answer)
        case 409:
            return _key_used(answer, retry_after_s(headers, now))
        case 429:
            return RateLimited(answer, retry_after_s(headers, now))
        case _ if 300 <= status <= 399:
            return Redirected(answer, _kept(re.split("[?#]", headers.get("location", ""), maxsplit=1)[0]))
        case _ if status in _TURNED_BACK:
            return NotReached(answer)
        case _ if not 400 <= status <= 499 or status in _PASSING:
            return Failing(answer, retry_after_s(headers, now))
        case _:
            return Foreign(answer) if told is None else _definitive(answer)


def _key_used(answer: Answer, wait_s: float | None) -> KeyUsed:
    said = f"{answer.code} {answer.message} {answer.issue}"
    return KeyUsed(answer, wait_s, is_under_way=wait_s is not None or _UNDER_WAY.search(said) is not None)


def _definitive(answer: Answer) -> Meaning:
    match answer.status, answer.code:
        case 403, "insufficient_scope":
            return ScopeMissing(answer)
        case ((403 | 404), _):
            return NoAccess(answer)
        case _:
            return Refused(answer)


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    told = error_body(body)
    if told is None:
        return foreign_answer(status, headers, body)
    return Answer(
        status=status,
        code=_kept(told.code),
        message=_kept(told.message),
        request_id=_kept(told.requestId or headers.get("x-request-id", "")),
        field=_kept(told.details.field),
        issue=_kept(told.details.issue),
    )


def foreign_answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Describe for people an answer that is not in the service's words: its type, its size, its first line."""
    kind = headers.get("content-type", "no content type").partition(";")[0]
    first = " ".join(body[:200].decode("utf-8", "replace").split())[:80]
    said = f"{kind}, {len(body)} bytes" + (f", beginning with: {first}" if first else "")
    return Answer(status=status, message=_kept(said), request_id=_kept(headers.get("x-request-id", "")))


def _kept(text: str) -> str:
    """Cut a stranger's text to a sane length; what no terminal should obey and no database takes as text becomes a mark."""
    cut = text[:_LONGEST_TEXT]
    return cut if cut.isprintable() else "".join(one if one.isprintable() else " " if one.isspace() else "\ufffd" for one in cut)


def in_short(answer: Answer) -> str:
    """Say what came back in one line, with the request id that support asks for."""
    said = " ".join(filter(None, (str(answer.status) if answer.status else "", answer.code)))
    about = f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    quoted = f" (request {answer.request_id})" if answer.request_id else ""
    return (f"{said}: {about}" if about and said else said or about) + quoted
