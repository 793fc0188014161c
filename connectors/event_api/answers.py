"""Interprets the service's answers by status, headers and body, without side effects.

Unknown fields are ignored, the types of known fields are checked strictly. Nothing here raises an exception because of an
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from connectors.retry import retry_after_s
from mappings.delivery import Answer
from mappings.errors import SyncError

_LONGEST_TEXT = 500
_PASSING = frozenset({408, 425, 460, 499})
"""4xx that a retry may clear: the request took too long or came too early; the last two come from proxies."""
_TURNED_BACK = frozenset({407, 421})
"""4xx from something in front of the service: a proxy that requires a login, or a wrong connection."""
_IN_PROGRESS = re.compile(
    r"in[ _-]?progress|in[ _-]?flight|under ?way|concurrent|(still|being|currently) (being )?(process|execut|handl|run)"
    r"|not (yet )?(been )?(finish|complet)",
    re.IGNORECASE,
)
"""Texts of a 409 whose first request is still being processed; the spec does not show the exact text."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
INDEXES = re.compile(r"\[\d*\]|/\d+(?=/|$)")


class WireModel(BaseModel):
    """The base of the models of answers: unknown fields are ignored, types are strict."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Parse a body, None if it does not fit the model."""
        try:
            return cls.model_validate_json(body.removeprefix(_BYTE_ORDER_MARK))
        except ValidationError:
            return None


Words = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else "")]
"""A text for people; a value of another type becomes "", without invalidating the answer."""


class _Created(WireModel):
    """`{ doc: { id, title } }` of a create call."""

    doc: dict[str, Any]


class _Refusal(WireModel):
    """`{ error: { code, message, requestId, details? } }` (spec, Errors). `code` is required."""

    code: str = Field(validation_alias=AliasPath("error", "code"))
    message: Words = Field("", validation_alias=AliasPath("error", "message"))
    request_id: Words = Field("", validation_alias=AliasPath("error", "requestId"))
    field: Words = Field("", validation_alias=AliasPath("error", "details", "field"))
    issue: Words = Field("", validation_alias=AliasPath("error", "details", "issue"))


class Created(NamedTuple):
    """A created event. `id`: None if the answer does not say it, for the reason in `problem`; `title`: "" if it has none."""

    id: int | None
    title: str
    problem: str = ""


_JSON_TYPES = {str: "a text", bool: "true or false", float: "a fraction", dict: "an object", list: "a list"}
_DIGITS = re.compile(r"[0-9]{1,19}")


def read_created(body: bytes) -> Created | None:
    """Return the event of a create answer, None if the body has no object `doc`.

    An id must be positive and fit into 64 bits; a text of digits is one too.
    """
    created = _Created.read(body)
    if created is None:
        return None
    found, title = created.doc.get("id"), created.doc.get("title")
    if isinstance(found, str) and _DIGITS.fullmatch(found):
        found = int(found)
    shown = title if isinstance(title, str) else ""
    if type(found) is int and 1 <= found < 2**63:
        return Created(found, shown)
    what = "missing" if found is None else _JSON_TYPES.get(type(found), "out of range")
    return Created(None, shown, f"the event was created, but `doc.id` of the answer is {what}")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete HTTP answer. `headers` has lower-case names; `body` is cut at a maximum length, our key masked."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerKind(Enum):
    """The result of one request."""

    READ = auto()
    """2xx with the requested document in `value`; for a creation, the event with its id."""
    WITHOUT_ID = auto()
    """2xx for a creation whose document has no usable id: the event exists."""
    REFUSED = auto()
    """A definitive 4xx in the service's envelope: nothing was created."""
    NO_ACCESS = auto()
    """403 forbidden or 404: the channel is not accessible to this key."""
    SCOPE_MISSING = auto()
    """403 insufficient_scope."""
    KEY_REFUSED = auto()
    """401, with or without the envelope."""
    KEY_USED = auto()
    """A 409 without an explanation: usually the idempotency key (spec, Errors), but possibly anything."""
    IN_PROGRESS = auto()
    """409 while the first request is being processed, by its text or by a time to ask again (`wait_s`)."""
    RATE_LIMITED = auto()
    """429: the route pauses for `wait_s`, or for an estimated time."""
    FAILING = auto()
    """408, 425, 499 or 5xx: another attempt may succeed; this one may have been carried out."""
    UNREADABLE = auto()
    """2xx without the requested document: the request was carried out with an unknown result."""
    REDIRECTED = auto()
    """3xx: never followed. A 303 means that the request was carried out (RFC 9110, 15.4.4); others redirect elsewhere."""
    FOREIGN = auto()
    """A 4xx without the service's envelope, most likely from a proxy."""
    REFUSED_BY_PROXY = auto()
    """A 4xx from a proxy about the request itself; the service has not received it."""
    ANOTHER_HOST = auto()
    """A 4xx without the service's envelope before any recognised answer: most likely another host."""
    NOT_REACHED = auto()
    """No byte was written, or a proxy did not pass the request on: certainly not carried out."""
    UNTRUSTED = auto()
    """The server's certificate is not accepted: not sent, and nothing else will be."""
    LOST = auto()
    """The request was sent and its answer did not arrive completely: it may have been carried out."""
    CLOSED = auto()
    """Not sent: the whole route was stopped by `cause`."""
    CIRCUIT_OPEN = auto()
    """Not sent: the circuit breaker has opened."""
    TOO_LATE = auto()
    """Not sent: the service may have forgotten the key of an earlier attempt that it may have carried out."""


