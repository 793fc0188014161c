"""Request bodies as they come in: their declared type, their size, their bytes.

What the bytes mean is the route's.
"""

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

from sandbox.answers import JSON, Answer, ApiError, invalid, said
from sandbox.faults import Fault, spoilt
from sandbox.idempotency import Again, Fresh, Slot, digest_of, read_key
from sandbox.service import Sandbox, Visit
from sandbox.store import ApiKey, StoredEvent, classifications, writing
from sandbox.switches import Contract
from sandbox.validation import described, read_event


def media_type(request: Request) -> str:
    """The body's declared type without parameters, lower case, "" where none is declared."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_media_type(accepted: str) -> ApiError:
    """The 415 of a body that is declared as something else than `accepted`."""
    return ApiError(
        "invalid_request", f"Send the body as {accepted}.", status=415, field="Content-Type", issue=f"must be {accepted}"
    )


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """The bytes of a body declared as JSON. Raises ApiError 415 or 413."""
    if media_type(request) != JSON:
        raise wrong_media_type(JSON)
    return await read_body(request, max_bytes)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body's bytes. Raises ApiError 413 as soon as it is known to be too large, 415 for a compressed one."""
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


def parsed_json(body: bytes) -> Any:
    """The body as JSON. Raises ApiError 400."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as unreadable:
        raise invalid("body", f"is not valid JSON: {unreadable}") from unreadable


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        "invalid_request", "The body is too large.", status=413, field="body", issue=f"must not be larger than {max_bytes} bytes"
    )


Work = Callable[[], Answer]


async def answer_once(sandbox: Sandbox, visit: Visit, body: bytes, work: Work) -> Answer:
    """The answer of `work`, done now or stored under the request's key. Raises ApiError 400 or 409 about the key.

    `work` runs in one transaction with the audit line and the stored answer, and never awaits.
    """
    attempt, digest = visit.attempt, digest_of(body)
    attempt.digest = digest.hex()
    key = attempt.idempotency_key = read_key(visit.request.headers, sandbox.switches)
    fault = sandbox.dice.draw(f"{visit.route}:{key or attempt.digest}", sandbox.switches)
    slot = Slot(attempt.key_name, visit.route, key) if key else None
    decision = sandbox.memory.enter(slot, digest, sandbox.switches, attempt.at)
    try:
        await sandbox.pause(sandbox.switches.latency_ms)
        if fault is not None and fault.kind == "late":
            sandbox.around.wire.reset(visit.request.scope)
            await sandbox.pause(sandbox.switches.fault_hold_ms)
        sent = _settled(sandbox, visit, decision, work, fault)
    finally:
        sandbox.memory.leave(decision)
    await sandbox.pause(sandbox.switches.answer_delay_ms)
    return sent


def _settled(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work, fault: Fault | None) -> Answer:
    """What is sent, with all that it stands for written down: from here on a kill of the sandbox changes nothing."""
    attempt = visit.attempt
    if fault is not None:
        attempt.fault = f"{fault.kind} {fault.moment}"
    with writing(sandbox.database):
        if fault is not None and fault.kind == "stored_500":
            sent = _failed_for_good(sandbox, visit, decision, work, fault)
        elif fault is not None and fault.moment == "before":
            attempt.outcome = "failed"
            sent = _spoilt(sandbox, visit, fault, None)
        else:
            answer = _done(sandbox, visit, decision, work)
            sent = _spoilt(sandbox, visit, fault, answer) if fault else answer
        sandbox.note(attempt, sent)
    return sent


def _failed_for_good(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work, fault: Fault) -> Answer:
    """A failure that is kept under the key, after the work or without it; a key that was used before is told as ever."""
    if isinstance(decision, Again):
        return _done(sandbox, visit, decision, work)
    visit.attempt.outcome = "failed"
    if fault.moment == "after":
        _done(sandbox, visit, decision, work)
    sent = _spoilt(sandbox, visit, fault, None)
    sandbox.memory.keep_failure(decision, sent, visit.attempt.at)
    return sent


def _done(sandbox: Sandbox, visit: Visit, decision: Fresh | Again, work: Work) -> Answer:
    if isinstance(decision, Again):
        visit.attempt.outcome = "replayed"
        return decision.answer
    try:
        answer = work()
        visit.attempt.outcome = "created"
    except ApiError as refusal:
        answer = refusal.answer(visit.attempt.request_id)
        visit.attempt.outcome = "refused"
    sandbox.memory.keep(decision, answer, sandbox.switches, visit.attempt.at)
    return answer


def _spoilt(sandbox: Sandbox, visit: Visit, fault: Fault, answer: Answer | None) -> Answer:
    return spoilt(fault, answer, visit.attempt.request_id, sandbox.switches, sandbox.around.clock())


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
        """How many items come before it."""
        return (self.number - 1) * self.limit


def read_page(request: Request) -> Page:
    """The page that a query asks for, its limit capped. Raises ApiError 400 for anything but whole numbers from 1."""
    number, limit = _whole(request, "page", 1), _whole(request, "limit", _DEFAULT_LIMIT)
    return Page(min(number, _MAX_PAGE), min(limit, MAX_LIMIT))


def full_envelope(docs: list[dict[str, object]], page: Page, total: int) -> dict[str, object]:
    """The pagination envelope of the specification (section Resources)."""
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
    """The envelope of GET /events, from which further pages have to be derived."""
    return {"docs": docs, "totalDocs": total, "limit": page.limit, "page": page.number}


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text) >= 1):
        raise invalid(name, "must be a whole number from 1")
    return int(text)


async def create_event(sandbox: Sandbox, visit: Visit) -> Answer:
    """One event, created once under its idempotency key."""
    key = sandbox.admit(visit, "events:create")
    body = await read_json_body(visit.request, sandbox.switches.max_body_bytes)
    return await answer_once(sandbox, visit, body, partial(_create, sandbox, visit, key, body))


async def list_events(sandbox: Sandbox, visit: Visit) -> Answer:
    """A page of the events in the channels available to the key's owner, in the minimal envelope."""
    key = sandbox.admit(visit, sandbox.switches.list_scope)
    page = read_page(visit.request)
    channel_ids = [channel.id for channel in sandbox.channels_of(key)]
    newest_first = sandbox.switches.event_order == "newest"
    found = sandbox.records.created(channel_ids, page.offset, page.limit, newest_first=newest_first)
    items = [_item(event, sandbox.switches.event_items) for event in found]
    return said(minimal_envelope(items, page, sandbox.records.count(channel_ids)))


