"""Files on the web: fetched whole into a nameless copy, resumed where a connection broke, not fetched at all if unchanged.

fsspec's HTTP file system does none of this: it neither pins addresses nor checks redirects, bounds or resumes a transfer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import BinaryIO

import httpx

from connectors.retry import http_date, retry_after_s
from connectors.sources.contract import Ending, Reading, Source, SourceRefusedError, SourceUnavailableError, unchanged
from connectors.sources.files.choice import Files, FoundFile, beside, name_of
from connectors.sources.files.opened_file import OpenStored, StoredFile, cut_off_is_passing, digest_of, sent_unpacked
from connectors.sources.files.web_requests import FetchLimits, TransferLimit, WebRequests
from mappings.spec.source import FileSource
from mappings.spec.source_words import marker_of, without_secrets

_PASSING = frozenset({202, 408, 425, 429})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)
_ENCODED = {"accept-encoding": "gzip"}
"""Always the same encodings: each is a representation of its own, with a version and a length of its own."""

_FRESH_S = 60.0
"""A time of change so close to the answer's own time may stand for two versions (RFC 9110, section 8.8.2.2)."""

_GREAT_STEP_BYTES = 1024 * 1024
"""An attempt that brings so much is no failure: a long download may break as often as it likes, if it gets on."""

_LONGEST_PAUSE_S = 30.0
"""A server that asks for a longer pause is left to the next run."""

_AGAIN = "run again; if it stays so, tell the partner"


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file on the web as a source; `since`: its version at an earlier reading, at which it is not fetched again."""

    spec: FileSource
    files: WebFiles
    read_as: Callable[[OpenStored], Source]
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        spec, files, name = self.spec, self.files, name_of(self.spec.path)
        writing, hint = f"{files.shown(spec.path)} is still being written", "run again later; nothing was read"
        marker = marker_of(spec.marker, name) if spec.marker else ""
        if marker and files.find(beside(spec.path, marker)) is None:
            raise SourceUnavailableError(f"{writing}: its marker {marker} is not there yet", hint=hint)
        with files.fetched_if_changed(spec.path, self.since) as stored:
            if stored is None:
                yield unchanged(self.columns, self.since, name)
                return
            settle_s = files.bounds.settle_s
            if settle_s is not None and (stored.age_s is None or stored.age_s < settle_s):
                files.bounds.clock.sleep(settle_s)
                with files.fetched_if_changed(spec.path, stored.stamp) as again:
                    if again is not None and again.stamp != stored.stamp:
                        raise SourceUnavailableError(f"{writing}: it changed within {settle_s:.0f} s", hint=hint)
            with self.read_as(stored.reopened).read() as reading:
                yield replace(reading, ending=lambda: Ending(stored.version))


@dataclass(frozen=True, slots=True)
class WebFiles(Files):
    """The files of the web, which cannot be listed: a path is an address."""

    bounds: FetchLimits

    def find(self, path: str) -> FoundFile | None:
        """Return the file at an address, None if there is none: one or two small requests."""
        with closing(WebRequests(self.bounds)) as requests:
            # A server may refuse HEAD, or not know it, and still give the file.
            for method in ("HEAD", "GET"):
                with requests.ask(method, path, _ENCODED) as answer:
                    if answer.status_code in {404, 410} or (method == "HEAD" and answer.status_code != 200):
                        continue
                    _refuse_other_answers(answer, without_secrets(path))
                    return FoundFile(path, name_of(path), _firm_version_of(answer), changed_at(answer), _size_of(answer))
        return None

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Give a copy of the file at an address."""
        with self.fetched_if_changed(path, "") as stored:
            if stored is None:
                raise SourceUnavailableError(f"{without_secrets(path)} answered 304 to no question", hint="run again later")
            yield stored

    @contextmanager
    def fetched_if_changed(self, path: str, known: str) -> Iterator[StoredFile | None]:
        """Give the same; None if the file still has the version `known`, which costs one request without a body."""
        with ExitStack() as open_things:
            # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
            stream = open_things.enter_context(TemporaryFile(prefix="eventsync-"))
            requests = open_things.enter_context(closing(WebRequests(self.bounds)))
            download = _Download(requests, path, stream)
            answer = download.run(known)
            if answer is None:
                yield None
                return
            name, age_s, has_known_end = name_of(path), _age_s(answer), download.has_known_end
            if not has_known_end and self.bounds.settle_s is not None:
                self._check_same_again(requests, path, digest_of(stream), self.bounds.settle_s)
                has_known_end, age_s = True, max(age_s or 0.0, self.bounds.settle_s)
            with cut_off_is_passing(name, has_known_end=has_known_end):
                encoding = answer.headers.get("content-encoding", "")
                whole, was_packed = open_things.enter_context(sent_unpacked(stream, name, encoding))
            stamp = _version_of(answer) or digest_of(whole)
            yield StoredFile(whole, name, stamp, has_known_end or was_packed, _firm_version_of(answer), age_s)

    def _check_same_again(self, requests: WebRequests, path: str, digest: str, settle_s: float) -> None:
        """Fetch a file a second time, after a while: what breaks off hardly does so twice at the same byte."""
        self.bounds.clock.sleep(settle_s)
        with TemporaryFile(prefix="eventsync-") as stream:
            _Download(requests, path, stream).run("")
            if digest_of(stream) != digest:
                message = "is still being written, or its answers are cut off: it came differently twice within"
                hint = "run again later; nothing was read"
                raise SourceUnavailableError(f"{without_secrets(path)} {message} {settle_s:.0f} s", hint=hint)