KEY_TAKEN = frozenset({AnswerKind.KEY_USED, AnswerKind.IN_PROGRESS})
"""A 409: an earlier request with the idempotency key was finished, or is being processed."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The interpretation of one answer. `location` of a redirect has no query."""

    kind: AnswerKind
    answer: Answer
    wait_s: float | None = None
    value: Any = None
    location: str = ""
    cause: SyncError | None = None


def interpret(http: HttpAnswer, now: datetime, read: Callable[[bytes], Any] = read_created) -> Meaning:
    """Interpret one answer. `read` converts a 2xx body to a value, None if it is not the requested document. `now` is aware.
    Never raises.
    """
    if 200 <= http.status <= 299:
        value = read(http.body)
        if value is None:
            return Meaning(AnswerKind.UNREADABLE, _foreign_answer(http))
        answer = Answer(status=http.status, request_id=_cut(http.headers.get("x-request-id", "")))
        if isinstance(value, Created) and value.id is None:
            return Meaning(AnswerKind.WITHOUT_ID, replace(answer, message=value.problem), value=value)
        return Meaning(AnswerKind.READ, answer, value=value)
    refusal = _Refusal.read(http.body)
    if refusal is None:
        answer = _foreign_answer(http)
    else:
        request_id = refusal.request_id or http.headers.get("x-request-id", "")
        words = map(_cut, (refusal.code, refusal.message, request_id, refusal.field, refusal.issue))
        answer = Answer(http.status, *words)
    if 300 <= http.status <= 399:
        location = re.split("[?#]", http.headers.get("location", ""), maxsplit=1)[0]
        return Meaning(AnswerKind.REDIRECTED, answer, location=_cut(location))
    wait_s = retry_after_s(http.headers, now)
    return Meaning(_kind(answer, wait_s, is_foreign=refusal is None), answer, wait_s)


def _kind(answer: Answer, wait_s: float | None, *, is_foreign: bool) -> AnswerKind:  # noqa: PLR0911  # the table, one line a status
    match answer.status, answer.code:
        case 401, _:
            return AnswerKind.KEY_REFUSED
        case 409, code:
            is_said = _IN_PROGRESS.search(f"{code} {answer.message} {answer.issue}") is not None
            return AnswerKind.IN_PROGRESS if is_said or wait_s is not None else AnswerKind.KEY_USED
        case 429, _:
            return AnswerKind.RATE_LIMITED
        case status, _ if status in _TURNED_BACK:
            return AnswerKind.NOT_REACHED
        case status, _ if not 400 <= status <= 499 or status in _PASSING:
            return AnswerKind.FAILING
        case _ if is_foreign:
            return AnswerKind.FOREIGN
        case 403, "insufficient_scope":
            return AnswerKind.SCOPE_MISSING
        case ((403 | 404), _):
            return AnswerKind.NO_ACCESS
        case _:
            return AnswerKind.REFUSED


def _foreign_answer(http: HttpAnswer) -> Answer:
    """Describe an answer without the service's envelope: content type, size, first line."""
    kind = http.headers.get("content-type", "no content type").partition(";")[0]
    first = " ".join(http.body[:200].decode("utf-8", "replace").split())[:80]
    said = f"{kind}, {len(http.body)} bytes" + (f", beginning with: {first}" if first else "")
    return Answer(status=http.status, message=_cut(said), request_id=_cut(http.headers.get("x-request-id", "")))


def _cut(text: str) -> str:
    """Cut an untrusted text to a maximum length, and replace characters that terminals or databases cannot take."""
    cut = text[:_LONGEST_TEXT]
    return cut if cut.isprintable() else "".join(one if one.isprintable() else " " if one.isspace() else "\ufffd" for one in cut)


