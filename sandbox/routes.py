"""The public routes: request bodies, idempotency, injected faults, pagination, and the work of each route."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final, Literal

import orjson
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from sandbox.answers import CREATED, JSON, ApiError, Fault, Reply, faulty_answer, invalid, json_answer
from sandbox.service import RequestContext, Sandbox, read_key
from sandbox.store import CLASSIFICATIONS, StoredAnswer, StoredEvent
from sandbox.switches import Contract
from sandbox.validation import contract_text, read_event

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
        new = read_event(parse_json(body), sandbox.switches, sandbox.store.image_ids)
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
    return contract_text(contract, specified).encode()
