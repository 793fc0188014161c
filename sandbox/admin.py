"""The door for tests and demonstrations, outside of the public prefix: what was sent, and changes while it runs.

It answers this machine alone; nothing of it belongs to the service that the sandbox stands for.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Door

from sandbox.answers import JSON, Answer, ApiError, invalid, said
from sandbox.routes import parsed_json, read_json_body
from sandbox.service import Sandbox
from sandbox.store import KEY_STATES, OWNER, STARTING_SCOPES, Channel, StoredEvent, in_state, made_key
from sandbox.switches import SwitchError, changed, spelt

PREFIX: Final = "/_sandbox"
_MAX_BYTES: Final = 64 * 1024
_ALL: Final = 2**62

Look = Callable[[Sandbox, Request], Any]
Change = Callable[[Sandbox, Request, dict[str, Any]], Any]


def admin_doors(sandbox: Sandbox) -> list[Door]:
    """The routes under `/_sandbox`: GET to look, POST with a JSON object to change."""
    looks: dict[str, Look] = {"": _overview, "/events": _events, "/requests": _requests}
    changes: dict[str, Change] = {
        "/keys": _add_key,
        "/keys/{name}/state": _set_key_state,
        "/channels/access": _set_access,
        "/switches": _set_switches,
        "/reset": _reset,
    }
    return [
        *(Door(PREFIX + path, _looking(sandbox, look), methods=["GET"]) for path, look in looks.items()),
        *(Door(PREFIX + path, _changing(sandbox, change), methods=["POST"]) for path, change in changes.items()),
    ]


def _looking(sandbox: Sandbox, look: Look) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            _only_here(request)
            return _response(said(look(sandbox, request)))
        except ApiError as refusal:
            return _response(refusal.answer(sandbox.around.new_request_id()))

    return endpoint


def _changing(sandbox: Sandbox, change: Change) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            _only_here(request)
            return _response(said(change(sandbox, request, await _wishes(request))))
        except ApiError as refusal:
            return _response(refusal.answer(sandbox.around.new_request_id()))

    return endpoint


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type=JSON)


def _only_here(request: Request) -> None:
    """Refuses other machines, and web pages that reach this one under a name of their own (DNS rebinding)."""
    host = request.client.host if request.client else ""
    if not (_is_loopback(host) and _is_loopback(request.url.hostname or "")):
        raise ApiError("not_found", "There is nothing here for other machines.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _wishes(request: Request) -> dict[str, Any]:
    body = await read_json_body(request, _MAX_BYTES)
    wishes = parsed_json(body)
    if not isinstance(wishes, dict):
        raise invalid("body", "must be an object")
    return wishes


def _overview(sandbox: Sandbox, _: Request) -> dict[str, Any]:
    return {
        "switches": spelt(sandbox.switches),
        "events": sandbox.records.count(sandbox.channels),
        "images": len(sandbox.records.image_ids),
        "outcomes": sandbox.records.outcomes(),
        "keys": [
            {"name": key.name, "owner": key.owner, "state": key.state, "scopes": sorted(key.scopes), "lastFour": key.last_four}
            for key in sandbox.store.api_keys()
        ],
        "channels": [_channel(channel) for channel in sandbox.channels.values()],
    }


def _channel(channel: Channel) -> dict[str, Any]:
    return {"id": channel.id, "slug": channel.slug, "name": channel.name, "owners": sorted(channel.owners)}


def _events(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    return {
        "events": [
            _event(event) for event in sandbox.records.after(_number(request, "after", 0), _number(request, "limit", _ALL))
        ]
    }


def _event(event: StoredEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "channelId": event.channel_id,
        "title": event.title,
        "status": event.status,
        "payload": orjson.Fragment(event.body),
        "apiKey": event.key_name,
        "idempotencyKey": event.idempotency_key,
        "requestId": event.request_id,
        "createdAt": event.created_at,
    }


def _requests(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    route = request.query_params.get("route", "events")
    found = sandbox.records.attempts(
        "" if route == "all" else route, _number(request, "after", 0), _number(request, "limit", _ALL)
    )
    return {"requests": [{"number": number, **asdict(attempt)} for number, attempt in found]}


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) <= _ALL):
        raise invalid(name, "must be a whole number")
    return int(text)


def _add_key(sandbox: Sandbox, _: Request, wishes: dict[str, Any]) -> dict[str, Any]:
    name, scopes = str(wishes.get("name", "")), wishes.get("scopes", sorted(STARTING_SCOPES))
    if not name or not isinstance(scopes, list):
        raise invalid("name" if not name else "scopes", "is required" if not name else "must be an array of strings")
    secret = f"sandbox_{secrets.token_urlsafe(24)}"
    sandbox.store.put_key(made_key(name, str(wishes.get("owner", OWNER)), secret, map(str, scopes)))
    sandbox.look_up()
    return {"name": name, "secret": secret}


def _set_key_state(sandbox: Sandbox, request: Request, wishes: dict[str, Any]) -> dict[str, Any]:
    name = request.path_params["name"]
    key = sandbox.keyring.named(name)
    state = next((state for state in KEY_STATES if state == wishes.get("state")), None)
    if key is None:
        raise ApiError("not_found", f"There is no key called {name}.")
    if state is None:
        raise invalid("state", f"must be one of {', '.join(KEY_STATES)}")
    sandbox.store.put_key(in_state(key, state))
    sandbox.look_up()
    return {"name": name, "state": state}


def _set_access(sandbox: Sandbox, _: Request, wishes: dict[str, Any]) -> dict[str, Any]:
    owner, is_allowed = str(wishes.get("owner", OWNER)), wishes.get("allowed")
    channel = next((one for one in sandbox.channels.values() if one.slug == wishes.get("channel")), None)
    if channel is None:
        raise invalid("channel", f"must be the slug of a channel: {', '.join(one.slug for one in sandbox.channels.values())}")
    if not isinstance(is_allowed, bool):
        raise invalid("allowed", "must be true or false")
    (sandbox.store.give_access if is_allowed else sandbox.store.take_access)(owner, channel.id)
    sandbox.look_up()
    return _channel(sandbox.channels[channel.id])


def _set_switches(sandbox: Sandbox, _: Request, wishes: dict[str, Any]) -> dict[str, Any]:
    try:
        sandbox.switches = changed(wishes, sandbox.switches)
    except SwitchError as wrong:
        raise invalid("switches", str(wrong)) from wrong
    return {"switches": spelt(sandbox.switches)}


def _reset(sandbox: Sandbox, _: Request, __: dict[str, Any]) -> dict[str, Any]:
    sandbox.reset()
    return {"reset": True}