class _Download:
    """A download in progress: what has come so far, and by which validator the rest may be asked for.

    `has_known_end`: the server said the length, or sent a last chunk; an answer that ends with the connection has no known end.
    """

    def __init__(self, requests: WebRequests, path: str, stream: BinaryIO) -> None:
        self._requests = requests
        self._path = path
        self._stream = stream
        self._shown = without_secrets(path)
        self._limit = TransferLimit(requests.bounds, self._shown)
        self.has_known_end = False
        self._restart()

    def _restart(self) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        self._received = 0
        self._size: int | None = None
        self._validator = ""
        self._answer: httpx.Response | None = None

    def run(self, known: str) -> httpx.Response | None:
        """Fetch until all is there; return the answer that describes it, None if it still has the known version."""
        bounds, clock = self._requests.bounds, self._requests.bounds.clock
        attempt, started = 0, clock.clock_s()
        while True:
            attempt, before = attempt + 1, self._received
            try:
                self._limit.restart()
                return self._attempt(known)
            except SourceUnavailableError as trouble:
                if self._received - before >= _GREAT_STEP_BYTES:
                    attempt, started = 0, clock.clock_s()
                pause_s = max(bounds.retries.wait_s(max(attempt, 1), clock.chance), trouble.retry_after_s or 0.0)
                now = clock.clock_s()
                is_spent = bounds.retries.is_spent(attempt, now - started, pause_s)
                if is_spent or pause_s > _LONGEST_PAUSE_S or now + pause_s > self._limit.ends_at:
                    raise
            clock.sleep(pause_s)

    def _attempt(self, known: str) -> httpx.Response | None:
        with self._requests.ask("GET", self._path, {**_ENCODED, **self._conditions(known)}) as answer:
            if answer.status_code == 304 and known and not self._received:
                return None
            if answer.status_code == 416 and self._received:
                self._restart()
                raise SourceUnavailableError(f"{self._shown} became shorter while we fetched it", hint="run again")
            _refuse_other_answers(answer, self._shown)
            if answer.status_code == 206:
                self._resume(answer)
            elif known and _version_of(answer) == known:
                return None
            else:
                self._restart()
                self._validator, self._answer = _resumable_version_of(answer), answer
                self._size = None if "transfer-encoding" in answer.headers else _size_of(answer)
                self._limit.check_size(_size_of(answer) or 0)
            for piece in answer.iter_raw():
                self._stream.write(piece)
                self._received += len(piece)
                self._limit.count(len(piece), self._received)
            self._stream.flush()
            is_chunked = answer.status_code == 200 and "transfer-encoding" in answer.headers
        self.has_known_end = self._size is not None or is_chunked
        if self._size is None or self._received == self._size:
            return self._answer
        # A server may answer with a part of the rest, in good order: that is no end of the file.
        message = f"{self._shown} came as {self._received:,} bytes of {self._size:,}"
        if self._received > self._size:
            self._restart()
        raise SourceUnavailableError(message, hint=_AGAIN)

    def _conditions(self, known: str) -> Mapping[str, str]:
        """Return the headers that ask for the rest of a file, or for it only if its version is another one by now."""
        if self._received and self._validator:
            return {"range": f"bytes={self._received}-", "if-range": self._validator}
        name, _, value = known.partition("=")
        header = {"ETag": "if-none-match", "Last-Modified": "if-modified-since"}.get(name)
        return {header: value} if header and value.isprintable() and value.isascii() else {}

    def _resume(self, answer: httpx.Response) -> None:
        """Go on if a 206 is the rest that was asked for, of the version that the beginning is of."""
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        start, size = (int(match[1]), None if match[2] == "*" else int(match[2])) if match else (None, None)
        is_other = None not in (size, self._size) and size != self._size
        if not self._received or is_other or start != self._received or _resumable_version_of(answer) != self._validator:
            self._restart()
            message = f"{self._shown} changed while we fetched it, or its server gives other parts than it was asked for"
            raise SourceUnavailableError(message, hint=_AGAIN)
        self._size = self._size if size is None else size


