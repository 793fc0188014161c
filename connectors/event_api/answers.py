"""What one HTTP answer of the service means, as a closed union: a pure reading of status, headers and body.

What to do about it (ask again, stop the route, settle the row) is decided in `delivery`; the table is delivery.md's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from connectors.event_api.wire import created_id, error_body
from mappings.delivery import Answer

_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_FAR_FUTURE_S = 366 * 86_400.0
_LONGEST_TEXT = 500


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
    """409: usually the idempotency key (spec, Errors). `wait_s` as `Retry-After` asks."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class RateLimited:
    """429: nothing was done; the route pauses for `wait_s`, or for as long as we think fit."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """408, 425 or 5xx: another attempt may clear it; this one may still have been carried out."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """2xx without the document that was asked for: something was done, and we cannot tell what."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Redirected:
    """3xx: never followed. `location` as the answer gives it, without its query."""

    answer: Answer
    location: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A 4xx that is not in the service's envelope: a proxy's, or another host's."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NotReached:
    """No connection could be established: certainly nothing was done."""

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
    return Created(Answer(status=status, request_id=headers.get("x-request-id", "")), event_id)


def interpret_failure(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Meaning:
    """Read one answer outside of 2xx, to whatever request. `headers` has lower-case names; `now` is aware. Never raises."""
    told = error_body(body)
    answer = _answer(status, headers, body)
    match status:
        case 401:
            return KeyRefused(answer)
        case 409:
            return KeyUsed(answer, retry_after_s(headers, now))
        case 429:
            return RateLimited(answer, retry_after_s(headers, now))
        case _ if 300 <= status <= 399:
            return Redirected(answer, headers.get("location", "").partition("?")[0])
        case _ if not 400 <= status <= 499 or status in {408, 425}:
            return Failing(answer, retry_after_s(headers, now))
        case _:
            return Foreign(answer) if told is None else _definitive(answer)


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
        code=told.code[:_LONGEST_TEXT],
        message=told.message[:_LONGEST_TEXT],
        request_id=(told.requestId or headers.get("x-request-id", ""))[:_LONGEST_TEXT],
        field=told.details.field[:_LONGEST_TEXT],
        issue=told.details.issue[:_LONGEST_TEXT],
    )


def foreign_answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Describe for people an answer that is not in the service's words: its type, its size, its first line."""
    kind = headers.get("content-type", "no content type").partition(";")[0]
    first = " ".join(body[:200].decode("utf-8", "replace").split())[:80]
    said = f"{kind}, {len(body)} bytes" + (f", beginning with: {first}" if first else "")
    return Answer(status=status, message=said, request_id=headers.get("x-request-id", "")[:_LONGEST_TEXT])


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that `Retry-After` asks for, None where it is absent, negative or garbage.

    Seconds may have a fraction; an HTTP date (RFC 9110, 10.2.3) is measured from the answer's own `Date`, so that a
    clock that is wrong, theirs or ours, does not matter. Absurd values are cut to a year, which nobody waits for.
    """
    told = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(told):
        return min(float(told), _FAR_FUTURE_S)
    until = _http_date(told)
    if until is None:
        return None
    since = _http_date(headers.get("date", "")) or now
    return min(max((until - since).total_seconds(), 0.0), _FAR_FUTURE_S)


def _http_date(text: str) -> datetime | None:
    try:
        told = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return told if told.tzinfo is not None else told.replace(tzinfo=UTC)
