"""A paginated JSON API on this machine: five ways from page to page, and faults at any page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lookalikes.threaded import served

Fault = Callable[[BaseHTTPRequestHandler], None]
"""Answers one request otherwise."""
PAGERS: Mapping[str, Mapping[str, str]] = {
    "link": {"link": "next"},
    "next_url": {"next_url": "paging.next"},
    "cursor": {"cursor": "paging.cursor", "param": "after"},
    "offset": {"offset": "skip"},
    "page": {"page": "page", "last": "paging.last"},
}


@dataclass
class Request:
    """A request as it came; `port`: that of the client, one for each connection."""

    port: int
    method: str
    path: str
    params: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Api:
    """The API: its records (None: there are none to be found), the size of a page, and faults by page, each used once.

    `lasting`: faults by page that do not pass. `edit`: changes the document of a page.
    """

    port: int = 0
    records: Sequence[Any] | None = ()
    size: int = 2
    pager: str = "cursor"
    asked: list[Request] = field(default_factory=list)
    faults: dict[int, list[Fault]] = field(default_factory=dict)
    lasting: dict[int, Fault] = field(default_factory=dict)
    edit: Callable[[int, dict[str, Any]], object] = lambda _page, _document: None
    answer: Callable[[Request], tuple[int, Any]] | None = None
    """Answers every request instead, with a status and a document."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/events"

    def page_of(self, request: Request) -> int:
        """Return the number of the page that is asked for, from 0."""
        given = {name: texts[0] for name, texts in request.params.items()} | dict(request.body or {})
        if self.pager == "offset":
            return -(-int(given.get("skip", 0)) // self.size)
        return int(given.get("page", 1)) - 1 if self.pager == "page" else int(given.get("after", 0))

    def document(self, page: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a page's document and headers."""
        records = list(self.records or ())
        found = records[page * self.size : (page + 1) * self.size]
        document: dict[str, Any] = {"data": {"events": found}, "paging": {"total": len(records)}}
        last = max(1, -(-len(records) // self.size))
        document["paging"]["last"] = last
        document["paging"]["more"] = page + 1 < last
        headers = {}
        if page + 1 < last:
            onward = f"{self.url}?after={page + 1}"
            document["paging"] |= {"cursor": str(page + 1), "next": onward}
            headers["Link"] = f'<{onward}>; rel="next"'
        if self.records is None:
            del document["data"]["events"]
        self.edit(page, document)
        return document, headers


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path)
        headers = {name.lower(): text for name, text in self.headers.items()}
        kind = headers.get("content-type", "")
        sent = json.loads(body) if body and "json" in kind else parse_qs(body.decode()) if body else None
        request = Request(
            self.client_address[1], self.command, parts.path, parse_qs(parts.query, keep_blank_values=True), headers, sent
        )
        self.api.asked.append(request)
        if self.api.answer is not None:
            status, document = self.api.answer(request)
            say(self, status, document)
            return
        page = self.api.page_of(request)
        if waiting := self.api.faults.get(page):
            waiting.pop(0)(self)
        elif page in self.api.lasting:
            self.api.lasting[page](self)
        else:
            document, headers = self.api.document(page)
            say(self, 200, document, headers)

    do_POST = do_GET  # noqa: N815  # the name that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def say(request: BaseHTTPRequestHandler, status: int, document: Any, headers: Mapping[str, str] | None = None) -> None:
    """Answer with a document, or with a text as it stands."""
    body = (document if isinstance(document, str) else json.dumps(document)).encode()
    request.send_response_only(status)
    for name, text in {"Content-Length": str(len(body)), "Content-Type": "application/json", **(headers or {})}.items():
        request.send_header(name, text)
    request.end_headers()
    request.wfile.write(body)


def saying(status: int, document: Any, **headers: str) -> Fault:
    """Return a fault that answers so."""
    return lambda request: say(request, status, document, {name.replace("_", "-"): text for name, text in headers.items()})


def cutting(request: BaseHTTPRequestHandler, *, is_length_given: bool = True) -> None:
    """Answer with half of a page."""
    half = b'{"data": {"events": [{"ref": "1"}, {"re'
    request.send_response_only(200)
    if is_length_given:
        request.send_header("Content-Length", "4000")
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(half)
    request.close_connection = True


def cutting_without_length(request: BaseHTTPRequestHandler) -> None:
    cutting(request, is_length_given=False)


def dropping(request: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    request.close_connection = True
    request.connection.close()


@contextmanager
def rest_api(pager: str = "cursor", **how: Any) -> Iterator[Api]:
    api = Api(pager=pager, **how)
    with served(type("Handler", (_Handler,), {"api": api})) as api.port:
        yield api