def changed_at(answer: httpx.Response) -> float | None:
    """Return when the file was changed, in seconds since 1970."""
    return _moment(answer, "last-modified")


def _age_s(answer: httpx.Response) -> float | None:
    """Return how long the file had been unchanged, by the server's own clock."""
    changed, now = changed_at(answer), _moment(answer, "date")
    return None if changed is None or now is None else now - changed


def _moment(answer: httpx.Response, header: str) -> float | None:
    moment = http_date(answer.headers.get(header, ""))
    return None if moment is None else moment.timestamp()


def _version_of(answer: httpx.Response) -> str:
    """Return what the server says of the version, "" if nothing: `ETag="v1"`, `Last-Modified=...`."""
    versions = ((name, answer.headers.get(name, "").strip()) for name in ("ETag", "Last-Modified"))
    return next((f"{name}={value}" for name, value in versions if value), "")


def _firm_version_of(answer: httpx.Response) -> str:
    """Return the version if an equal one later means equal content, else "": times of change are in whole seconds."""
    version = _version_of(answer)
    return version if version.startswith("ETag=") or (_age_s(answer) or 0.0) >= _FRESH_S else ""


def _resumable_version_of(answer: httpx.Response) -> str:
    """Return the validator for asking for a rest of this very answer (RFC 9110, section 13.1.5), "" without any."""
    version = _firm_version_of(answer).partition("=")[2]
    return "" if version.startswith("W/") else version


def _size_of(answer: httpx.Response) -> int | None:
    """Return the announced bytes of the body."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None


def _refuse_other_answers(answer: httpx.Response, shown: str) -> None:
    """Let an answer with a file pass, 200 or 206.

    Raises:
        SourceUnavailableError: 202, 408, 425, 429, 5xx: later may be better. `retry_after_s` is what the server asks for.
        SourceRefusedError: any other.
    """
    status = answer.status_code
    if status in {200, 206}:
        return
    message = f"{shown} answered {status} {answer.reason_phrase}".rstrip()
    if status in _PASSING or status >= 500:
        message = f"{message}: the file is not ready yet" if status == 202 else message
        raise SourceUnavailableError(message, hint="run again later", retry_after_s=retry_after_s(answer.headers))
    if status in {404, 410}:
        raise SourceRefusedError(f"{message}: there is no such file", hint="check `source.path` with the partner")
    raise SourceRefusedError(message, hint="check the address and the access with the partner")
