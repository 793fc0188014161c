"""What a web server's answer says of a file: whether it is there, of which version, since when, and which part of it came.

Nothing is asked here, and nothing is read but headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import PurePosixPath
from tempfile import TemporaryFile
from typing import BinaryIO
from urllib.parse import urlsplit

import httpx

from connectors.retry import http_date, retry_after_s
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError, cut_off_is_passing
from connectors.sources.files.fetching import Fetching, Watch
from connectors.sources.files.opened_file import FoundFile, KeptFile, OpenStored, digest_of, through_a_copy
from connectors.sources.files.unpacking import sent_unpacked
from connectors.sources.files.web_requests import WebDoor
from mappings.spec.source_words import without_secrets

_PASSING = frozenset({408, 425, 429})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)
_FRESH_S = 60.0
"""A time of change so close to the answer's own time may stand for two versions (RFC 9110, section 8.8.2.2)."""


def version_of(answer: httpx.Response) -> str:
    """Return what the server says of the version, "" if nothing: `ETag="v1"`, `Last-Modified=...`."""
    for name in ("ETag", "Last-Modified"):
        if said := answer.headers.get(name, "").strip():
            return f"{name}={said}"
    return ""


def firm_version_of(answer: httpx.Response) -> str:
    """Return the version if an equal one later means equal content, else "": times of change are told in whole seconds."""
    version = version_of(answer)
    return version if version.startswith("ETag=") or _is_old(answer) else ""


def resumable_version_of(answer: httpx.Response) -> str:
    """Return by what a rest of this very answer may be asked for (RFC 9110, section 13.1.5), "" if by nothing."""
    etag = answer.headers.get("etag", "").strip()
    if etag:
        return "" if etag.startswith("W/") else etag
    return answer.headers.get("last-modified", "") if _is_old(answer) else ""


def asking_whether_changed(known: str) -> Mapping[str, str]:
    """Return the headers that ask for the file only if its version is another one by now."""
    name, _, said = known.partition("=")
    if not said.isprintable() or not said.isascii():
        return {}
    match name:
        case "ETag":
            return {"if-none-match": said}
        case "Last-Modified":
            return {"if-modified-since": said}
        case _:
            return {}


def changed_at(answer: httpx.Response) -> float | None:
    """Return when the file was changed, in seconds since 1970."""
    return _moment(answer.headers.get("last-modified", ""))


def answered_at(answer: httpx.Response) -> float | None:
    """Return when the server answered, by its own clock."""
    return _moment(answer.headers.get("date", ""))


def size_of(answer: httpx.Response) -> int | None:
    """Return the bytes that the body has by the server's word."""
    said = answer.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else None


def goes_on_from(answer: httpx.Response, received: int, validator: str) -> bool:
    """Whether a 206 is the rest that was asked for, of the version that the beginning is of."""
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    return match is not None and int(match[1]) == received and resumable_version_of(answer) == validator


def whole_size_of(answer: httpx.Response) -> int | None:
    """Return the bytes of the whole file by the server's word, of which a 206 may give fewer than it was asked for."""
    if answer.status_code != 206:
        return None if "transfer-encoding" in answer.headers else size_of(answer)
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    return int(match[2]) if match is not None and match[2] != "*" else None


def refuse_other_answers(answer: httpx.Response, shown: str) -> None:
    """Let an answer with a file pass, 200 or 206.

    Raises:
        SourceUnavailableError: 202, 408, 425, 429, 5xx: later may be better. `retry_after_s` is what the server asks for.
        SourceRefusedError: any other.
    """
    status = answer.status_code
    if status in {200, 206}:
        return
    said = f"{shown} answered {status} {answer.reason_phrase}".rstrip()
    if status == 202:
        raise SourceUnavailableError(
            f"{said}: the file is not ready yet", hint="run again later", retry_after_s=retry_after_s(answer.headers)
        )
    if status in _PASSING or status >= 500:
        raise SourceUnavailableError(said, hint="run again later", retry_after_s=retry_after_s(answer.headers))
    if status in {404, 410}:
        raise SourceRefusedError(f"{said}: there is no such file", hint="check `source.path` with the partner")
    raise SourceRefusedError(said, hint="check the address and the access with the partner")


def _is_old(answer: httpx.Response) -> bool:
    changed, now = changed_at(answer), answered_at(answer)
    return changed is not None and now is not None and now - changed >= _FRESH_S


