"""The admin API under `/_sandbox`, for tests and demonstrations: what was sent, and changes at run time.

It answers only this machine, and is no part of the service that the sandbox stands for.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final
from zoneinfo import ZoneInfo

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from sandbox.answers import JSON, ApiError, invalid, json_answer
from sandbox.routes import parse_json, read_json_body
from sandbox.service import Sandbox
from sandbox.store import (
    CLASSIFICATIONS,
    KEY_STATES,
    OWNER,
    REVISED,
    STARTING_SCOPES,
    ApiKey,
    Channel,
    KeyUse,
    StoredEvent,
    key_in_state,
    make_key,
)
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


_VOID: Final = frozenset({"img", "meta"})


class Markup(str):
    """HTML; any other text is escaped where it is used."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """Return an element. Children that are not Markup are escaped, attributes always; `class_` is written `class`."""
    written = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Join pieces, each escaped unless it is Markup."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def page(title: str, *content: str, status: int = 200) -> HTMLResponse:
    """Return a whole page with header and style. No scripts run on it, and only its own images are loaded."""
    navigation = tag("nav", tag("a", "Channels", href="/"), tag("a", "API keys", href="/developers/keys"))
    header = tag("header", tag("div", tag("strong", tag("a", "Event publishing sandbox", href="/")), navigation))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_style())),
    )
    document = tag("html", head, tag("body", header, tag("main", *content)), lang="en")
    return HTMLResponse(f"<!doctype html>{document}", status, {"Content-Security-Policy": _policy()})


@cache
def _style() -> str:
    return files("sandbox").joinpath("style.css").read_text(encoding="utf-8")


@cache
def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; img-src 'self'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"


_PER_PAGE: Final = 60
_NAMES: Final = {one.slug: one.name for one in (*CLASSIFICATIONS, *REVISED)}
Page = Callable[[Sandbox, Request], Response]


def page_routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes of the pages, and of the images on them."""
    pages: dict[str, Page] = {
        "/": _channels,
        "/channels/{slug}": _channel_of_pages,
        "/media/{number:int}": _image,
        "/developers/keys": _keys,
    }
    return [Route(path, _endpoint_of_pages(sandbox, render)) for path, render in pages.items()]


def _endpoint_of_pages(sandbox: Sandbox, render: Page) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return render(sandbox, request)

    return endpoint


def _channels(sandbox: Sandbox, _: Request) -> Response:
    counts = sandbox.store.per_channel()
    cards = [_channel_card(channel, counts.get(channel.id, {})) for channel in sandbox.channels.values()]
    lead = tag("p", "Events that were published to this machine, and nowhere else.", class_="lead")
    return page("Channels", tag("h1", "Channels"), lead, tag("ul", *cards, class_="grid"))


def _channel_card(channel: Channel, counts: dict[str, int]) -> Markup:
    name = tag("h2", tag("a", channel.name, href=f"/channels/{channel.slug}"))
    note = tag("p", f"{counts.get('published', 0)} published · {counts.get('draft', 0)} in draft", class_="note")
    who = tag(
        "p",
        tag("code", channel.slug),
        f" · channel {channel.id} · {', '.join(sorted(channel.owners)) or 'nobody'}",
        class_="note",
    )
    number = tag("div", str(sum(counts.values())), class_="number")
    return tag("li", tag("div", number, name, note, who, class_="text"), class_="card")


def _channel_of_pages(sandbox: Sandbox, request: Request) -> Response:
    channel = next((one for one in sandbox.channels.values() if one.slug == request.path_params["slug"]), None)
    if channel is None:
        return page("No such channel", tag("h1", "No such channel"), tag("p", tag("a", "All channels", href="/")), status=404)
    number = _page_number(request)
    events = sandbox.store.programme(channel.id, (number - 1) * _PER_PAGE, _PER_PAGE + 1)
    total = sum(sandbox.store.per_channel().get(channel.id, {}).values())
    lead = tag("p", f"{total} events" if total != 1 else "1 event", class_="lead")
    cards = [_event_card(event) for event in events[:_PER_PAGE]]
    body = tag("ul", *cards, class_="grid") if cards else tag("p", "Nothing here yet.")
    return page(channel.name, tag("h1", channel.name), lead, body, _pager(number, has_more=len(events) > _PER_PAGE))


