"""The public routes: request bodies, idempotency, injected faults, pagination, the work of each route, the validation of events.

An event's payload is validated field by field in the specification's order. Only the first problem is reported: the error
envelope has room for one.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

import orjson
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from sandbox.answers import CREATED, JSON, ApiError, Fault, Reply, faulty_answer, invalid, json_answer
from sandbox.service import RequestContext, Sandbox, read_key
from sandbox.store import CLASSIFICATIONS, SLUGS, StoredAnswer, StoredEvent
from sandbox.switches import Contract, Switches

_MAX_BODY_BYTES: Final = 256 * 1024
_MAX_IMAGE_BYTES: Final = 10 * 1024 * 1024
_STORED_CODES: Final = frozenset({"", "invalid_request"})
"""The answers that are stored under an idempotency key: a success, or a 400 for the payload."""


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """Read a body that is declared as JSON. Raises ApiError 415 or 413."""
    if _media_type(request) != JSON:
        raise _wrong_media_type(JSON)
    return await read_body(request, max_bytes)


def _media_type(request: Request) -> str:
    """Return the declared type of the body in lower case and without parameters, "" if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _wrong_media_type(accepted: str) -> ApiError:
    message, issue = f"Send the body as {accepted}.", f"must be {accepted}"
    return ApiError("invalid_request", message, status=415, field="Content-Type", issue=issue)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body. Raises ApiError 413 as soon as it is too large, 415 if it is compressed."""
    if request.headers.get("content-encoding", "identity") != "identity":
        message = "Send the body uncompressed."
        raise ApiError("invalid_request", message, status=415, field="Content-Encoding", issue="is not supported")
    issue = f"must not be larger than {max_bytes} bytes"
    too_large = ApiError("invalid_request", "The body is too large.", status=413, field="body", issue=issue)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    body = b""
    async for chunk in request.stream():
        body = body + chunk if body else chunk
        if len(body) > max_bytes:
            raise too_large
    return body


def parse_json(body: bytes) -> Any:
    """Parse the body as JSON. Raises ApiError 400."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as unreadable:
        raise invalid("body", f"is not valid JSON: {unreadable}") from unreadable


async def answer_once(sandbox: Sandbox, context: RequestContext, body: bytes, work: Callable[[], Reply]) -> Reply:
    """Return the answer of `work`, or the answer stored under the request's idempotency key. Raises ApiError 400 or 409 about the
    key.

    `work` runs in one transaction with the audit line and the stored answer, and must not await.
    """
    attempt, digest, switches = context.attempt, blake2b(body, digest_size=16).digest(), sandbox.switches
    attempt.digest = digest.hex()
    key = attempt.idempotency_key = read_key(context.request.headers)
    fault = sandbox.draw_fault(f"{attempt.route}:{key or attempt.digest}")
    slot = (attempt.key_name, attempt.route, key) if key and switches.idempotency != "ignore" else None
    stored = sandbox.stored_answer(slot, digest, attempt.at) if slot else None
    new_slot = slot if stored is None else None

    def answered() -> Reply:
        if stored is not None:
            attempt.outcome = "replayed"
            return stored
        try:
            answer = work()
            attempt.outcome = "created"
        except ApiError as refusal:
            answer = refusal.answer(attempt.request_id)
            attempt.outcome = "refused"
        if new_slot and answer.code in _STORED_CODES:
            sandbox.store.store_answer(new_slot, StoredAnswer(digest, answer, attempt.at))
        return answer

    sandbox.in_progress.add(new_slot)
    try:
        await sandbox.pause(switches.latency_ms)
        if fault is not None and fault.kind == "late":
            sandbox.wire.reset(context.request.scope)
            await sandbox.pause(switches.fault_hold_ms)
        # One transaction for the work, the stored answer and the audit line: a kill leaves all or nothing.
        with sandbox.store.transaction():
            sent = answered() if fault is None else _spoilt(sandbox, context, fault, answered, is_stored=stored is not None)
            if new_slot and fault is not None and fault.kind == "stored_500":
                sandbox.store.store_answer(new_slot, StoredAnswer(digest, sent, attempt.at))
            sandbox.record(attempt, sent)
    finally:
        sandbox.in_progress.discard(new_slot)
    await sandbox.pause(switches.answer_delay_ms)
    return sent


