"""Fetching a file from another machine through fsspec, and sorting what can go wrong on the way.

Nothing here knows what the file holds; files of this machine never come here.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import fsspec

from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from mappings.errors import PermanentError, TransientError

_CHUNK_BYTES = 1024 * 1024
_HTTP_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
_EVIDENCE = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime")


@contextlib.contextmanager
def fetched(address: str) -> Iterator[tuple[BinaryIO, str]]:
    """Copy the file at `address` to a nameless temporary file; give it, open, and the stamp.

    The stamp is what the other side says of the version (ETag, Last-Modified), else a digest of the bytes.

    The stamp is asked for before the bytes: if the file changes in between, the next run reads it once too often,
    never once too seldom.

    Raises:
        SourceRefusedError: no such file, no access, a 4xx, or an address that nothing here can open.
        SourceUnavailableError: 408, 425, 429, 5xx, time-outs and broken connections.
    """
    with contextlib.ExitStack() as open_things:
        # The file outlives its name: nothing is left behind, not even by `kill -9`.
        with TemporaryDirectory(prefix="eventsync-") as folder:
            copy = Path(folder, "source")
            stamp = _fetch(address, copy)
            stream = open_things.enter_context(copy.open("rb"))
        yield stream, stamp or _digest(stream)


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""):
        digest.update(chunk)
    stream.seek(0)
    return f"blake2b={digest.hexdigest()}"


def without_secrets(address: str) -> str:
    """Return an address as it may be shown: no user, no password, no query (tokens travel in all three)."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))


def _fetch(address: str, copy: Path) -> str:
    try:
        stamp = _copy(address, copy)
    except (aiohttp.ClientError, OSError, ValueError, ImportError) as error:
        # Without the cause: it repeats the address with its secrets, and a traceback would show it.
        raise _sorted_out(without_secrets(address), str(error).replace(address, without_secrets(address)), error) from None
    if not copy.is_file():
        raise SourceRefusedError(f"{without_secrets(address)} is not a file", hint="name the file itself in `source.path`")
    return stamp


def _copy(address: str, copy: Path) -> str:
    filesystem, path = fsspec.url_to_fs(address, **_options(address))
    stamp = _stamp(filesystem, path)
    filesystem.get_file(path, str(copy))
    return stamp


def _sorted_out(shown: str, said: str, error: Exception) -> PermanentError | TransientError:
    match error:
        case aiohttp.ClientResponseError():
            return _answered(shown, error)
        case FileNotFoundError() | IsADirectoryError():
            return SourceRefusedError(f"there is no file at {shown}", hint="check `source.path` with the partner")
        case PermissionError():
            return SourceRefusedError(f"we may not read {shown}: {said}", hint="check this machine's credentials for it")
        case ValueError() | ImportError():
            return SourceRefusedError(f"{shown} cannot be opened: {said}", hint="check the address, or install its driver")
        case _:
            kind = type(error).__name__
            return SourceUnavailableError(f"{shown} could not be fetched: {said or kind}", hint="run again later")


def _options(address: str) -> dict[str, Any]:
    if address.lower().startswith(("http://", "https://")):
        # A file system of its own for each reading: no connection outlives it, no listing is remembered.
        return {"client_kwargs": {"timeout": _HTTP_TIMEOUT}, "skip_instance_cache": True, "use_listings_cache": False}
    return {"skip_instance_cache": True}


def _stamp(filesystem: Any, path: str) -> str:
    # A server may refuse HEAD and still give the file: what is truly wrong shows when we fetch it.
    with contextlib.suppress(aiohttp.ClientError, OSError):
        found = filesystem.info(path)
        return next((f"{name}={found[name]}" for name in _EVIDENCE if found.get(name)), "")
    return ""


def _answered(shown: str, error: aiohttp.ClientResponseError) -> PermanentError | TransientError:
    said = f"{shown} answered {error.status} {error.message}".rstrip()
    if error.status in _WORTH_ANOTHER_TRY or error.status >= 500:
        return SourceUnavailableError(said, hint="run again later", retry_after_s=_retry_after_s(error))
    return SourceRefusedError(said, hint="check the address and the access with the partner")


def _retry_after_s(error: aiohttp.ClientResponseError) -> float | None:
    asked = error.headers.get("Retry-After", "") if error.headers else ""
    return float(asked) if asked.isascii() and asked.isdecimal() else None