def _item(event: StoredEvent, shows: str) -> dict[str, object]:
    return {"id": event.id} if shows == "id" else event_doc(event, is_full=shows == "full")


def event_doc(event: StoredEvent, *, is_full: bool) -> dict[str, object]:
    """An event as the service shows it: `id` and `title`, or the payload with what the service added."""
    if not is_full:
        return {"id": event.id, "title": event.title}
    payload: dict[str, Any] = orjson.loads(event.body)
    created_at = datetime.fromtimestamp(event.created_at, UTC).isoformat(timespec="milliseconds")
    return {**payload, "id": event.id, "status": event.status, "createdAt": created_at}


def _create(sandbox: Sandbox, visit: Visit, key: ApiKey, body: bytes) -> Answer:
    new = read_event(parsed_json(body), sandbox.rules)
    sandbox.channel_for(key, new.channel_id)
    attempt, number = visit.attempt, sandbox.records.new_event_id()
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
        created_at=sandbox.around.clock(),
    )
    sandbox.records.add_event(event)
    attempt.event_id = number
    return said({"doc": event_doc(event, is_full=sandbox.switches.created_doc == "full")}, sandbox.switches.success_status)


async def list_channels(sandbox: Sandbox, visit: Visit) -> Answer:
    """The channels available to the key's owner, in the full envelope."""
    key = sandbox.admit(visit, "channels:read")
    page = read_page(visit.request)
    available = sandbox.channels_of(key)
    shown = available[page.offset : page.offset + page.limit]
    docs: list[dict[str, object]] = [{"id": one.id, "name": one.name, "slug": one.slug} for one in shown]
    return said(full_envelope(docs, page, len(available)))