def _moment(text: str) -> float | None:
    told = http_date(text)
    return None if told is None else told.timestamp()


_GREAT_STEP_BYTES = 1024 * 1024
"""An attempt that brings so much is no failure: a long download may break as often as it likes, if it gets on."""
_LONGEST_PAUSE_S = 30.0
"""A longer one that a server asks for is the next run's."""


@dataclass(frozen=True, slots=True)
class WebFiles:
    """The files of the web. Nobody can list them: a path is an address."""

    bounds: Fetching

    def connected(self, _path: str) -> AbstractContextManager[WebFiles]:
        """Return the same files: there is no connection that would be worth keeping."""
        return nullcontext(self)

    def shown(self, path: str) -> str:
        """Return an address as it may be shown."""
        return without_secrets(path)

    def look(self, path: str) -> FoundFile | None:
        """Return what is at an address, None if nothing is: one or two small requests."""
        with closing(WebDoor(self.bounds)) as door:
            # A server may refuse HEAD, or know nothing of it, and still give the file.
            return self._looked("HEAD", door, path) or self._looked("GET", door, path)

    def _looked(self, method: str, door: WebDoor, path: str) -> FoundFile | None:
        with door.ask(method, path, {"accept-encoding": "gzip"}) as answer:
            if answer.status_code in {404, 410} or (method == "HEAD" and answer.status_code != 200):
                return None
            refuse_other_answers(answer, without_secrets(path))
            return FoundFile(path, name_of(path), firm_version_of(answer), changed_at(answer), size_of(answer))

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the file at an address, if it is there."""
        found = self.look(pattern)
        return [found] if found else []

    def at(self, path: str) -> OpenStored:
        """Return what fetches the file at an address."""
        return through_a_copy(lambda: self.kept_at(path))

    @contextmanager
    def kept_at(self, path: str) -> Iterator[KeptFile]:
        """Give a copy of the file at an address.

        Raises:
            SourceRefusedError: no such file, no access, too large, or led astray.
            SourceUnavailableError: it did not come, or not whole, however often we asked.
        """
        with self.fetched_if_changed(path, "") as kept:
            if kept is None:
                raise SourceUnavailableError(f"{without_secrets(path)} answered 304 to no question", hint="run again later")
            yield kept

    @contextmanager
    def fetched_if_changed(self, path: str, known: str) -> Iterator[KeptFile | None]:
        """The same; None if the file still has the version that is `known`, which costs one request without a body."""
        with ExitStack() as open_things:
            # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
            stream = open_things.enter_context(TemporaryFile(prefix="eventsync-"))
            door = open_things.enter_context(closing(WebDoor(self.bounds)))
            download = _Download(door, path, stream, Watch.begun(self.bounds, without_secrets(path)))
            answer = download.run(known)
            if answer is None:
                yield None
                return
            name, age_s, has_known_end = name_of(path), _age_s(answer), download.has_known_end
            if not has_known_end and self.bounds.settle_s is not None:
                self._await_again(door, path, digest_of(stream))
                has_known_end, age_s = True, max(age_s or 0.0, self.bounds.settle_s)
            with cut_off_is_passing(name, has_known_end=has_known_end):
                encoding = answer.headers.get("content-encoding", "")
                whole, was_packed = open_things.enter_context(sent_unpacked(stream, name, encoding))
            stamp = version_of(answer) or digest_of(whole)
            yield KeptFile(whole, name, stamp, firm_version_of(answer), age_s, has_known_end or was_packed)

    def _await_again(self, door: WebDoor, path: str, digest: str) -> None:
        """Fetch a file for the second time, after a while: what breaks off hardly does so twice at the same byte."""
        settle_s, shown = self.bounds.settle_s or 0.0, without_secrets(path)
        self.bounds.clockwork.sleep(settle_s)
        with TemporaryFile(prefix="eventsync-") as stream:
            _Download(door, path, stream, Watch.begun(self.bounds, shown)).run("")
            if digest_of(stream) != digest:
                message = f"{shown} is still being written, or its answers are cut off: it came differently twice"
                raise SourceUnavailableError(f"{message} within {settle_s:.0f} s", hint="run again later; nothing was read")


@dataclass(slots=True)
class _Download:
    """A download under way: what has come so far, and by which validator the rest may be asked for."""

    door: WebDoor
    path: str
    stream: BinaryIO
    watch: Watch
    received: int = 0
    size: int | None = None
    validator: str = ""
    headers: httpx.Response | None = None
    has_known_end: bool = False
    """By the server's word on its length, or by the last of its chunks: an answer that ends with the connection has none."""

    def run(self, known: str) -> httpx.Response | None:
        """Fetch until all is there; return the answer that describes it, None if it still has the known version."""
        bounds, clockwork = self.door.bounds, self.door.bounds.clockwork
        attempt, started = 0, clockwork.clock_s()
        while True:
            attempt, before = attempt + 1, self.received
            try:
                self.watch.again()
                return self._attempt(known)
            except SourceUnavailableError as trouble:
                if self.received - before >= _GREAT_STEP_BYTES:
                    attempt, started = 0, clockwork.clock_s()
                pause = max(bounds.retries.wait_s(max(attempt, 1), clockwork.chance), trouble.retry_after_s or 0.0)
                elapsed = clockwork.clock_s() - started
                if pause > _LONGEST_PAUSE_S or bounds.retries.is_spent(attempt, elapsed, pause):
                    raise
                if clockwork.clock_s() + pause > self.watch.ends_at:
                    raise
            clockwork.sleep(pause)

    def _attempt(self, known: str) -> httpx.Response | None:
        asked = self._asked(known)
        with self.door.ask("GET", self.path, asked) as answer:
            if answer.status_code == 304 and known and not self.received:
                return None
            if answer.status_code == 416 and self.received:
                self._forget()
                raise SourceUnavailableError(f"{self.watch.shown} became shorter while we fetched it", hint="run again")
            refuse_other_answers(answer, self.watch.shown)
            if answer.status_code == 206:
                self._go_on(answer)
            elif known and version_of(answer) == known:
                return None
            else:
                self._begin(answer)
            self._take(answer)
            is_chunked = answer.status_code == 200 and "transfer-encoding" in answer.headers
        self.has_known_end = self.size is not None or is_chunked
        self._check_all_is_there()
        return self.headers

    def _asked(self, known: str) -> dict[str, str]:
        """Always the same encodings, as each is a representation of its own, with a version and a length of its own."""
        asked = {"accept-encoding": "gzip"}
        if self.received and self.validator:
            return asked | {"range": f"bytes={self.received}-", "if-range": self.validator}
        return asked | dict(asking_whether_changed(known))

    def _begin(self, answer: httpx.Response) -> None:
        self._forget()
        self.validator, self.headers = resumable_version_of(answer), answer
        self.size = whole_size_of(answer)
        self.watch.announced(size_of(answer) or 0)

    def _go_on(self, answer: httpx.Response) -> None:
        size = whole_size_of(answer)
        is_other = None not in (size, self.size) and size != self.size
        if not self.received or is_other or not goes_on_from(answer, self.received, self.validator):
            self._forget()
            message = f"{self.watch.shown} changed while we fetched it, or its server gives other parts than it was asked for"
            raise SourceUnavailableError(message, hint="run again; if it stays so, tell the partner")
        self.size = self.size if size is None else size

    def _take(self, answer: httpx.Response) -> None:
        for piece in answer.iter_raw():
            self.stream.write(piece)
            self.received += len(piece)
            self.watch.saw(len(piece), self.received)
        self.stream.flush()

    def _check_all_is_there(self) -> None:
        """A server may answer with a part of the rest, in good order: that is no end of the file."""
        if self.size is None or self.received == self.size:
            return
        message = f"{self.watch.shown} came as {self.received:,} bytes of {self.size:,}"
        if self.received > self.size:
            self._forget()
        raise SourceUnavailableError(message, hint="run again; if it stays so, tell the partner")

    def _forget(self) -> None:
        self.stream.seek(0)
        self.stream.truncate()
        self.received, self.size, self.validator, self.headers = 0, None, "", None


def _age_s(answer: httpx.Response) -> float | None:
    """Return how long the file had been as it is, by the server's own clock."""
    changed, now = changed_at(answer), answered_at(answer)
    return None if changed is None or now is None else now - changed


def name_of(address: str) -> str:
    """Return what people call the file at an address: its name, or its host."""
    parts = urlsplit(address.rpartition("::")[2])
    return PurePosixPath(parts.path).name or parts.hostname or without_secrets(address)
