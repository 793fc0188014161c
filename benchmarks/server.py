"""The smallest server that answers like the service: POST /events gives a document, after a fixed delay if asked.

It exists so that a measurement shows the client's cost and nothing else; it checks nothing and remembers nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from itertools import count

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Answerer(asyncio.Protocol):
    """One connection: splits the bytes into requests by Content-Length and answers each one with a new id."""

    def __init__(self, ids: count[int], delay_s: float) -> None:
        self.ids = ids
        self.delay_s = delay_s
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (size := _request_size(self.buffer)) is not None and len(self.buffer) >= size:
            self.buffer = self.buffer[size:]
            self._answer()

    def _answer(self) -> None:
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self._write)
        else:
            self._write()

    def _write(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_document(next(self.ids)))


def _request_size(buffer: bytes) -> int | None:
    end = buffer.find(_HEAD_END)
    if end < 0:
        return None
    head = buffer[:end].lower()
    at = head.find(_LENGTH)
    length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return end + len(_HEAD_END) + length


def _document(event_id: int) -> bytes:
    body = b'{"doc":{"id":%d,"title":"An evening of chamber music"}}' % event_id
    return b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def serve(port: int, delay_s: float) -> None:
    ids = count(1)
    server = await asyncio.get_running_loop().create_server(lambda: Answerer(ids, delay_s), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--core", type=int)
    chosen = parser.parse_args()
    if chosen.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {chosen.core})
    asyncio.run(serve(chosen.port, chosen.delay_ms / 1000))


if __name__ == "__main__":
    main()