def in_short(answer: Answer) -> str:
    """Return a one-line summary of an answer, with the request id for support."""
    said = " ".join(filter(None, (str(answer.status) if answer.status else "", answer.code)))
    about = f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    quoted = f" (request {answer.request_id})" if answer.request_id else ""
    return (f"{said}: {about}" if about and said else said or about) + quoted


def is_same_place(theirs: str, ours: str) -> bool:
    """Return whether two field paths are the same in different spellings, or one ends with the other."""
    one, other = (".".join(filter(None, re.split(r"[./]", INDEXES.sub("", path)))).casefold() for path in (theirs, ours))
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def words_of(*texts: str) -> set[str]:
    """Return the words of texts in lower case."""
    return set(re.findall(r"\w+", " ".join(texts).casefold()))


_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S = 1e9  # a reset beyond it is a time of day in seconds since 1970, and beyond a thousand times it in milliseconds
_LONGEST_WINDOW_S = 86_400.0
_ROUNDED_S = 1.0  # how far two ways to write one moment may be apart: each is cut or rounded up to whole seconds
_MOMENT_S = 1.0  # a reset of so many seconds may be any moment, rounded up: the even pace bridges it


class RateHint(NamedTuple):
    """A rate limit stated by the service: `limit` requests per `window_s`, which ends in `reset_s`; None for unknown values.

    `rest_s`: how long to wait because the limit is used up; 0.0 if it is not, or renews at once.
    """

    limit: float
    window_s: float | None
    reset_s: float | None
    rest_s: float


def rate_hint(headers: Mapping[str, str], now: datetime) -> RateHint | None:
    """Parse the rate limit in an answer's headers, None if there is none or it is implausible.

    `headers` has lower-case names. Supported are `RateLimit` with `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-08
    and later), its older form of `RateLimit-Limit`, `-Remaining` and `-Reset`, and the same three as `X-RateLimit-...`, whose
    reset may be a time of day. Of several limits the one with the lowest rate is returned. A limit that stays used up longer
    than the answer's `Retry-After` is implausible: `Retry-After` is followed.
    """
    if "ratelimit-policy" in headers or "ratelimit" in headers:
        hint = _structured(headers)
    else:
        prefixes = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
        prefix = next((one for one in prefixes if f"{one}limit" in headers), None)
        hint = _three(headers, prefix, now.timestamp()) if prefix else None
    asked_s = retry_after_s(headers, now) if hint is not None else None
    is_contradicted = hint is not None and asked_s is not None and hint.rest_s > asked_s + _ROUNDED_S
    return None if is_contradicted else hint


def _structured(headers: Mapping[str, str]) -> RateHint | None:
    """Parse `RateLimit-Policy: "default";q=100;w=60` and `RateLimit: "default";r=50;t=30`."""
    policies = [item for item in _items(headers.get("ratelimit-policy", "")) if item[1].get("q") and item[1].get("w")]
    if not policies:
        return None
    name, policy = min(policies, key=lambda item: item[1]["q"] / item[1]["w"])
    left = dict(_items(headers.get("ratelimit", ""))).get(name, {})
    return _sane(policy["q"], left.get("r"), left.get("t"), policy["w"])


def _three(headers: Mapping[str, str], prefix: str, now_s: float) -> RateHint | None:
    """Parse `RateLimit-Limit: 100, 100;w=60` with `-Remaining` and `-Reset`; the part after the first number is optional."""
    limit, remaining, reset = (
        float(text) if _NUMBER.fullmatch(text) else None
        for text in (re.split("[,;]", headers.get(f"{prefix}{name}", ""))[0].strip() for name in ("limit", "remaining", "reset"))
    )
    window = next((one["w"] for _, one in _items(headers[f"{prefix}limit"]) if one.get("w")), None)
    if reset is not None and reset > _EPOCH_S:
        reset = max((reset / 1000 if reset > _EPOCH_S * 1000 else reset) - now_s, 0.0)
    return _sane(limit, remaining, reset, window)


def _items(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return the items of a list with their numeric parameters (RFC 9651, 3.1)."""
    found = []
    for item in text.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((name, {key: float(value) for key, _, value in pairs if _NUMBER.fullmatch(value)}))
    return found


def _sane(limit: float | None, remaining: float | None, reset_s: float | None, window_s: float | None) -> RateHint | None:
    length_s = window_s or reset_s
    if not limit or limit < 1 or not length_s or length_s > _LONGEST_WINDOW_S or (remaining or 0) > limit:
        return None
    reset_s = None if reset_s is None else min(reset_s, _LONGEST_WINDOW_S)
    return RateHint(limit, window_s, reset_s, reset_s if remaining == 0 and reset_s and reset_s > _MOMENT_S else 0.0)
