"""POST /events and GET /events: events as they are created and listed.

Whether a payload is good is `validation`'s; that it is created once is `once`'s.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from sandbox.answers import Answer, said
from sandbox.bodies import parsed_json, read_json_body
from sandbox.keys import ApiKey
from sandbox.once import answer_once
from sandbox.paging import minimal_envelope, read_page
from sandbox.records import StoredEvent
from sandbox.service import Sandbox, Visit
from sandbox.validation import read_event


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
