"""A partner's web server on this machine: gives files as servers do (versions, conditions), or as a test tells it to."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

from lookalikes.threaded import served

OLD = 1_700_000_000.0
"""When files were changed, if a test does not say otherwise."""


@dataclass
class WebFile:
    """A file and how it is served. `etag` None: made of the bytes; "": none. `changed_at` None: not told."""

    content: bytes
    etag: str | None = None
    changed_at: float | None = OLD
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return f'"{hashlib.md5(self.content).hexdigest()}"' if self.etag is None else self.etag


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Web:
    """The server: its files by their path, what it was asked, and what it does instead of answering properly."""

    port: int = 0
    files: dict[str, WebFile] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    instead: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
    """Called first with each request; true if it has answered."""
    is_head_allowed: bool = True
    heard: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, content: bytes | str, **how: object) -> WebFile:
        self.files[path] = WebFile(content if isinstance(content, bytes) else content.encode(), **how)  # type: ignore[arg-type] # a test's own words
        return self.files[path]

    def address(self, path: str, user: str = "") -> str:
        return f"http://{user}{'@' * bool(user)}127.0.0.1:{self.port}{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_HEAD(self) -> None:
        self._heard("HEAD")
        if not self.web.is_head_allowed:
            self._say(405)
        elif not self.web.instead(self):
            self._give(is_head=True)

    def do_GET(self) -> None:
        self._heard("GET")
        if not self.web.instead(self):
            self._give(is_head=False)

    def _heard(self, method: str) -> None:
        with self.web.heard:
            headers = {name.lower(): text for name, text in self.headers.items()}
            self.web.asked.append(Asked(method, self.path, headers))

    def _give(self, *, is_head: bool) -> None:
        file = self.web.files.get(self.path.partition("?")[0])
        if file is None:
            self._say(404)
            return
        versions = {"Date": formatdate(usegmt=True), **file.headers}
        if file.version:
            versions["ETag"] = file.version
        if file.changed_at is not None:
            versions["Last-Modified"] = formatdate(file.changed_at, usegmt=True)
        if self._has_it(versions):
            self._say(304, versions)
            return
        self._say(200, versions, file.content, is_head=is_head)

    def _has_it(self, versions: dict[str, str]) -> bool:
        if etag := self.headers.get("If-None-Match"):
            return etag == versions.get("ETag")
        return "If-Modified-Since" in self.headers and self.headers["If-Modified-Since"] == versions.get("Last-Modified")

    def _say(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", *, is_head: bool = False) -> None:
        self.send_response_only(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def web_server() -> Iterator[Web]:
    web = Web()
    handler = type("Handler", (_Handler,), {"web": web})
    with served(handler) as web.port:
        yield web


def answering(
    status: int, headers: dict[str, str] | None = None, body: bytes = b"", *, ends: str = "length"
) -> Callable[[BaseHTTPRequestHandler], bool]:
    """Return what answers every request the same; `ends`: by a "length" that is told, by "chunks", or with the "connection"."""

    def answer(request: BaseHTTPRequestHandler) -> bool:
        told = {"length": {"Content-Length": str(len(body))}, "chunks": {"Transfer-Encoding": "chunked"}}.get(ends, {})
        request.send_response_only(status)
        for name, text in {**told, **(headers or {})}.items():
            request.send_header(name, text)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if ends == "chunks" else body)
        request.close_connection = request.close_connection or ends == "connection"
        return True

    return answer


def untold(body: bytes, headers: dict[str, str] | None = None) -> Callable[[BaseHTTPRequestHandler], bool]:
    """Return what answers every request without saying how long the body is: its end is the end of the connection."""
    return answering(200, headers, body, ends="connection")


def chunked(body: bytes) -> Callable[[BaseHTTPRequestHandler], bool]:
    return answering(200, None, body, ends="chunks")


def breaking_after(*cuts: int) -> Callable[[BaseHTTPRequestHandler], bool]:
    """Return what breaks one answer after the other off, after so many bytes of its body; later ones are whole."""
    left = list(cuts)

    def answer(request: BaseHTTPRequestHandler) -> bool:
        if request.command != "GET" or not left:
            return False
        whole, cut = request.wfile, left.pop(0)
        request.wfile = _Cut(whole, cut)  # type: ignore[assignment] # as much of a file as the handler uses
        request.close_connection = True
        return False

    return answer


class _Cut:
    """Lets the head of an answer through, and so many bytes of its body."""

    def __init__(self, whole: object, left: int) -> None:
        self._whole, self._left, self._is_body = whole, left, False

    def write(self, content: bytes) -> int:
        if self._is_body:
            content, self._left = content[: self._left], self._left - len(content[: self._left])
        self._is_body = self._is_body or content.endswith(b"\r\n\r\n")
        return self._whole.write(content)  # type: ignore[attr-defined,no-any-return] # a binary file

    def flush(self) -> None:
        self._whole.flush()  # type: ignore[attr-defined] # a binary file

    def close(self) -> None:
        self._whole.close()  # type: ignore[attr-defined] # a binary file

    @property
    def closed(self) -> bool:
        return bool(self._whole.closed)  # type: ignore[attr-defined] # a binary file
