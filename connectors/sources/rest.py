"""A paginated JSON API as a source: its pages are kept in a nameless file, whose records are read once their end is proved."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from io import BytesIO
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from urllib.parse import quote_plus, urlencode

import httpx

from connectors.sources.contract import (
    Access,
    BadSourceError,
    Bookmark,
    Clock,
    Ending,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
)
from connectors.sources.files.opened_file import StoredFile, cut_off_is_passing, digest_of, refuse_other_kinds
from connectors.sources.files.web import Connections, FetchLimits, RedirectHop, ask, links_of, refuse_other_answers
from connectors.sources.formats.json import read_json, values_in
from connectors.sources.formats.records import JsonParser
from connectors.sources.rows import NumberText, change_columns, is_marked, is_within, moment_of, short
from mappings.columns import ColumnRequest
from mappings.errors import ConfigError, SyncError
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.rest import Auth, ClientLogin, as_json, utc_text
from mappings.spec.source import JsonSource, RestSource
from mappings.spec.source_words import ChangedSpan

_MOST_BYTES = 64 * 1024 * 1024
"""Bytes of one answer, unpacked: a hundred times those of a usual page."""
_MOST_PAGES = 100_000
_PAGES = "correct `source.pages` by the documentation of the API"
_LATER = f"run again later; if it is so each time, {_PAGES}"
_REFUSED = "check `source.url`, `auth` and its secret; to ask for no page beyond the last one, name `last` or `more`"
_SIZE = re.compile(r"size|limit|per_?page|count|rows|top|max|take", re.IGNORECASE)
_USUAL_SIZES = frozenset({10, 12, 15, 20, 24, 25, 30, 40, 50, 60, 100, 200, 250, 500, 1000})
"""Records of a page where no parameter asks for another number."""
_ABSENT = object()
_NOTHING: tuple[object, ...] = (_ABSENT, None, "", False, [])


def _at(value: Any, path: str) -> Any:
    """Return the value at a path, `_ABSENT` if there is none; a name may have dots itself (`@odata.nextLink`)."""
    if not isinstance(value, dict):
        return _ABSENT
    if path in value:
        return value[path]
    name, dot, rest = path.partition(".")
    return _at(value.get(name), rest) if dot else _ABSENT


def _path_of(spec: RestSource) -> str:
    """Return the path to the single records: what `records` leads to is a list, unless it ends with `*`."""
    return spec.records if spec.records.endswith("*") else f"{spec.records}[*]"


@contextmanager
def read_rest(spec: RestSource, asked: ColumnRequest, access: Access, cursor: str, clock: Clock) -> Iterator[Reading]:
    """Read an API under the contract of `Source.read`; its cursor is the greatest time of change, and belongs to its block."""
    changes, name = spec.incremental, spec.place.partition("?")[0]
    bookmark = Bookmark(cursor, [spec.url, spec.params, spec.body, spec.records, spec.changed_by])
    before = greatest = moment_of(bookmark.before)
    latest = datetime.fromtimestamp(clock.now(), UTC)
    by, deleted = change_columns(changes, asked)
    asked = replace(asked, columns=asked.columns | {by, deleted} - {""}, optional=asked.optional | {deleted})
    since = utc_text(before - changes.overlap) if before and changes else ""
    with TemporaryFile(prefix="eventsync-") as stream:
        with Connections() as connections:
            bounds = FetchLimits(largest=_MOST_BYTES, clock=clock)
            ended = _Api(spec.since(since), access, bounds, name, connections).keep(stream)
        stored = StoredFile(stream, name, digest_of(stream))
        pages = JsonSource(kind="json", path=name, records=f"[*].{_path_of(spec)}", join_lists=spec.join_lists)

        def rows(found: Iterator[SourceRow]) -> Iterator[SourceRow]:
            nonlocal greatest
            for row in found:
                number, text = row.location.number, row.cells.get(by, "")
                if isinstance(changes, ChangedSpan) and not is_within(changes, text, name):
                    continue
                stamp = moment_of(text)
                greatest = max(filter(None, (greatest, stamp and min(stamp, latest))), default=None)
                is_gone = is_marked(row.cells.get(deleted, ""))
                if since or not is_gone:
                    yield replace(row, location=RowLocation(f"{name} (record {number})", number), is_gone=is_gone)

        def ending() -> Ending:
            return replace(ended, cursor=bookmark.cursor_at("" if greatest is None or ended.is_short else greatest.isoformat()))

        with read_json(pages, stored.reopened, asked) as reading:
            yield replace(reading, rows=rows(reading.rows), is_whole=not since, ending=ending)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page: its text, its records, the whole answer, and the links of its header `Link` by their relation."""

    text: str
    records: list[Any]
    document: Any
    links: Mapping[str, str]


