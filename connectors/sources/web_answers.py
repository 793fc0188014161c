"""What a web server's answer says of a file: whether it is there, of which version, since when, and which part of it came.

Nothing is asked here, and nothing is read but headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx

from connectors.retry import http_date, retry_after_s
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError

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
