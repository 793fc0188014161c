"""HTML pages for visitors, the admin API under `/_sandbox` for tests and demonstrations, and a guard in front of all routes.

The admin API answers only this machine, and does not exist in the real service. The guard stops requests that web pages of other
sites send here (cross-site request forgery, DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final
from zoneinfo import ZoneInfo

import orjson
from jinja2 import Environment, Template
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.answers import JSON, ApiError, invalid, json_answer
from sandbox.routes import parse_json, read_json_body, whole_number
from sandbox.service import Sandbox
from sandbox.store import CLASSIFICATIONS, KEY_STATES, OWNER, STARTING_SCOPES, Channel, StoredEvent, make_key
from sandbox.switches import SwitchError, change_switches, format_switches

PREFIX: Final = "/_sandbox"
_MAX_BYTES: Final = 64 * 1024
_ALL: Final = 2**62
Body = dict[str, Any]
Handler = Callable[[Sandbox, Request, Body], Any]


def admin_routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes under `/_sandbox`: GET reads, POST with a JSON object changes."""

    def route(method: str, path: str, handle: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                _require_loopback(request)
                body = parse_json(await read_json_body(request, _MAX_BYTES)) if method == "POST" else {}
                if not isinstance(body, dict):
                    raise invalid("body", "must be an object")
                answer = json_answer(handle(sandbox, request, body))
            except ApiError as refusal:
                answer = refusal.answer()
            return Response(answer.body, answer.status, media_type=JSON)

        return Route(PREFIX + path, endpoint, methods=[method])

    return [
        route("GET", "", _overview),
        route("GET", "/events", _events),
        route("GET", "/requests", _requests),
        route("POST", "/keys", _add_key),
        route("POST", "/keys/{name}/state", _set_key_state),
        route("POST", "/channels/access", _set_access),
        route("POST", "/switches", _set_switches),
        route("POST", "/reset", _reset),
    ]


def _require_loopback(request: Request) -> None:
    """Refuse other machines."""
    if not is_loopback(request.client.host if request.client else ""):
        raise ApiError("not_found", "The admin API is available on this machine only.")


def _overview(sandbox: Sandbox, _: Request, __: Body) -> Body:
    return {
        "switches": format_switches(sandbox.switches),
        "events": sandbox.store.count(sandbox.channels),
        "images": len(sandbox.store.image_ids),
        "outcomes": sandbox.store.outcomes(),
        "keys": [
            {"name": key.name, "owner": key.owner, "state": key.state, "scopes": sorted(key.scopes), "lastFour": key.last_four}
            for key in sandbox.keys.values()
        ],
        "channels": [_channel_doc(channel) for channel in sandbox.channels.values()],
    }


def _channel_doc(channel: Channel) -> Body:
    return {"id": channel.id, "slug": channel.slug, "name": channel.name, "owners": sorted(channel.owners)}


def _events(sandbox: Sandbox, request: Request, _: Body) -> Body:
    return {"events": [_event_doc(event) for event in sandbox.store.after(*_piece(request))]}


def _event_doc(event: StoredEvent) -> Body:
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


def _requests(sandbox: Sandbox, request: Request, _: Body) -> Body:
    route = request.query_params.get("route", "events")
    found = sandbox.store.attempts("" if route == "all" else route, *_piece(request))
    return {"requests": [{"number": number, **asdict(attempt)} for number, attempt in found]}


def _piece(request: Request) -> tuple[int, int]:
    """Return the query's `after` (a number to start after) and `limit`."""
    return whole_number(request, "after", 0, least=0), whole_number(request, "limit", _ALL, least=0)


def _add_key(sandbox: Sandbox, _: Request, body: Body) -> Body:
    name, scopes = str(body.get("name", "")), body.get("scopes", sorted(STARTING_SCOPES))
    if not name:
        raise invalid("name", "is required")
    if not isinstance(scopes, list):
        raise invalid("scopes", "must be an array of strings")
    secret = f"sandbox_{secrets.token_urlsafe(24)}"
    sandbox.store.put_key(make_key(name, str(body.get("owner", OWNER)), secret, map(str, scopes)))
    sandbox.read_access()
    return {"name": name, "secret": secret}


def _set_key_state(sandbox: Sandbox, request: Request, body: Body) -> Body:
    name = request.path_params["name"]
    key = sandbox.keys.get(name)
    state = next((state for state in KEY_STATES if state == body.get("state")), None)
    if key is None:
        raise ApiError("not_found", f"There is no key called {name}.")
    if state is None:
        raise invalid("state", f"must be one of {', '.join(KEY_STATES)}")
    sandbox.store.put_key(replace(key, state=state))
    sandbox.read_access()
    return {"name": name, "state": state}


def _set_access(sandbox: Sandbox, _: Request, body: Body) -> Body:
    owner, is_allowed = str(body.get("owner", OWNER)), body.get("allowed")
    channel = next((one for one in sandbox.channels.values() if one.slug == body.get("channel")), None)
    if channel is None:
        raise invalid("channel", f"must be the slug of a channel: {', '.join(one.slug for one in sandbox.channels.values())}")
    if not isinstance(is_allowed, bool):
        raise invalid("allowed", "must be true or false")
    sandbox.store.set_access(owner, channel.id, is_allowed=is_allowed)
    sandbox.read_access()
    return _channel_doc(sandbox.channels[channel.id])


def _set_switches(sandbox: Sandbox, _: Request, body: Body) -> Body:
    try:
        sandbox.switches = change_switches(body, sandbox.switches)
    except SwitchError as wrong:
        raise invalid("switches", str(wrong)) from wrong
    return {"switches": format_switches(sandbox.switches)}


def _reset(sandbox: Sandbox, _: Request, __: Body) -> Body:
    sandbox.reset()
    return {"reset": True}


_PER_PAGE: Final = 60
_NAMES: Final = {one["slug"]: one["name"] for listed in CLASSIFICATIONS.values() for one in listed["docs"]}


@cache
def _open_template() -> tuple[Template, str]:
    """Return the template of all pages, compiled for the first page shown, and the value of their `Content-Security-Policy`."""
    package = files("sandbox")
    style = package.joinpath("style.css").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["initial"] = lambda title: next((one for one in title if one.isalnum()), "·").upper()
    environment.globals.update(style=Markup(style), names=_NAMES, when=_when)  # noqa: S704  # our own file
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src 'self'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
    return environment.from_string(package.joinpath("pages.html").read_text(encoding="utf-8")), policy


def page_routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes of the pages and their images. The pages run no scripts and load only their own images."""
    store = sandbox.store

    def page(title: str, status: int = 200, **content: object) -> Response:
        template, policy = _open_template()
        return HTMLResponse(template.render(title=title, **content), status, {"Content-Security-Policy": policy})

    async def show_channels(_: Request) -> Response:
        counts = store.count_by_status()
        channels = [(channel, counts.get(channel.id, {})) for channel in sandbox.channels.values()]
        return page("Channels", lead="Events published to this sandbox. They are on this machine only.", channels=channels)

    async def show_channel(request: Request) -> Response:
        slug, text = request.path_params["slug"], request.query_params.get("page", "1")
        channel = next((one for one in sandbox.channels.values() if one.slug == slug), None)
        if channel is None:
            return page("No such channel", 404, is_missing=True)
        number = max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 8 else 1
        found = store.programme(channel.id, (number - 1) * _PER_PAGE, _PER_PAGE + 1)
        events = [(event, orjson.loads(event.body)) for event in found[:_PER_PAGE]]
        total = store.count([channel.id])
        lead = f"{total} events" if total != 1 else "1 event"
        return page(channel.name, lead=lead, events=events, number=number, has_more=len(found) > _PER_PAGE)

    async def send_image(request: Request) -> Response:
        found = store.image(min(request.path_params["number"], 2**63 - 1))
        if found is None:
            return page("No such image", 404)
        return Response(found[1], headers={"X-Content-Type-Options": "nosniff"}, media_type=found[0])

    async def show_keys(_: Request) -> Response:
        uses, keys = store.uses(), []
        for key in sandbox.keys.values():
            times, last_at = uses.get(key.name, (0, 0.0))
            keys.append((key, times, f"{datetime.fromtimestamp(last_at, UTC):%Y-%m-%d %H:%M} UTC" if times else "never"))
        lead = "A secret is shown once, when its key is created; later only its last four characters."
        return page("API keys", lead=lead, keys=keys)

    return [
        Route("/", show_channels),
        Route("/channels/{slug}", show_channel),
        Route("/media/{number:int}", send_image),
        Route("/developers/keys", show_keys),
    ]


def _when(payload: Body) -> str:
    """Return start and end as text, in the event's own time zone."""
    zone = ZoneInfo(payload["timezone"])
    start = _local(payload["startAt"], zone)
    text = f"{start:%a} {start.day} {start:%b %Y, %H:%M}"
    if not payload.get("endAt"):
        return f"{text} ({start.tzname()})"
    end = _local(payload["endAt"], zone)
    until = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%a} {end.day} {end:%b %Y, %H:%M}"
    return f"{text} – {until} ({start.tzname()})"


