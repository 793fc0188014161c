"""The public routes: request bodies, idempotent work with its faults, pagination, and what each route does."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, NamedTuple, assert_never

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from sandbox.answers import JSON, Answer, ApiError, Fault, faulty_answer, invalid, json_answer
from sandbox.service import NewWork, Replay, RequestContext, Sandbox, Slot, digest_of, read_key, uses_up_key
from sandbox.store import ApiKey, StoredEvent, classifications
from sandbox.switches import Contract
from sandbox.validation import contract_text, read_event


def media_type(request: Request) -> str:
    """Return the body's declared type without parameters, lower case, "" where none is declared."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_media_type(accepted: str) -> ApiError:
    """Return the 415 of a body that is declared as something else than `accepted`."""
    return ApiError(
        "invalid_request", f"Send the body as {accepted}.", status=415, field="Content-Type", issue=f"must be {accepted}"
    )


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """Read a body declared as JSON. Raises ApiError 415 or 413."""
    if media_type(request) != JSON:
        raise wrong_media_type(JSON)
    return await read_body(request, max_bytes)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body. Raises ApiError 413 as soon as it is known to be too large, 415 for a compressed one."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise ApiError(
            "invalid_request", "Send the body uncompressed.", status=415, field="Content-Encoding", issue="is not supported"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = b""
    async for chunk in request.stream():
        body = body + chunk if body else chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return body


def parse_json(body: bytes) -> Any:
    """Parse the body as JSON. Raises ApiError 400."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as unreadable:
        raise invalid("body", f"is not valid JSON: {unreadable}") from unreadable


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        "invalid_request", "The body is too large.", status=413, field="body", issue=f"must not be larger than {max_bytes} bytes"
    )


Work = Callable[[], Answer]


async def answer_once(sandbox: Sandbox, context: RequestContext, body: bytes, work: Work) -> Answer:
    """Return the answer of `work`, done now or stored under the request's key. Raises ApiError 400 or 409 about the key.

    `work` runs in one transaction with the audit line and the stored answer, and never awaits.
    """
    attempt, digest = context.attempt, digest_of(body)
    attempt.digest = digest.hex()
    key = attempt.idempotency_key = read_key(context.request.headers, sandbox.switches)
    fault = sandbox.fault_plan.draw(f"{context.route}:{key or attempt.digest}", sandbox.switches)
    slot = Slot(attempt.key_name, context.route, key) if key else None
    decision = sandbox.idempotency_keys.enter(slot, digest, sandbox.switches, attempt.at)
    try:
        await sandbox.pause(sandbox.switches.latency_ms)
        if fault is not None and fault.kind == "late":
            sandbox.environment.wire.reset(context.request.scope)
            await sandbox.pause(sandbox.switches.fault_hold_ms)
        sent = _commit(sandbox, context, decision, work, fault)
    finally:
        sandbox.idempotency_keys.leave(decision)
    await sandbox.pause(sandbox.switches.answer_delay_ms)
    return sent


def _commit(sandbox: Sandbox, context: RequestContext, decision: NewWork | Replay, work: Work, fault: Fault | None) -> Answer:
    """Return what is sent, after writing all that belongs to it: from here on a kill of the sandbox changes nothing."""
    attempt = context.attempt
    if fault is not None:
        attempt.fault = f"{fault.kind} {fault.moment}"
    with sandbox.store.transaction():
        if fault is None or (fault.kind == "stored_500" and isinstance(decision, Replay)):
            sent = _answer(sandbox, context, decision, work)
        else:
            attempt.outcome = "failed"
            answer = _answer(sandbox, context, decision, work) if fault.moment == "after" else None
            sent = faulty_answer(fault, answer, attempt.request_id, sandbox.switches, sandbox.environment.clock())
            if fault.kind == "stored_500" and isinstance(decision, NewWork):
                sandbox.idempotency_keys.store(decision, sent, attempt.at)
        sandbox.record(attempt, sent)
    return sent


def _answer(sandbox: Sandbox, context: RequestContext, decision: NewWork | Replay, work: Work) -> Answer:
    """Return the stored answer, or do the work and store its answer if it uses up the key."""
    if isinstance(decision, Replay):
        context.attempt.outcome = "replayed"
        return decision.answer
    try:
        answer = work()
        context.attempt.outcome = "created"
    except ApiError as refusal:
        answer = refusal.answer(context.attempt.request_id)
        context.attempt.outcome = "refused"
    if uses_up_key(answer, sandbox.switches):
        sandbox.idempotency_keys.store(decision, answer, context.attempt.at)
    return answer


MAX_LIMIT: Final = 100
"""The effective maximum of `limit` (specification, section Limits)."""
_DEFAULT_LIMIT: Final = 10
_MAX_PAGE: Final = 10**9


class Page(NamedTuple):
    """One page asked for, from 1, of `limit` items."""

    number: int
    limit: int

    @property
    def offset(self) -> int:
        """Return how many items come before it."""
        return (self.number - 1) * self.limit


def read_page(request: Request) -> Page:
    """Return the page that a query asks for, its limit capped. Raises ApiError 400 for anything but whole numbers from 1."""
    number, limit = _whole(request, "page", 1), _whole(request, "limit", _DEFAULT_LIMIT)
    return Page(min(number, _MAX_PAGE), min(limit, MAX_LIMIT))


def full_envelope(docs: list[dict[str, object]], page: Page, total: int) -> dict[str, object]:
    """Return the pagination envelope of the specification (section Resources)."""
    pages = max(1, -(-total // page.limit))
    return {
        "docs": docs,
        "page": page.number,
        "limit": page.limit,
        "totalDocs": total,
        "totalPages": pages,
        "hasNextPage": page.number < pages,
        "hasPrevPage": page.number > 1,
    }


def minimal_envelope(docs: list[dict[str, object]], page: Page, total: int) -> dict[str, object]:
    """Return the envelope of GET /events, from which further pages have to be derived."""
    return {"docs": docs, "totalDocs": total, "limit": page.limit, "page": page.number}


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text) >= 1):
        raise invalid(name, "must be a whole number from 1")
    return int(text)


async def create_event(sandbox: Sandbox, context: RequestContext) -> Answer:
    """Create one event, once under its idempotency key."""
    key = sandbox.admit(context, "events:create")
    body = await read_json_body(context.request, sandbox.switches.max_body_bytes)
    return await answer_once(sandbox, context, body, partial(_create, sandbox, context, key, body))


async def list_events(sandbox: Sandbox, context: RequestContext) -> Answer:
    """List a page of the events in the channels available to the key's owner, in the minimal envelope."""
    key = sandbox.admit(context, sandbox.switches.list_scope)
    page = read_page(context.request)
    channel_ids = [channel.id for channel in sandbox.channels_of(key)]
    newest_first = sandbox.switches.event_order == "newest"
    found = sandbox.store.created(channel_ids, page.offset, page.limit, newest_first=newest_first)
    items = [_item(event, sandbox.switches.event_items) for event in found]
    return json_answer(minimal_envelope(items, page, sandbox.store.count(channel_ids)))


