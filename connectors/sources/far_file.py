"""Fetching a file from another machine through fsspec, and sorting what can go wrong on the way.

Nothing here knows what the file holds; files of this machine never come here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import fsspec

from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from mappings.errors import PermanentError, TransientError

_HTTP_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
_EVIDENCE = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime")


@contextlib.contextmanager
def fetched(address: str) -> Iterator[tuple[BinaryIO, str]]:
    """Copy the file at `address` to a nameless temporary file; give it, open, and the stamp (ETag, Last-Modified or "").

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
        yield stream, stamp


def without_secrets(address: str) -> str:
    """Return an address as it may be shown: no user, no password, no query (tokens travel in all three)."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))


def _fetch(address: str, copy: Path) -> str:
    shown = without_secrets(address)
    try:
        filesystem, path = fsspec.url_to_fs(address, **_options(address))
        stamp = _stamp(filesystem, path)
        filesystem.get_file(path, str(copy))
    except aiohttp.ClientResponseError as error:
        raise _answered(shown, error) from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise SourceRefusedError(f"there is no file at {shown}", hint="check `source.path` with the partner") from error
    except PermissionError as error:
        raise SourceRefusedError(f"we may not read {shown}: {error}", hint="check the credentials of this machine") from error
    except (ValueError, ImportError) as error:
        raise SourceRefusedError(f"{shown} cannot be opened: {error}", hint="check the address, or install its driver") from error
    except (aiohttp.ClientError, OSError) as error:
        raise SourceUnavailableError(f"{shown} did not answer: {_said(error)}", hint="run again later") from error
    if not copy.is_file():
        raise SourceRefusedError(f"{shown} is not a file", hint="give the address of the file itself in `source.path`")
    return stamp


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


def _said(error: Exception) -> str:
    # A connection error of aiohttp names host and port only; other messages may repeat the address with its secrets.
    return str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
