"""A server on this machine that answers as Google does: tokens, the Sheets API, the part of the Drive API that we ask.

It keeps to quotas, fails on demand, and lets an editor change a sheet between two of our requests.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.exceptions import GoogleAuthError
from lookalikes.sheets_book import Book, Cell, Content, Sheet, day, grid_data, masked, merges, plain
from lookalikes.threaded import app_served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ACCOUNT = "reader@lookalike.iam.gserviceaccount.com"
_SCOPE = "https://www.googleapis.com/auth/"
_READ = {f"{_SCOPE}spreadsheets", f"{_SCOPE}spreadsheets.readonly", f"{_SCOPE}drive"}
_WRITE = {f"{_SCOPE}spreadsheets", f"{_SCOPE}drive"}
_DRIVE = {f"{_SCOPE}drive", f"{_SCOPE}drive.readonly", f"{_SCOPE}drive.metadata.readonly"}
Answer = Callable[[Request], Awaitable[Response]]


@dataclass
class Fault:
    """What comes instead of an answer, `times` times, to requests whose address holds `where`.

    `kind`: "status" (with `status`, `body`, `headers`), "cut" (half of a JSON document), "drop" (the connection breaks off).
    """

    where: str = ""
    kind: str = "status"
    status: int = 503
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1


@dataclass
class Google:
    """All that the server knows. `per_minute` requests are answered in 60 s; `asked` lists them, `edits` come before them.

    `edits[n]` is done just before the n-th request (from 1) for cells or values is answered.
    """

    books: dict[str, Book] = field(default_factory=dict)
    per_minute: int = 10**9
    is_drive_on: bool = True
    faults: list[Fault] = field(default_factory=list)
    edits: dict[int, Callable[[], object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    refusal_of_tokens: str = ""
    clock: Callable[[], float] = time.monotonic
    base_url: str = ""
    reads: int = 0
    written: list[dict[str, Any]] = field(default_factory=list)
    _lately: deque[float] = field(default_factory=deque)

    def add(self, book: Book) -> Book:
        self.books[book.id] = book
        return book

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2])

    def app(self) -> Starlette:
        book = "/v4/spreadsheets/{id}"
        return Starlette(
            routes=[
                Route("/token", self._token, methods=["POST"]),
                Route(f"{book}/values:batchGet", self._answering(self._values, _READ)),
                Route(f"{book}/values:batchUpdate", self._answering(self._write, _WRITE), methods=["POST"]),
                Route(book, self._answering(self._spreadsheet, _READ)),
                Route("/drive/v3/files/{id}", self._answering(self._file, _DRIVE)),
            ]
        )

    def _answering(self, answer: Callable[[Request, bytes], Response], scopes: set[str]) -> Answer:
        async def answered(request: Request) -> Response:
            self.asked.append(f"{request.method} {request.url.path}?{request.url.query}")
            refusal = self._fault(request) or self._refused(request, scopes)
            return refusal or answer(request, await request.body())

        return answered

    def _fault(self, request: Request) -> Response | None:
        for fault in self.faults:
            if fault.times > 0 and fault.where in str(request.url):
                fault.times -= 1
                return _failing(fault)
        return None

    def _refused(self, request: Request, scopes: set[str]) -> Response | None:
        account, granted = self.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "), ("", set()))
        is_drive = request.url.path.startswith("/drive")
        if not account:
            return refusal(401, "Request had invalid authentication credentials.", "UNAUTHENTICATED")
        if not granted & scopes:
            reason = {"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "metadata": {"service": "sheets.googleapis.com"}}
            return refusal(403, "Request had insufficient authentication scopes.", "PERMISSION_DENIED", reason)
        if is_drive and not self.is_drive_on:
            message = "Google Drive API has not been used in project 42 before or it is disabled."
            where = {
                "reason": "SERVICE_DISABLED",
                "metadata": {"activationUrl": "https://console.developers.google.com/apis/drive"},
            }
            return refusal(403, message, "PERMISSION_DENIED", where)
        if not is_drive and not self._has_quota():
            message = "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute per user'"
            return refusal(429, message, "RESOURCE_EXHAUSTED", {"reason": "RATE_LIMIT_EXCEEDED", "metadata": {}})
        return None if "id" not in request.path_params else self._kept_out(request, account)

    def _kept_out(self, request: Request, account: str) -> Response | None:
        book = self.books.get(request.path_params["id"].partition(":")[0])
        if book is None:
            return refusal(404, "Requested entity was not found.", "NOT_FOUND")
        may = book.writers if request.method == "POST" else None if book.readers is None else book.readers | book.writers
        if may is not None and account not in may:
            return refusal(403, "The caller does not have permission", "PERMISSION_DENIED")
        if book.is_office_file:
            return refusal(400, "This operation is not supported for this document", "FAILED_PRECONDITION")
        return None

    def _has_quota(self) -> bool:
        now = self.clock()
        while self._lately and now - self._lately[0] >= 60.0:
            self._lately.popleft()
        if len(self._lately) >= self.per_minute:
            return False
        self._lately.append(now)
        return True

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.asked.append("POST /token")
        if self.refusal_of_tokens:
            told = {"error": self.refusal_of_tokens, "error_description": "Invalid JWT Signature."}
            return _json(told, 400 if self.refusal_of_tokens != "internal_failure" else 500)
        if "assertion" in form:
            try:
                said = jwt.decode(form["assertion"], certs=_keys()[1], audience="https://oauth2.googleapis.com/token")
            except (ValueError, GoogleAuthError):
                return _json({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)
            return self._granted(str(said["iss"]), str(said["scope"]).split())
        return self._granted("person@example.org", [f"{_SCOPE}spreadsheets.readonly"])

    def _granted(self, account: str, scopes: list[str]) -> Response:
        token = f"ya29.a0AfB-{len(self.tokens):03}-{id(self):x}-xJqWvZ"  # no digest ends like that
        self.tokens[token] = (account, set(scopes))
        return _json({"access_token": token, "expires_in": 3600, "token_type": "Bearer", "scope": " ".join(scopes)})

    def _book(self, request: Request) -> Book:
        return self.books[request.path_params["id"]]

    def _spreadsheet(self, request: Request, _body: bytes) -> Response:
        book, places = self._book(request), request.query_params.getlist("ranges")
        fields = request.query_params.get("fields", "")
        if not places:
            return _json(masked(book.described(), fields))
        self._edit()
        sheets = []
        for place in places:
            found = book.find(place)
            if isinstance(found, str):
                return refusal(400, found, "INVALID_ARGUMENT")
            sheet = {"properties": found[0].properties, "data": [grid_data(*found)]}
            sheets.append(sheet | ({"merges": merges(found[0])} if found[0].merged else {}))
        return _json(masked({**book.described(), "sheets": sheets}, fields))

    def _values(self, request: Request, _body: bytes) -> Response:
        self._edit()
        book, blocks = self._book(request), []
        for place in request.query_params.getlist("ranges"):
            found = book.find(place)
            if isinstance(found, str):
                return refusal(400, found, "INVALID_ARGUMENT")
            rows = [[plain(content) for content in row] for row in found[0].part(found[1])]
            blocks.append({"range": place, "majorDimension": "ROWS"} | ({"values": rows} if rows else {}))
        return _json({"spreadsheetId": book.id, "valueRanges": blocks})

    def _edit(self) -> None:
        self.reads += 1
        if edit := self.edits.pop(self.reads, None):
            edit()

    def _write(self, request: Request, body: bytes) -> Response:
        self._edit()
        book, wishes = self._book(request), orjson.loads(body)
        for part in wishes["data"]:
            found = book.find(part["range"])
            if isinstance(found, str):
                return refusal(400, found, "INVALID_ARGUMENT")
            sheet, place = found
            for number, row in enumerate(part["values"], start=place.top):
                for column, text in enumerate(row, start=place.left):
                    sheet.put(number, column, text or None)
        self.written.append(wishes)
        return _json(
            {"spreadsheetId": book.id, "totalUpdatedCells": sum(len(row) for part in wishes["data"] for row in part["values"])}
        )

    def _file(self, request: Request, _body: bytes) -> Response:
        return _json(masked(self._book(request).filed(), request.query_params.get("fields", "")))

    def credentials(self, path: Path, *, account: str = ACCOUNT) -> Path:
        content = {
            "type": "service_account",
            "project_id": "lookalike",
            "private_key_id": "key-1",
            "private_key": _keys()[0],
            "client_email": account,
            "client_id": "42",
            "token_uri": f"{self.base_url}/token",
        }
        path.write_text(json.dumps(content), "utf-8")
        return path

    def person(self, path: Path) -> Path:
        """Write the file of a person who has agreed that we read their spreadsheets."""
        content = {
            "type": "authorized_user",
            "client_id": "42",
            "client_secret": "s3cret-of-the-app",
            "refresh_token": "1//lookalike",
        }
        path.write_text(json.dumps({**content, "token_uri": f"{self.base_url}/token"}), "utf-8")
        return path


def refusal(status: int, message: str, word: str, *details: dict[str, Any]) -> Response:
    """An error as Google tells it (google.rpc.Status as JSON)."""
    told = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "googleapis.com", **one} for one in details]
    error = {"code": status, "message": message, "status": word} | ({"details": told} if told else {})
    return _json({"error": error}, status)


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def _failing(fault: Fault) -> Response:
    match fault.kind:
        case "cut":
            return Response(b'{"sheets": [{"data": [{"rowData": [{"val', 200, media_type="application/json")
        case "drop":
            return Response(b'{"sheets": [', 200, {"content-length": "5000"}, media_type="application/json")
        case _:
            content = (
                fault.body if isinstance(fault.body, bytes) else orjson.dumps(fault.body or {"error": {"code": fault.status}})
            )
            return Response(content, fault.status, fault.headers)


@cache
def _keys() -> tuple[str, str]:
    """A private key and the public one that belongs to it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # a longer one takes 40 ms to read
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


@contextmanager
def google_on(google: Google) -> Iterator[Google]:
    with app_served(google.app()) as google.base_url:
        yield google


def programme(*, rows: int = 12) -> Book:
    grid: list[list[Content]] = [
        ["Programme, please do not sort!"],
        [],
        ["Ref", "Title", "Day", "Time", "Price", "Postcode", "Free"],
    ]
    for number in range(1, rows + 1):
        time_of_day = Cell(0.8125 + number / 1440, "TIME", "hh:mm")
        postcode = Cell(1000.0 + number, "NUMBER", "00000")
        grid.append([f"A{number:03}", f"Concert {number}", day(46145 + number), time_of_day, "12,50", postcode, number % 2 == 0])
    return Book("lookalike-programme-0123456789abcdef", "Town programme", [Sheet("Programme", grid, gid=7)])