def _item(event: StoredEvent, shows: str) -> dict[str, object]:
    return {"id": event.id} if shows == "id" else event_doc(event, is_full=shows == "full")


def event_doc(event: StoredEvent, *, is_full: bool) -> dict[str, object]:
    """Return an event as the service shows it: `id` and `title`, or the payload with what the service added."""
    if not is_full:
        return {"id": event.id, "title": event.title}
    payload: dict[str, Any] = orjson.loads(event.body)
    created_at = datetime.fromtimestamp(event.created_at, UTC).isoformat(timespec="milliseconds")
    return {**payload, "id": event.id, "status": event.status, "createdAt": created_at}


def _create(sandbox: Sandbox, context: RequestContext, key: ApiKey, body: bytes) -> Answer:
    new = read_event(parse_json(body), sandbox.rules)
    sandbox.channel_for(key, new.channel_id)
    attempt, number = context.attempt, sandbox.store.new_event_id()
    event = StoredEvent(
        id=number,
        channel_id=new.channel_id,
        title=new.title,
        status=new.status,
        starts_at=new.starts_at,
        body=body,
        key_name=key.name,
        idempotency_key=attempt.idempotency_key,
        request_id=attempt.request_id,
        created_at=sandbox.environment.clock(),
    )
    sandbox.store.add_event(event)
    attempt.event_id = number
    return json_answer({"doc": event_doc(event, is_full=sandbox.switches.created_doc == "full")}, sandbox.switches.success_status)


