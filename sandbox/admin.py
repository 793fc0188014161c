"""The admin API under `/_sandbox`, for tests and demonstrations: what was sent, and changes at run time.

It answers only this machine, and is no part of the service that the sandbox stands for.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.answers import JSON, ApiError, invalid, json_answer
from sandbox.routes import parse_json, read_json_body
from sandbox.service import Sandbox
from sandbox.store import KEY_STATES, OWNER, STARTING_SCOPES, Channel, StoredEvent, key_in_state, make_key
from sandbox.switches import SwitchError, change_switches, format_switches

PREFIX: Final = "/_sandbox"
_MAX_BYTES: Final = 64 * 1024
_ALL: Final = 2**62

Read = Callable[[Sandbox, Request], Any]
Change = Callable[[Sandbox, Request, dict[str, Any]], Any]


def admin_routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes under `/_sandbox`: GET to read, POST with a JSON object to change."""
    reads: dict[str, Read] = {"": _overview, "/events": _events, "/requests": _requests}
    changes: dict[str, Change] = {
        "/keys": _add_key,
        "/keys/{name}/state": _set_key_state,
        "/channels/access": _set_access,
        "/switches": _set_switches,
        "/reset": _reset,
    }

    def reading(read: Read) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Any:
            return read(sandbox, request)

        return _endpoint(sandbox, respond)

    def changing(change: Change) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Any:
            body = parse_json(await read_json_body(request, _MAX_BYTES))
            if not isinstance(body, dict):
                raise invalid("body", "must be an object")
            return change(sandbox, request, body)

        return _endpoint(sandbox, respond)

    return [
        *(Route(PREFIX + path, reading(read), methods=["GET"]) for path, read in reads.items()),
        *(Route(PREFIX + path, changing(change), methods=["POST"]) for path, change in changes.items()),
    ]


def _endpoint(sandbox: Sandbox, respond: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            _require_loopback(request)
            answer = json_answer(await respond(request))
        except ApiError as refusal:
            answer = refusal.answer(sandbox.environment.new_request_id())
        return Response(answer.body, answer.status, media_type=JSON)

    return endpoint


def _require_loopback(request: Request) -> None:
    """Refuse other machines, and web pages that reach this one under a name of their own (DNS rebinding)."""
    host = request.client.host if request.client else ""
    if not (_is_loopback(host) and _is_loopback(request.url.hostname or "")):
        raise ApiError("not_found", "There is nothing here for other machines.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _overview(sandbox: Sandbox, _: Request) -> dict[str, Any]:
    return {
        "switches": format_switches(sandbox.switches),
        "events": sandbox.store.count(sandbox.channels),
        "images": len(sandbox.store.image_ids),
        "outcomes": sandbox.store.outcomes(),
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
        "events": [_event(event) for event in sandbox.store.after(_number(request, "after", 0), _number(request, "limit", _ALL))]
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
    found = sandbox.store.attempts("" if route == "all" else route, _number(request, "after", 0), _number(request, "limit", _ALL))
    return {"requests": [{"number": number, **asdict(attempt)} for number, attempt in found]}


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) <= _ALL):
        raise invalid(name, "must be a whole number")
    return int(text)


def _add_key(sandbox: Sandbox, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    name, scopes = str(body.get("name", "")), body.get("scopes", sorted(STARTING_SCOPES))
    if not name or not isinstance(scopes, list):
        raise invalid("name" if not name else "scopes", "is required" if not name else "must be an array of strings")
    secret = f"sandbox_{secrets.token_urlsafe(24)}"
    sandbox.store.put_key(make_key(name, str(body.get("owner", OWNER)), secret, map(str, scopes)))
    sandbox.read_access()
    return {"name": name, "secret": secret}


def _set_key_state(sandbox: Sandbox, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    name = request.path_params["name"]
    key = sandbox.keyring.named(name)
    state = next((state for state in KEY_STATES if state == body.get("state")), None)
    if key is None:
        raise ApiError("not_found", f"There is no key called {name}.")
    if state is None:
        raise invalid("state", f"must be one of {', '.join(KEY_STATES)}")
    sandbox.store.put_key(key_in_state(key, state))
    sandbox.read_access()
    return {"name": name, "state": state}


def _set_access(sandbox: Sandbox, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    owner, is_allowed = str(body.get("owner", OWNER)), body.get("allowed")
    channel = next((one for one in sandbox.channels.values() if one.slug == body.get("channel")), None)
    if channel is None:
        raise invalid("channel", f"must be the slug of a channel: {', '.join(one.slug for one in sandbox.channels.values())}")
    if not isinstance(is_allowed, bool):
        raise invalid("allowed", "must be true or false")
    (sandbox.store.give_access if is_allowed else sandbox.store.take_access)(owner, channel.id)
    sandbox.read_access()
    return _channel(sandbox.channels[channel.id])


def _set_switches(sandbox: Sandbox, _: Request, body: dict[str, Any]) -> dict[str, Any]:
    try:
        sandbox.switches = change_switches(body, sandbox.switches)
    except SwitchError as wrong:
        raise invalid("switches", str(wrong)) from wrong
    return {"switches": format_switches(sandbox.switches)}


def _reset(sandbox: Sandbox, _: Request, __: dict[str, Any]) -> dict[str, Any]:
    sandbox.reset()
    return {"reset": True}