def _page_number(request: Request) -> int:
    text = request.query_params.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 8 else 1


def _pager(number: int, *, has_more: bool) -> Markup:
    earlier = tag("a", "← Earlier", href=f"?page={number - 1}") if number > 1 else Markup()
    later = tag("a", "Later →", href=f"?page={number + 1}") if has_more else Markup()
    return tag("nav", earlier, later, class_="pager")


def _event_card(event: StoredEvent) -> Markup:
    payload: dict[str, Any] = orjson.loads(event.body)
    is_draft = event.status == "draft"
    text = tag(
        "div",
        tag("span", "Draft: not public yet", class_="badge draft") if is_draft else Markup(),
        tag("p", _when(payload), class_="when"),
        tag("h2", event.title),
        tag("p", _where(payload), class_="where"),
        tag("ul", *(tag("li", _NAMES.get(slug, slug)) for slug in payload["classifications"]), class_="chips"),
        tag("ul", *(_offer(offer) for offer in payload.get("offers") or ()), class_="offers"),
        class_="text",
    )
    return tag("li", _cover(payload, event.title), text, class_="card draft" if is_draft else "card", id=f"event-{event.id}")


def _cover(payload: dict[str, Any], title: str) -> Markup:
    image = payload.get("coverImage")
    if image is None:
        initial = next((letter for letter in title if letter.isalnum()), "·")
        return tag("div", initial.upper(), class_="cover blank")
    return tag("img", src=f"/media/{image}", alt="", class_="cover", loading="lazy")


def _when(payload: dict[str, Any]) -> str:
    """Return start and end in the event's own time zone."""
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


def _where(payload: dict[str, Any]) -> str:
    city = payload["approxLocation"]["city"]
    town = city.get("name") or city["placeId"]
    return ", ".join(part for part in (payload.get("locationName"), town, city.get("countryCode")) if part)


def _offer(offer: dict[str, Any]) -> Markup:
    name = offer.get("name") or "Tickets"
    if not offer.get("url"):
        return tag("li", name)
    return tag("li", tag("a", name, href=offer["url"], rel="nofollow noopener noreferrer"))


def _image(sandbox: Sandbox, request: Request) -> Response:
    number = request.path_params["number"]
    found = sandbox.store.image(number) if number in sandbox.store.image_ids else None
    if found is None:
        return page("No such image", tag("h1", "No such image"), status=404)
    media_type, image = found
    return Response(image, headers={"X-Content-Type-Options": "nosniff"}, media_type=media_type)


def _keys(sandbox: Sandbox, _: Request) -> Response:
    uses, now = sandbox.store.uses(), sandbox.environment.clock()
    heads = ("Name", "Owner", "Secret", "State", "Scopes", "Requests", "Last used")
    rows = [_key_row(key, uses.get(key.name), now) for key in sandbox.store.api_keys()]
    lead = tag("p", "A secret is shown once, when its key is made; later only its last four characters are.", class_="lead")
    return page("API keys", tag("h1", "API keys"), lead, tag("table", tag("tr", *(tag("th", head) for head in heads)), *rows))


def _key_row(key: ApiKey, use: KeyUse | None, now: float) -> Markup:
    secret, scopes = tag("code", f"····{key.last_four}"), tag("code", " ".join(sorted(key.scopes)))
    last = f"{datetime.fromtimestamp(use.last_at, UTC):%Y-%m-%d %H:%M} UTC" if use else "never"
    cells = (key.name, key.owner, secret, key.state_at(now), scopes, str(use.times if use else 0), last)
    return tag("tr", *(tag("td", cell) for cell in cells))