async def list_channels(sandbox: Sandbox, context: RequestContext) -> Answer:
    """List the channels available to the key's owner, in the full envelope."""
    key = sandbox.admit(context, "channels:read")
    page = read_page(context.request)
    available = sandbox.channels_of(key)
    shown = available[page.offset : page.offset + page.limit]
    docs: list[dict[str, object]] = [{"id": one.id, "name": one.name, "slug": one.slug} for one in shown]
    return json_answer(full_envelope(docs, page, len(available)))


async def list_classifications(sandbox: Sandbox, context: RequestContext) -> Answer:
    """List all classifications with their version; what an Authorization header does here is a switch."""
    match sandbox.switches.classifications_auth:
        case "ignored":
            sandbox.count(context)
        case "required":
            sandbox.admit(context, "none")
        case "rejected":
            if "authorization" in context.request.headers:
                raise invalid("Authorization", "must not be sent to this public route")
            sandbox.count(context)
        case _:
            assert_never(sandbox.switches.classifications_auth)
    version, docs = classifications(sandbox.switches.classification_list)
    return json_answer({"version": version, "docs": [asdict(one) for one in docs]})


_MULTIPART: Final = "multipart/form-data"
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


async def upload_image(sandbox: Sandbox, context: RequestContext) -> Answer:
    """Store one image, once under its idempotency key, sent as a form or as raw bytes."""
    key = sandbox.admit(context, sandbox.switches.media_scope)
    is_form = _is_form(sandbox, context)
    body = await read_body(context.request, sandbox.switches.max_image_bytes)
    image = await _image_of_form(sandbox, context, body) if is_form else body
    # The same image is the same request, although a form library draws a new boundary each time.
    return await answer_once(sandbox, context, image, partial(_store_image, sandbox, context, key, image))


def image_type(image: bytes) -> str:
    """Return the media type that the first bytes show: JPEG, PNG, GIF or WebP; "" for anything else."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if image.startswith(signature)), "")


def _is_form(sandbox: Sandbox, context: RequestContext) -> bool:
    declared, accepted = media_type(context.request), sandbox.switches.media_encoding
    if declared == _MULTIPART and accepted != "raw":
        return True
    if declared.startswith("image/") and accepted != "multipart":
        return False
    raise wrong_media_type({"any": f"{_MULTIPART} or image/*", "multipart": _MULTIPART, "raw": "image/*"}[accepted])


async def _image_of_form(sandbox: Sandbox, context: RequestContext, body: bytes) -> bytes:
    wanted, form = sandbox.switches.media_field, await _form(context, body)
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and wanted in {"any", name}:
                return await value.read()
    finally:
        await form.close()
    raise invalid("file" if wanted == "any" else wanted, "is required, as a file")


async def _form(context: RequestContext, body: bytes) -> FormData:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        return await MultiPartParser(context.request.headers, stream()).parse()
    except (MultiPartException, KeyError) as unreadable:
        raise invalid("body", "is not a readable multipart form") from unreadable


def _store_image(sandbox: Sandbox, context: RequestContext, key: ApiKey, image: bytes) -> Answer:
    kind = image_type(image)
    if not kind:
        raise invalid("file", "must be a JPEG, PNG, GIF or WebP image")
    number = sandbox.store.add_image(kind, image, key.name, context.attempt.at)
    return json_answer({"doc": {"id": number, "mimeType": kind, "filesize": len(image)}}, sandbox.switches.success_status)


_HTML = b"<!doctype html><html><title>Developers</title><body>Sign in to read the documentation.</body></html>"


async def describe(sandbox: Sandbox, context: RequestContext) -> Answer:
    """Return the OpenAPI description as YAML, without a key; with `If-None-Match` 304 if it is the same. Raises ApiError 404."""
    match sandbox.switches.contract_page:
        case "yaml":
            return _page(description(sandbox.switches.contract), context.request.headers.get("if-none-match", ""))
        case "html":
            return Answer(200, _HTML, media_type="text/html")
        case "absent":
            raise ApiError("not_found", "There is no description here.")
        case _:
            assert_never(sandbox.switches.contract_page)


@cache
def description(contract: Contract = "as_specified") -> bytes:
    """Return the bytes of the OpenAPI description under a contract."""
    specified = files("sandbox").joinpath("public-api-v1.yaml").read_text("utf-8")
    return contract_text(contract, specified).encode()


def _page(body: bytes, known: str) -> Answer:
    tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
    if known == tag:
        return Answer(304, b"", media_type="application/yaml", headers=(("etag", tag),))
    return Answer(200, body, media_type="application/yaml", headers=(("etag", tag),))