async def list_classifications(sandbox: Sandbox, visit: Visit) -> Answer:
    """All classifications with their version; what an Authorization header does here is a switch."""
    match sandbox.switches.classifications_auth:
        case "ignored":
            sandbox.count(visit)
        case "required":
            sandbox.admit(visit, "none")
        case "rejected":
            if "authorization" in visit.request.headers:
                raise invalid("Authorization", "must not be sent to this public route")
            sandbox.count(visit)
        case _:
            assert_never(sandbox.switches.classifications_auth)
    version, docs = classifications(sandbox.switches.classification_list)
    return said({"version": version, "docs": [asdict(one) for one in docs]})


_MULTIPART: Final = "multipart/form-data"
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


async def upload_image(sandbox: Sandbox, visit: Visit) -> Answer:
    """One image, kept once under its idempotency key, sent as a form or as it is."""
    key = sandbox.admit(visit, sandbox.switches.media_scope)
    is_form = _is_form(sandbox, visit)
    body = await read_body(visit.request, sandbox.switches.max_image_bytes)
    image = await _image_of_form(sandbox, visit, body) if is_form else body
    # The same image is the same request, whatever boundary a form library drew this time.
    return await answer_once(sandbox, visit, image, partial(_keep, sandbox, visit, key, image))


def image_type(image: bytes) -> str:
    """The media type that the first bytes show: JPEG, PNG, GIF or WebP; "" for anything else."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if image.startswith(signature)), "")


def _is_form(sandbox: Sandbox, visit: Visit) -> bool:
    declared, accepted = media_type(visit.request), sandbox.switches.media_encoding
    if declared == _MULTIPART and accepted != "raw":
        return True
    if declared.startswith("image/") and accepted != "multipart":
        return False
    raise wrong_media_type({"any": f"{_MULTIPART} or image/*", "multipart": _MULTIPART, "raw": "image/*"}[accepted])


async def _image_of_form(sandbox: Sandbox, visit: Visit, body: bytes) -> bytes:
    wanted, form = sandbox.switches.media_field, await _form(visit, body)
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and wanted in {"any", name}:
                return await value.read()
    finally:
        await form.close()
    raise invalid("file" if wanted == "any" else wanted, "is required, as a file")


async def _form(visit: Visit, body: bytes) -> FormData:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        return await MultiPartParser(visit.request.headers, stream()).parse()
    except (MultiPartException, KeyError) as unreadable:
        raise invalid("body", "is not a readable multipart form") from unreadable


def _keep(sandbox: Sandbox, visit: Visit, key: ApiKey, image: bytes) -> Answer:
    kind = image_type(image)
    if not kind:
        raise invalid("file", "must be a JPEG, PNG, GIF or WebP image")
    number = sandbox.records.add_image(kind, image, key.name, visit.attempt.at)
    return said({"doc": {"id": number, "mimeType": kind, "filesize": len(image)}}, sandbox.switches.success_status)


_HTML = b"<!doctype html><html><title>Developers</title><body>Sign in to read the documentation.</body></html>"


async def describe(sandbox: Sandbox, visit: Visit) -> Answer:
    """The OpenAPI description as YAML, for anybody; with `If-None-Match`, only if it is another one. Raises ApiError 404."""
    match sandbox.switches.contract_page:
        case "yaml":
            return _page(description(sandbox.switches.contract), visit.request.headers.get("if-none-match", ""))
        case "html":
            return Answer(200, _HTML, media_type="text/html")
        case "absent":
            raise ApiError("not_found", "There is no description here.")
        case _:
            assert_never(sandbox.switches.contract_page)


@cache
def description(contract: Contract = "as_specified") -> bytes:
    """The bytes of the OpenAPI description under a contract."""
    specified = files("sandbox").joinpath("public-api-v1.yaml").read_text("utf-8")
    return described(contract, specified).encode()


def _page(body: bytes, known: str) -> Answer:
    tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
    if known == tag:
        return Answer(304, b"", media_type="application/yaml", headers=(("etag", tag),))
    return Answer(200, body, media_type="application/yaml", headers=(("etag", tag),))