def _local(text: str, zone: ZoneInfo) -> datetime:
    instant = datetime.fromisoformat(text)
    try:
        return instant.astimezone(zone)
    except OverflowError:  # beyond the first or the last day of the calendar
        return instant


_API: Final = "/api/"
_DEFAULT_PORTS: Final = (None, 80, 443)


class OriginGuard:
    """An ASGI application in front of another one, which answers to this machine's names and to the address that it listens on.

    A client of the API may use any other name of the machine, with its key and without a browser's `Origin`. `refuse`: makes the
    answer to a request that is refused, from the reason.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[str], Response]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = _reason(scope) if scope["type"] == "http" else ""
        await (self._refuse(reason) if reason else self._app)(scope, receive, send)


def _reason(scope: Scope) -> str:
    """Return why a request is refused, "" if it is not. Fetch Metadata: https://www.w3.org/TR/fetch-metadata/."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    host, origin = headers.get(b"host", "").lower(), headers.get(b"origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        return f"The sandbox takes no requests from pages of {origin}."
    is_opened = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == ("navigate", "document")
    if headers.get(b"sec-fetch-site", "none") not in {"none", "same-origin"} and not is_opened:
        return "The sandbox takes no requests from pages of other sites, except links that open its own."
    address, port = scope["server"]
    name, has_port, number = host.rpartition(":") if not host.endswith("]") else ("", "", "")
    name = (name if has_port else host).strip("[]")
    if (name == address or is_loopback(name)) and (number == str(port) if has_port else port in _DEFAULT_PORTS):
        return ""
    is_client = scope["path"].startswith(_API) and b"authorization" in headers and origin is None
    if is_client and (is_loopback(name) or not is_loopback(address)):
        return ""
    return f"The sandbox does not answer to the host {host!r}: use the address that it printed."


def is_loopback(host: str) -> bool:
    """Return whether a host name or address always means this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