def _spoilt(sandbox: Sandbox, context: RequestContext, fault: Fault, answered: Callable[[], Reply], *, is_stored: bool) -> Reply:
    attempt = context.attempt
    attempt.fault = f"{fault.kind} {fault.moment}"
    if fault.kind == "stored_500" and is_stored:
        return answered()
    attempt.outcome = "failed"
    answer = answered() if fault.moment == "after" else None
    return faulty_answer(fault, answer, attempt.request_id, sandbox.switches, sandbox.environment.clock())


MAX_LIMIT: Final = 100
"""Largest effective `limit` (specification, section Limits)."""
_DEFAULT_LIMIT: Final = 10
_MAX_PAGE: Final = 10**9


def read_page(request: Request) -> tuple[int, int]:
    """Return the query's page, from 1, and its limit, capped. Raises ApiError 400 if one is not a whole number from 1."""
    number, limit = whole_number(request, "page", 1), whole_number(request, "limit", _DEFAULT_LIMIT)
    return min(number, _MAX_PAGE), min(limit, MAX_LIMIT)


def whole_number(request: Request, name: str, default: int, *, least: int = 1) -> int:
    """Return a number of the query, at most 2**62. Raises ApiError 400 for anything else."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least):
        raise invalid(name, f"must be a whole number from {least}")
    return min(int(text), 2**62)


async def create_event(sandbox: Sandbox, context: RequestContext) -> Reply:
    """Create one event, once per idempotency key."""
    key = sandbox.admit(context, "events:create")
    body = await read_json_body(context.request, _MAX_BODY_BYTES)

    def create() -> Reply:
        new = _read_event(parse_json(body), sandbox.switches, sandbox.store.image_ids)
        sandbox.check_channel(key, new.channel_id)
        attempt, number = context.attempt, sandbox.store.new_event_id()
        origin = (key.name, attempt.idempotency_key, attempt.request_id, sandbox.environment.clock())
        event = StoredEvent(number, *new, body, *origin)
        sandbox.store.add_event(event)
        attempt.event_id = number
        return json_answer({"doc": {"id": number, "title": event.title}}, CREATED)

    return await answer_once(sandbox, context, body, create)


async def list_events(sandbox: Sandbox, context: RequestContext) -> Reply:
    """List a page of the events in the channels of the key's owner, in the minimal envelope (no `hasNextPage`)."""
    key = sandbox.admit(context, sandbox.switches.list_scope)
    page, limit = read_page(context.request)
    channel_ids = [channel.id for channel in sandbox.channels_of(key)]
    found = sandbox.store.created(channel_ids, (page - 1) * limit, limit)
    docs = [_event_doc(event, sandbox.switches.event_items) for event in found]
    return json_answer({"docs": docs, "totalDocs": sandbox.store.count(channel_ids), "limit": limit, "page": page})


def _event_doc(event: StoredEvent, shows: Literal["id", "minimal", "full"]) -> dict[str, object]:
    """Return an event as JSON: its `id`, `id` and `title`, or the whole payload with the service's fields."""
    if shows == "id":
        return {"id": event.id}
    if shows == "minimal":
        return {"id": event.id, "title": event.title}
    payload: dict[str, Any] = orjson.loads(event.body)
    created_at = datetime.fromtimestamp(event.created_at, UTC).isoformat(timespec="milliseconds")
    return {**payload, "id": event.id, "status": event.status, "createdAt": created_at}


