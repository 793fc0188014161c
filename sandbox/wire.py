"""Where answers leave: as an ordinary response, or over a connection that is reset or cut short on purpose.

Connections are told apart by the client's address, which ASGI shows; only a real server's can be broken.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, assert_never

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox.answers import Answer

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds: the peer gets RST instead of FIN
_DRIP_S: Final = 0.05


class Wire:
    """The open connections of a server, by the client's host and port."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.Transport] = {}

    def opened(self, transport: asyncio.Transport) -> tuple[str, int]:
        """Remembers a new connection and returns the client's address, under which to forget it."""
        client = _address(transport.get_extra_info("peername"))
        self._open[client] = transport
        return client

    def closed(self, client: tuple[str, int]) -> None:
        """Forgets a connection that is gone."""
        self._open.pop(client, None)

    def reset(self, scope: Scope) -> None:
        """Resets the connection of `scope` at once. Raises ConnectionResetError where no server holds one."""
        transport = self._transport(scope)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()

    def cut(self, scope: Scope) -> None:
        """Closes the connection of `scope` once what was written is sent. Raises ConnectionResetError without one."""
        self._transport(scope).close()

    def write(self, scope: Scope, raw: bytes) -> None:
        """Sends bytes that no request has asked for. Raises ConnectionResetError without a connection."""
        self._transport(scope).write(raw)

    def _transport(self, scope: Scope) -> asyncio.Transport:
        try:
            return self._open[_address(scope.get("client"))]
        except KeyError:
            raise ConnectionResetError("the sandbox broke this exchange on purpose") from None


class BrokenResponse(Response):
    """A response that never arrives whole, or arrives once too often."""

    def __init__(self, answer: Answer, wire: Wire) -> None:
        super().__init__(answer.body, answer.status or 500, dict(answer.headers), answer.media_type)
        self._answer = answer
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Breaks the exchange as the answer's `breakage` says."""
        match self._answer.breakage:
            case "" | "twice":
                await super().__call__(scope, receive, send)
                if self._answer.breakage:
                    self._wire.write(scope, self._copy())
                return
            case "reset":
                self._wire.reset(scope)
            case "closed":
                self._wire.cut(scope)
            case "hang":
                pass
            case "drip":
                await self._drip(receive, send)
                return
            case "reset_midway" | "truncated":
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body[: len(self.body) // 2], "more_body": True})
                (self._wire.cut if self._answer.breakage == "truncated" else self._wire.reset)(scope)
            case _:
                assert_never(self._answer.breakage)
        # The server learns that the peer is gone in the loop's next round; returning sooner would read as a bug of ours.
        await receive()

    async def _drip(self, receive: Receive, send: Send) -> None:
        """Sends blanks, which may stand before any JSON, until the peer is gone."""
        gone = asyncio.ensure_future(receive())
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        while not gone.done():
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.wait({gone}, timeout=_DRIP_S)

    def _copy(self) -> bytes:
        head = b"".join(b"%b: %b\r\n" % header for header in self.raw_headers)
        return b"HTTP/1.1 %d Again\r\n%b\r\n%b" % (self.status_code, head, bytes(self.body))


def _address(peer: tuple[str, int] | list[object] | None) -> tuple[str, int]:
    return (str(peer[0]), int(str(peer[1]))) if peer else ("", 0)