@dataclass(slots=True)
class _Api:
    """One read of an API; `name`: its address for people. `token`: that of OAuth 2, once it was asked for."""

    spec: RestSource
    access: Access
    bounds: FetchLimits
    name: str
    connections: Connections
    token: str = ""
    start: RedirectHop = field(init=False)

    def keep(self, stream: BinaryIO) -> Ending:
        """Write all pages as one JSON list; return how the read ended, without a cursor.

        Raises:
            SourceUnavailableError: an answer did not come, or the total is not met or changed.
            BadSourceError: the first page is none, or a page repeats an earlier one.
        """
        pages, hop = self.spec.pages, RedirectHop.first(self.spec.url)
        self.start = hop = replace(hop, url=hop.url.copy_merge_params(dict(self.spec.params))) if self.spec.params else hop
        sent: dict[str, Any] = {pages.counter: 0 if pages.offset else pages.first} if pages.counter else {}
        count, totals, seen, is_short = 0, set[int](), set[object](), False
        for number in range(1, _MOST_PAGES + 1):
            page = self.bounds.retried(partial(self._page, hop, sent, number))
            trace = blake2b(json.dumps(page.records or [page.document, page.links]).encode()).digest()
            if trace in seen:
                raise BadSourceError(self.name, f"page {number} repeats one that was read already", hint=_PAGES)
            seen.add(trace)
            stream.write((b"[" if number == 1 else b",\n") + page.text.encode("utf-8", "surrogateescape"))
            FetchLimits().check_size(stream.tell(), self.name)
            count += len(page.records)
            totals |= {self._number(page, pages.total, number)} if pages.total else set()
            onward = self._onward(page, hop, number, count)
            if onward is None:
                is_certain = pages.total or pages.more or pages.counter or not page.records
                # With `null` the page says itself that there is no next one.
                is_short = number == 1 and not is_certain and self._next_of(page) is _ABSENT and self._is_full(count)
                break
            hop, sent = onward
        else:
            raise BadSourceError(self.name, f"it has more than {_MOST_PAGES} pages", hint="ask for more records in a page")
        if pages.total and totals != {count}:
            announced = " and ".join(map(str, sorted(totals)))
            message = f"{self.name} announced {announced} records and gave {count}: it changed while it was read, run again"
            raise SourceUnavailableError(message, hint=_LATER)
        stream.write(b"]")
        stream.flush()
        notice = f"{self.name}: a full first page of {count} records names no next one: are `pages` right? Name a `total`"
        return Ending(notices=(notice,) if is_short else (), is_short=is_short)

    def _onward(self, page: _Page, hop: RedirectHop, number: int, count: int) -> tuple[RedirectHop, dict[str, Any]] | None:
        """Return where the next page is and what is sent for it, None after the last page."""
        pages, more = self.spec.pages, None
        if pages.incomplete and _at(page.document, pages.incomplete) in (True, "incomplete"):
            raise BadSourceError(self.name, "it says that it left records out", hint="read fewer: narrow `params` or `body`")
        if pages.more:
            more = _at(page.document, pages.more)
            if not isinstance(more, bool):
                raise self._odd(number, f'"{pages.more}" is neither true nor false')
        if more is False or not (page.records or more):
            return None
        if pages.counter:
            if pages.last and self._number(page, pages.last, number) <= number - 1 + pages.first:
                return None
            return self.start, {pages.counter: count if pages.offset else pages.first + number}
        named = self._next_of(page)
        if named in _NOTHING:
            if more:
                raise self._odd(number, "it says that there are more pages and names none")
            return None
        if pages.cursor:
            return self.start, {pages.param: named}
        if not isinstance(named, str):
            raise self._odd(number, f'"{pages.next_url}" is no address')
        return hop.onward(named), {}

    def _next_of(self, page: _Page) -> Any:
        pages = self.spec.pages
        path = pages.next_url or pages.cursor
        return page.links.get(pages.link.casefold(), _ABSENT) if pages.link else _at(page.document, path)

    def _is_full(self, count: int) -> bool:
        given = {**self.spec.params, **(self.spec.body or {})}
        sizes = {int(one) for name, one in given.items() if _SIZE.search(name) and str(one).isdecimal()}
        return count in (sizes or _USUAL_SIZES)

    def _number(self, page: _Page, path: str, number: int) -> int:
        found = str(_at(page.document, path))
        if found.isascii() and found.isdecimal() and len(found) < 19:
            return int(found)
        raise self._odd(number, f'"{path}" is no number')

    def _odd(self, number: int, message: str, hint: str = _PAGES) -> SyncError:
        """Return the error for an answer of another shape: on a page after the first it is passing."""
        if number == 1:
            return BadSourceError(self.name, message, hint=hint)
        return SourceUnavailableError(f"{self.name}: on page {number}, {message}", hint=_LATER)

    def _page(self, hop: RedirectHop, sent: Mapping[str, Any], number: int) -> _Page:
        """Ask for a page; raises as `keep`."""
        answer, body = self._asked(hop, sent)
        text = body.decode("utf-8-sig", "surrogateescape")
        try:
            refuse_other_kinds(body, self.name, "an answer of a JSON API")
            with cut_off_is_passing(self.name, has_known_end=False):
                records = values_in(text, _path_of(self.spec), self.name)
            document = JsonParser().decode(text)
        except BadSourceError as error:
            message = str(error).removeprefix(f"{error.place}: ")
            raise self._odd(number, f"{message}; the answer is: {short(text)}", error.hint) from None
        errors = [_at(document, name) for name in ("error", "errors")]
        if not records and any(one and one is not _ABSENT and _at(one, "code") != 0 for one in errors):
            raise self._odd(number, f"it holds an error, and no records: {short(text)}", _REFUSED)
        return _Page(text, records, document, links_of(answer))

    def _asked(self, hop: RedirectHop, sent: Mapping[str, Any]) -> tuple[httpx.Response, bytes]:
        """Send the request for a page; return the answer and its body."""
        own_headers, own_params = self._ways_in(self.spec.auth)
        own_headers |= {name.lower(): value for name, value in self.spec.headers.items()}
        headers, content, params = {"accept": "application/json"}, b"", dict(own_params if hop.is_own else {})
        if self.spec.method == "POST":
            # A number that an answer gave as its cursor is a number again.
            plain = {name: int(one) if isinstance(one, NumberText) and one.isdecimal() else one for name, one in sent.items()}
            content = json.dumps(as_json(self.spec.body or {}) | plain).encode()
            headers["content-type"] = "application/json"
        else:
            params |= sent
        hop = replace(hop, url=hop.url.copy_merge_params(params)) if params else hop
        answer, body = self._sent(hop, headers, own_headers, content)
        if answer.status_code == 401 and self.token:
            self.token = ""
            raise SourceUnavailableError(f"{self.name} no longer accepts its token", hint="run again")
        return answer, _good(answer, body, self.name)

    def _sent(self, hop: RedirectHop, headers: dict[str, str], own: dict[str, str], body: bytes) -> tuple[httpx.Response, bytes]:
        copy, shared, method = BytesIO(), self.connections, "POST" if body else "GET"
        with ask(self.bounds, method, hop, headers, own_headers=own, body=body, connections=shared) as answer:
            self.bounds.copy(answer.iter_bytes(), copy, self.name)
        return answer, copy.getvalue()

    def _secret(self, name: str) -> str:
        found = self.access.secret(f"REST_{name}", self.name).strip()
        self.access.mask.learn(found, found.partition(":")[2])
        if not (found.isascii() and found.isprintable()):
            raise ConfigError(f"REST_{name} has characters that a header cannot hold", hint="copy the secret again")
        return found

    def _ways_in(self, auth: Auth) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and the parameters that let us in."""
        headers = {name.lower(): self._secret(secret) for name, secret in auth.header.items()}
        if auth.oauth2:
            self.token = self.token or self._given_token(auth.oauth2)
        if auth.bearer or auth.oauth2:
            headers["authorization"] = f"Bearer {self._secret(auth.bearer) if auth.bearer else self.token}"
        if auth.basic:
            headers["authorization"] = _basic(self._secret(auth.basic))
        return headers, {name: self._secret(secret) for name, secret in auth.param.items()}

    def _given_token(self, login: ClientLogin) -> str:
        """Return the token of OAuth 2; the client names itself in the header, or in the body where the server wants that."""
        secret, where = self._secret(login.secret), RedirectHop.first(login.token_url)
        form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        inside = form | {"client_id": login.client, "client_secret": secret}
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        named = {"authorization": _basic(f"{quote_plus(login.client)}:{quote_plus(secret)}")}
        answer, body = self._sent(where, headers, named, urlencode(form).encode())
        if answer.status_code in {400, 401}:
            answer, body = self._sent(where, headers, {}, urlencode(inside).encode())
        with suppress(ValueError, AttributeError):
            token = json.loads(_good(answer, body, where.host)).get("access_token")
            if isinstance(token, str) and token.isascii() and token.isprintable():
                self.access.mask.learn(token)
                return token
        raise SourceRefusedError(f"{where.host} gave no token", hint="check `source.auth.oauth2` and its secret")


def _good(answer: httpx.Response, body: bytes, name: str) -> bytes:
    """Return the body of a good answer; raises as `refuse_other_answers`."""
    refuse_other_answers(answer, name, short(body.decode("utf-8", "replace")), _REFUSED)
    return body


def _basic(credentials: str) -> str:
    return f"Basic {b64encode(credentials.encode()).decode()}"