async def list_channels(sandbox: Sandbox, context: RequestContext) -> Reply:
    """List the channels of the key's owner, in the full envelope (specification, section Resources)."""
    key = sandbox.admit(context, "channels:read")
    page, limit = read_page(context.request)
    available = sandbox.channels_of(key)
    pages = max(1, -(-len(available) // limit))
    shown = available[(page - 1) * limit : page * limit]
    return json_answer(
        {
            "docs": [{"id": one.id, "name": one.name, "slug": one.slug} for one in shown],
            "page": page,
            "limit": limit,
            "totalDocs": len(available),
            "totalPages": pages,
            "hasNextPage": page < pages,
            "hasPrevPage": page > 1,
        }
    )


async def list_classifications(sandbox: Sandbox, _: RequestContext) -> Reply:
    """List all classifications with their version; a key is not needed, and not looked at."""
    return json_answer(CLASSIFICATIONS[sandbox.switches.classification_list])


_MULTIPART: Final = "multipart/form-data"
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


async def upload_image(sandbox: Sandbox, context: RequestContext) -> Reply:
    """Store one image, once per idempotency key, sent as a form or as raw bytes."""
    key = sandbox.admit(context, "media:create")
    declared = _media_type(context.request)
    if declared != _MULTIPART and not declared.startswith("image/"):
        raise _wrong_media_type(f"{_MULTIPART} or image/*")
    body = await read_body(context.request, _MAX_IMAGE_BYTES)
    image = await _image_of_form(context, body) if declared == _MULTIPART else body

    def store_image() -> Reply:
        kind = _image_type(image)
        if not kind:
            raise invalid("file", "must be a JPEG, PNG, GIF or WebP image")
        number = sandbox.store.add_image(kind, image, key.name, context.attempt.at)
        return json_answer({"doc": {"id": number, "mimeType": kind, "filesize": len(image)}}, CREATED)

    # The key's digest is of the image: a form library chooses a new boundary for each request.
    return await answer_once(sandbox, context, image, store_image)


def _image_type(image: bytes) -> str:
    """Return the media type that the first bytes show: JPEG, PNG, GIF or WebP; "" for any other."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if image.startswith(signature)), "")


async def _image_of_form(context: RequestContext, body: bytes) -> bytes:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(context.request.headers, stream()).parse()
    except (MultiPartException, KeyError) as unreadable:
        raise invalid("body", "is not a readable multipart form") from unreadable
    try:
        for value in form.values():
            if isinstance(value, UploadFile):
                return await value.read()
    finally:
        await form.close()
    raise invalid("file", "is required, as a file")


async def describe(sandbox: Sandbox, context: RequestContext) -> Reply:
    """Return the OpenAPI description as YAML, without a key; 304 if `If-None-Match` has its tag."""
    body = _description(sandbox.switches.contract)
    tag = f'"{blake2b(body, digest_size=8).hexdigest()}"'
    is_known = context.request.headers.get("if-none-match", "") == tag
    return Reply(304 if is_known else 200, b"" if is_known else body, media_type="application/yaml", headers=(("etag", tag),))


@cache
def _description(contract: Contract) -> bytes:
    """Return the bytes of the OpenAPI description under a contract."""
    specified = files("sandbox").joinpath("public-api-v1.yaml").read_text("utf-8")
    return _contract_text(contract, specified).encode()


_SHORT_TITLE_CHARS: Final = 40
"""The longest title under the contract `shorter_titles`."""
_REQUIRED: Final = "required: [channelId, title, startAt, timezone, classifications, approxLocation]"
_TITLE: Final = "title: {type: string, minLength: 1}\n        startAt"
_CHANGES: Final[Mapping[Contract, tuple[tuple[str, str], ...]]] = {
    "as_specified": (),
    "new_required_field": (
        (_REQUIRED, _REQUIRED.replace("title", "title, organizer")),
        (_TITLE, "organizer: {type: string, description: Who holds the event.}\n        " + _TITLE),
    ),
    "shorter_titles": ((_TITLE, _TITLE.replace("minLength: 1", f"minLength: 1, maxLength: {_SHORT_TITLE_CHARS}")),),
}


def _contract_text(contract: Contract, specified: str) -> str:
    """Return the OpenAPI description, changed as the contract says."""
    for old, new in _CHANGES[contract]:
        specified = specified.replace(old, new)
    return specified


def _check_contract(event: Mapping[str, Any], switches: Switches) -> None:
    """Raise ApiError 400 for an event that breaks the changed contract."""
    if switches.contract_rules == "as_specified":
        return
    if switches.contract == "new_required_field" and not isinstance(event.get("organizer"), str):
        raise invalid("organizer", "is required")
    if switches.contract == "shorter_titles" and len(str(event.get("title", ""))) > _SHORT_TITLE_CHARS:
        raise invalid("title", f"must not be longer than {_SHORT_TITLE_CHARS} characters")


# ISO 8601 as RFC 3339 profiles it, seconds optional; whether the day exists is left to `fromisoformat`.
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ZONES: Final = frozenset(zoneinfo.available_timezones())
_COUNTRY: Final = re.compile(r"[A-Z]{2}", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s/?#]+\S*")
_MAX_TEXT_CHARS: Final = 5_000
_MAX_OFFERS: Final = 50


class _NewEvent(NamedTuple):
    """The fields of a valid payload that the service stores. `starts_at`: seconds since the epoch."""

    channel_id: int
    title: str
    status: str
    starts_at: float


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the payload at its path. Each method raises ApiError 400 with the path if the value is of another kind."""

    value: Any
    path: str

    def object(self) -> _Value:
        if not isinstance(self.value, dict):
            raise invalid(self.path or "body", "must be an object")
        return self

    def field(self, name: str) -> _Value:
        if name not in self.value:
            raise invalid(self._inside(name), "is required")
        return _Value(self.value[name], self._inside(name))

    def optional(self, name: str) -> list[_Value]:
        """Return the field as a list of one, or an empty list if it is absent."""
        return [self.field(name)] if name in self.value else []

    def _inside(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def items(self) -> list[_Value]:
        self.check(isinstance(self.value, list), "must be an array")
        return [_Value(one, f"{self.path}[{index}]") for index, one in enumerate(self.value)]

    def whole(self) -> int:
        # A bool is an int to Python, not to JSON.
        self.check(isinstance(self.value, int) and not isinstance(self.value, bool), "must be an integer")
        return int(self.value)

    def text(self, longest: int = _MAX_TEXT_CHARS) -> str:
        self.check(isinstance(self.value, str), "must be a string")
        self.check(bool(self.value.strip()), "must not be blank")
        self.check(len(self.value) <= longest, f"must not be longer than {longest} characters")
        return str(self.value)

    def instant(self) -> float:
        self.check(isinstance(self.value, str), "must be a string")
        is_instant = _INSTANT.fullmatch(self.value) is not None
        self.check(is_instant, "must be an ISO 8601 datetime with a UTC offset, such as 2026-05-01T19:30:00+02:00")
        try:
            return datetime.fromisoformat(self.value).timestamp()
        except (ValueError, OverflowError) as impossible:
            raise invalid(self.path, f"is not a date and time that exists: {impossible}") from impossible

    def check(self, is_good: bool, issue: str) -> None:
        if not is_good:
            raise invalid(self.path, issue)


def _read_event(payload: object, switches: Switches, images: Collection[int]) -> _NewEvent:
    """Validate a parsed JSON body; `images`: the ids of uploads. Raises ApiError 400 for the first invalid field."""
    event = _Value(payload, "").object()
    _check_contract(event.value, switches)
    channel_id = event.field("channelId").whole()
    title = event.field("title").text(switches.max_title_chars)
    starts_at = event.field("startAt").instant()
    for end in event.optional("endAt"):
        end.check(end.instant() >= starts_at, "must not be before startAt")
    zone = event.field("timezone")
    zone.check(isinstance(zone.value, str), "must be a string")
    zone.check(zone.value in _ZONES, f"`{zone.value[:60]}` is not an IANA timezone identifier")
    status = "draft"
    for given in event.optional("status"):
        given.check(given.value in ("draft", "published"), "must be `draft` or `published`")
        status = given.value
    slugs = event.field("classifications")
    slugs.check(isinstance(slugs.value, list) and all(isinstance(one, str) for one in slugs.value), "must be an array of strings")
    slugs.check(bool(slugs.value), "must name at least one classification")
    for slug in slugs.value:
        slugs.check(slug in SLUGS[switches.classification_list], f"unknown classification slug `{slug[:60]}`")
    city = event.field("approxLocation").object().field("city").object()
    city.field("placeId").text()
    for name in city.optional("name"):
        name.text()
    for code in city.optional("countryCode"):
        code.check(isinstance(code.value, str) and bool(_COUNTRY.fullmatch(code.value)), "must be two uppercase letters")
    for venue in event.optional("locationName"):
        venue.text()
    for image in event.optional("coverImage"):
        image.check(image.whole() in images, f"no media doc has the id {image.value}")
    for offers in event.optional("offers"):
        items = offers.items()
        offers.check(len(items) <= _MAX_OFFERS, f"must not hold more than {_MAX_OFFERS} offers")
        for offer in items:
            _check_offer(offer)
    return _NewEvent(channel_id, title, status, starts_at)


def _check_offer(offer: _Value) -> None:
    offer.object()
    for name in offer.optional("name"):
        name.text()
    for url in offer.optional("url"):
        url.check(bool(_URL.fullmatch(url.text())), "must be an http or https address")
    for stock in offer.optional("availability"):
        stock.check(stock.text() == "available", "must be `available`")
