"""Answers of the service: the error envelope of refusals, and the faults that the sandbox injects.

Faults are drawn from seed, key and attempt only, so that a test can be repeated.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from hashlib import blake2b
from typing import Final, Literal

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox.switches import FaultKind, RetryAfterStyle, Switches

STATUS_OF: Final = {
    "invalid_request": 400,
    "invalid_api_key": 401,
    "forbidden": 403,
    "insufficient_scope": 403,
    "not_found": 404,
    "conflict": 409,
    "rate_limited": 429,
    "internal_error": 500,
}
"""The specification's error codes and their status."""
JSON: Final = "application/json"
CREATED: Final = 201
Headers = tuple[tuple[str, str], ...]
Breakage = Literal["", "reset", "reset_midway", "closed", "hang", "drip", "truncated", "twice"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `code`: the error code, "" for a success; `breakage`: how its delivery is broken on purpose."""

    status: int
    body: bytes
    code: str = ""
    media_type: str = JSON
    headers: Headers = ()
    breakage: Breakage = ""


def new_request_id() -> str:
    """Return the id of a new request."""
    return f"req_{secrets.token_hex(10)}"


class ApiError(Exception):
    """A refusal with an error code of the specification; its status follows from the code, unless given (405, 413, 415)."""

    def __init__(
        self, code: str, message: str, *, status: int = 0, field: str = "", issue: str = "", headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status or STATUS_OF[code]
        self.message = message
        self.field = field
        self.issue = issue
        self.headers = headers

    def answer(self, request_id: str = "") -> Reply:
        """Return the refusal in the error envelope of the specification (section Errors), by default under a new id."""
        error: dict[str, object] = {"code": self.code, "message": self.message, "requestId": request_id or new_request_id()}
        if self.field:
            error["details"] = {"field": self.field, "issue": self.issue}
        return Reply(self.status, orjson.dumps({"error": error}), self.code, headers=self.headers)


def invalid(field: str, issue: str) -> ApiError:
    """Return the 400 for a field: its path in the payload (`offers[0].url`), and what is wrong with it."""
    return ApiError("invalid_request", f"{field}: {issue}", field=field, issue=issue)


def json_answer(document: object, status: int = 200) -> Reply:
    """Return a successful answer with `document` as its JSON body."""
    return Reply(status, orjson.dumps(document))


def retry_after(style: RetryAfterStyle, wait_s: float, now: float) -> Headers:
    """Return the `Retry-After` header for `wait_s` seconds from `now`, in the form of the switch; () if it is absent."""
    seconds, at = math.ceil(wait_s), math.ceil(now + wait_s)
    texts: dict[RetryAfterStyle, tuple[str, ...]] = {
        "absent": (),
        "seconds": (str(seconds),),
        "fraction": (f"{math.ceil(wait_s * 1000) / 1000:.3f}",),
        "date": (formatdate(at, usegmt=True),),
        "several": ("0", str(seconds)),
        "absurd": ("31536000",),
    }
    return tuple(("Retry-After", text) for text in texts[style])


Moment = Literal["before", "after"]
_HTML: Final = "text/html; charset=utf-8"
_BREAK_S: Final = 0.2
"""Seconds that the `Retry-After` of an injected 429 or 503 asks for, as exactly as its form allows."""
_WRONG_IDS: Final = ("event-100001", 100001.5, True, -1)
_MOMENTS: Final[Mapping[FaultKind, Moment]] = {
    **dict.fromkeys(("twice", "wrong_id", "text_id", "long_header"), "after"),
    **dict.fromkeys(("error_400", "error_403", "error_413"), "before"),
}
"""When a fault happens that has one moment only."""
_ID: Final = re.compile(rb'"id": ?(\d+)')
_GATEWAY_PAGE: Final = (
    b"<!doctype html><html><head><title>One moment</title></head><body><h1>One moment, please</h1></body></html>"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """How one attempt goes wrong, `before` or `after` its work is done and stored. `draw`: a random byte that picks a variant."""

    kind: FaultKind
    moment: Moment
    draw: int = 0


def draw_fault(name: str, attempt: int, switches: Switches) -> Fault | None:
    """Return the fault of the n-th attempt of a request `name`; each attempt has its own draw, equal in every run."""
    if 0 < switches.fault_attempts < attempt:
        return None
    drawn = blake2b(f"{switches.fault_seed}:{name}:{attempt}".encode(), digest_size=12).digest()
    if int.from_bytes(drawn[:4]) % 1000 >= switches.fault_per_mille:
        return None
    kind = switches.faults[int.from_bytes(drawn[4:8]) % len(switches.faults)]
    either: Moment = "after" if drawn[8] & 1 else "before"
    moment = either if switches.fault_moment == "either" else switches.fault_moment
    return Fault(kind, _MOMENTS.get(kind, moment), drawn[9])


def faulty_answer(fault: Fault, answer: Reply | None, request_id: str, switches: Switches, now: float) -> Reply:
    """Return the answer to send instead of `answer` (None if the work is not done)."""
    whole = answer or json_answer({"doc": {"id": 0, "title": ""}}, CREATED)
    breaks = retry_after(switches.retry_after, _BREAK_S, now)

    def error(code: str, message: str, status: int = 0, headers: Headers = ()) -> Reply:
        return ApiError(code, message, status=status, headers=headers).answer(request_id)

    replies: Mapping[str, Reply] = {
        "error_400": error("invalid_request", "A gateway refuses the request."),
        "error_403": ApiError("forbidden", "A gateway denies access.").answer("gateway"),
        "error_408": error("internal_error", "The request took too long.", 408),
        "error_425": error("internal_error", "Too early.", 425),
        "error_429": error("rate_limited", "Too many requests just now.", headers=breaks),
        "error_503": error("internal_error", "The service is taking a break.", 503, breaks),
        **dict.fromkeys(("error_500", "stored_500"), error("internal_error", "Something went wrong on our side.")),
        **{f"error_{status}": Reply(status, _GATEWAY_PAGE, media_type=_HTML) for status in (413, 502, 504, 520)},
        "html": Reply(200, _GATEWAY_PAGE, media_type=_HTML),
        "reset": Reply(0, b"", breakage="reset"),
        "closed": Reply(0, b"", breakage="closed"),
        "hang": Reply(0, b"", breakage="hang"),
        "late": Reply(0, b"", breakage="hang"),  # the connection was reset before the work: the client is gone
        "reset_midway": replace(whole, breakage="reset_midway"),
        "drip": replace(whole, breakage="drip"),
        "truncated": replace(whole, breakage="truncated"),
        "twice": replace(whole, breakage="twice"),
        "empty": Reply(CREATED, b""),
        "no_content": Reply(204, b""),
        "no_doc": Reply(CREATED, b"{}"),
        "malformed": replace(whole, body=whole.body.replace(b":", b"=>", 1)),
        "wrong_id": json_answer({"doc": {"id": _WRONG_IDS[fault.draw % len(_WRONG_IDS)], "title": ""}}, CREATED),
        "text_id": replace(whole, body=_ID.sub(rb'"id":"\1"', whole.body, count=1)),
        "long_header": replace(whole, headers=(*whole.headers, ("X-Long", "x" * 20_000))),
        # 303 after the work is done, 307 before it (RFC 9110, 15.4).
        "redirect": Reply(307 if fault.moment == "before" else 303, b"", headers=(("Location", "/elsewhere"),)),
    }
    return replies[fault.kind]


_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds: the peer gets RST instead of FIN
_DRIP_S: Final = 0.05


class Wire:
    """The open connections of a server, by the client's host and port."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.Transport] = {}

    def opened(self, transport: asyncio.Transport) -> tuple[str, int]:
        """Add a new connection and return the client's address, its key for `closed`."""
        client = _address(transport.get_extra_info("peername"))
        self._open[client] = transport
        return client

    def closed(self, client: tuple[str, int]) -> None:
        """Remove a closed connection."""
        self._open.pop(client, None)

    def reset(self, scope: Scope) -> None:
        """Reset the connection of `scope` at once (TCP RST). Raises ConnectionResetError if it is not open."""
        transport = self._transport(scope)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()

    def cut(self, scope: Scope) -> None:
        """Close the connection of `scope` after sending what was written. Raises ConnectionResetError if it is not open."""
        self._transport(scope).close()

    def write(self, scope: Scope, raw: bytes) -> None:
        """Send bytes that are no answer to a request. Raises ConnectionResetError if the connection is not open."""
        self._transport(scope).write(raw)

    def _transport(self, scope: Scope) -> asyncio.Transport:
        try:
            return self._open[_address(scope.get("client"))]
        except KeyError:
            raise ConnectionResetError("the sandbox broke this exchange on purpose") from None


class BrokenResponse(Response):
    """A response that never arrives complete, or arrives twice."""

    def __init__(self, answer: Reply, wire: Wire) -> None:
        super().__init__(answer.body, answer.status or 500, dict(answer.headers), answer.media_type)
        self._answer = answer
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response broken as the answer's `breakage` says."""
        match self._answer.breakage:
            case "twice":
                await super().__call__(scope, receive, send)
                head = b"".join(b"%b: %b\r\n" % header for header in self.raw_headers)
                self._wire.write(scope, (b"HTTP/1.1 %d Again\r\n%b\r\n%b" % (self.status_code, head, bytes(self.body))))
                return
            case "reset":
                self._wire.reset(scope)
            case "closed":
                self._wire.cut(scope)
            case "hang" | "":
                pass
            case "drip":
                # Send blanks, which are valid before any JSON, until the client disconnects.
                gone = asyncio.ensure_future(receive())
                headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
                await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
                while not gone.done():
                    await send({"type": "http.response.body", "body": b" ", "more_body": True})
                    await asyncio.wait({gone}, timeout=_DRIP_S)
                return
            case "reset_midway" | "truncated":
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body[: len(self.body) // 2], "more_body": True})
                (self._wire.cut if self._answer.breakage == "truncated" else self._wire.reset)(scope)
        # Wait until uvicorn notices the disconnection; returning sooner would be logged as an error.
        await receive()


def _address(peer: tuple[str, int] | list[object] | None) -> tuple[str, int]:
    return (str(peer[0]), int(str(peer[1]))) if peer else ("", 0)
