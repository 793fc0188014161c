"""A fast server that answers like the service: POST /events and GET /channels, after a fixed delay if asked, within a limit.

It exists so that a measurement shows the client's cost and nothing else. `/bench/account` tells what came, `/bench/mark`
and `/bench/forget` begin anew; keys and limits are `service.py`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import os

import orjson
from service import Service, limit_of

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_KEY = b"idempotency-key:"
_CHANNELS = (
    b'{"docs":[{"id":7,"name":"City agenda","slug":"city-agenda"}],"page":1,"limit":100,"totalDocs":1,"totalPages":1,'
    b'"hasNextPage":false,"hasPrevPage":false}'
)


class Answerer(asyncio.Protocol):
    """One connection: splits the bytes into requests by Content-Length and answers each one."""

    def __init__(self, service: Service, delay_s: float, retry_after: str) -> None:
        self.service = service
        self.delay_s = delay_s
        self.retry_after = retry_after.encode()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(_HEAD_END)) >= 0:
            head = self.buffer[:end]
            size = int(_field(head, _LENGTH) or 0)
            begin = end + len(_HEAD_END)
            if len(self.buffer) < begin + size:
                return
            body, self.buffer = self.buffer[begin : begin + size], self.buffer[begin + size :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path.endswith(b"/events"):
            self._after_delay(self._created(head, body))
        elif b"/channels" in path:
            self._write(_answer(b"200 OK", _CHANNELS))
        elif path == b"/bench/account":
            self._write(_answer(b"200 OK", orjson.dumps(self.service.account())))
        elif path == b"/bench/posts":
            self._write(_answer(b"200 OK", b"%d" % self.service.posts))
        elif path == b"/bench/mark":
            self.service.mark()
            self._write(_answer(b"200 OK", b"{}"))
        elif path == b"/bench/forget":
            self.service.forget()
            self._write(_answer(b"200 OK", b"{}"))
        else:
            self._write(_answer(b"404 Not Found", b'{"error":{"code":"not_found","message":"Not found"}}'))

    def _created(self, head: bytes, body: bytes) -> bytes:
        event_id = self.service.create(_field(head, _KEY), body)
        if event_id is None:
            more = b"retry-after: %b\r\n" % self.retry_after if self.retry_after else b""
            return _answer(b"429 Too Many Requests", b'{"error":{"code":"rate_limited","message":"Too many requests"}}', more)
        return _answer(b"201 Created", b'{"doc":{"id":%d,"title":"An evening of chamber music"}}' % event_id)

    def _after_delay(self, answer: bytes) -> None:
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


def _field(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    if at < 0:
        lowered = head.lower()
        at = lowered.find(name)
    return head[at + len(name) :].split(b"\r\n", 1)[0].strip() if at >= 0 else b""


def _answer(status: bytes, body: bytes, more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n" % (status, more, len(body))
    return head + body


async def serve(port: int, service: Service, delay_s: float, retry_after: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answerer(service, delay_s, retry_after), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--limit", default="", help="bucket:RATE:BURST, window:RATE or sliding:RATE")
    parser.add_argument("--retry-after", default="1", help="what a 429 says; empty: nothing")
    parser.add_argument("--core", type=int)
    chosen = parser.parse_args()
    if chosen.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {chosen.core})
    service = Service(limit_of(chosen.limit))
    asyncio.run(serve(chosen.port, service, chosen.delay_ms / 1000, chosen.retry_after))


if __name__ == "__main__":
    main()
