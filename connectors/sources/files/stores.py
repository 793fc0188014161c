"""What the drivers of stores raise, and what it means for a source: each has errors of its own, and need not be installed.

How stores are opened and asked is `store_files`'.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.config import conf

from connectors.addresses import refusal_of_host
from connectors.sources.errors import NoFolderError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.fetching import Fetching, Watch
from connectors.sources.files.opened_file import FoundFile, KeptFile, OpenStored, digest_of, through_a_copy
from connectors.sources.files.web import name_of
from mappings.errors import ConfigError, SyncError
from mappings.spec.source_words import without_secrets

_EXTRAS = {
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "azure"),
}
"""The extra that brings the driver of a scheme."""
_OWN_ERRORS = (
    ("aiohttp", "ClientError"),
    ("asyncssh", "Error"),
    ("azure.core.exceptions", "AzureError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
"""The roots of the drivers' errors that are none of Python's own; a driver that is not loaded raises nothing."""
_REFUSALS = frozenset(
    {
        *("ClientAuthenticationError", "DefaultCredentialsError", "KeyEncryptionError", "KeyImportError"),
        *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "RefreshError"),
    }
)
"""Errors of drivers, by name, that no other attempt clears: a person must let us in first."""


def driver_errors() -> tuple[type[Exception], ...]:
    """Return all that the drivers loaded by now may raise because of their store, the network or the way in."""
    loaded = ((sys.modules.get(module), name) for module, name in _OWN_ERRORS)
    own = tuple(vars(module)[name] for module, name in loaded if module is not None and name in vars(module))
    return (OSError, ValueError, ImportError, *own)


@contextmanager
def sorted_errors(address: str) -> Iterator[None]:
    """Turn what a driver raises into what it means for a source.

    Raises:
        ConfigError: the driver of this kind of address is not installed.
        SourceRefusedError: no such file, no access, or no address at all.
        SourceUnavailableError: anything else.
    """
    try:
        yield
    except SyncError:
        raise
    except driver_errors() as error:
        # Without the cause: it repeats the address with its secrets, and a traceback would show it.
        raise _sorted_out(address, error) from None


def _sorted_out(address: str, error: Exception) -> SyncError:
    shown = without_secrets(address)
    said = f"{str(error) or type(error).__name__}".replace(address, shown)
    match error:
        case ImportError():
            return _not_installed(address, said)
        case FileNotFoundError() | IsADirectoryError():
            return SourceRefusedError(f"there is no file at {shown}", hint="check `source.path` with the partner")
        case PermissionError():
            return SourceRefusedError(f"we may not read {shown}: {said}", hint="check this machine's credentials for it")
        case ValueError():
            return SourceRefusedError(f"{shown} cannot be opened: {said}", hint="check the address, or install its driver")
        case _:
            return _by_name(shown, said, error)


def _by_name(shown: str, said: str, error: Exception) -> SyncError:
    kind = type(error).__name__
    if kind == "HostKeyNotVerifiable":
        hint = "have the partner tell you the server's key, and write it into ~/.ssh/known_hosts (`FSSPEC_SFTP_KNOWN_HOSTS`)"
        return SourceRefusedError(f"{shown} is on a server that this machine does not know: {said}", hint=hint)
    if kind in _REFUSALS:
        return SourceRefusedError(f"we may not read {shown}: {said}", hint="check this machine's credentials for it")
    return SourceUnavailableError(f"{shown} could not be fetched: {said}", hint="run again later")


def _not_installed(address: str, said: str) -> ConfigError | SourceRefusedError:
    scheme = urlsplit(address).scheme
    if scheme in _EXTRAS:
        hint = f"run `pip install 'eventsync[{_EXTRAS[scheme]}]'`"
        return ConfigError(f"{without_secrets(address)} cannot be opened: the driver of {scheme}:// is not installed", hint=hint)
    message = f"{without_secrets(address)} cannot be opened: {said}"
    return SourceRefusedError(message, hint="check the address, or install its driver")


_PIECE_BYTES = 4 * 1024 * 1024
_EVIDENCE = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated")
_TIMES = ("mtime", "LastModified", "last_modified", "updated")
_FRESH_S = 60.0
"""A time of change so close to now may stand for two versions: some servers tell it in whole seconds, by a clock of their own."""
_CACHES: Mapping[str, object] = {"skip_instance_cache": True, "use_listings_cache": False}
"""A file system of its own for each reading: no connection outlives it, no listing is remembered."""


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The files of a store, by their addresses. `_store`: the connection to use, None to make one for each question."""

    bounds: Fetching
    _store: Any = field(default=None, repr=False)

    @contextmanager
    def connected(self, path: str) -> Iterator[StoreFiles]:
        """Give the same files through one connection: to make one takes longer than to fetch a small file."""
        with sorted_errors(path):
            store, _ = _store_at(path)
        try:  # what fails in the block is not the store's
            yield replace(self, _store=store)
        finally:
            _close(store)

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[Any, str]]:
        if self._store is None:
            with _opened_store(path) as opened:
                yield opened
            return
        with sorted_errors(path):
            yield self._store, self._store._strip_protocol(path)  # noqa: SLF001  # as `url_to_fs` itself does it

    def shown(self, path: str) -> str:
        """Return an address as it may be shown."""
        return without_secrets(path)

    def look(self, path: str) -> FoundFile | None:
        """Return what is at an address, None if nothing is."""
        with self._at(path) as (store, inside):
            try:
                found = store.info(inside)
            except FileNotFoundError:
                return None
            return self._found(path, name_of(path), found)

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match, in no order.

        Raises:
            NoFolderError: the folder that they should lie in is not there.
            SourceRefusedError: it is closed to us.
        """
        with self._at(pattern) as (store, inside):
            folder = _fixed_folder(inside)
            if folder.strip("/") and not store.isdir(folder):
                _ensure_told(store, folder, pattern)
            listed = store.glob(inside, detail=True)
            root = pattern[: len(pattern) - len(inside)] if pattern.endswith(inside) else ""
            return [
                self._found(f"{root}{path}", path.removeprefix(folder).strip("/"), found)
                for path, found in listed.items()
                if found.get("type") == "file"
            ]

    def _found(self, path: str, label: str, found: Mapping[str, Any]) -> FoundFile:
        version, changed = _version_of(found), _changed_at(found)
        is_fresh = changed is not None and self.bounds.clockwork.now() - changed < _FRESH_S
        firm = version if not is_fresh or version.lower().startswith("etag=") else ""
        return FoundFile(path, label, f"{firm} size={found.get('size')}" if firm else "", changed, found.get("size"))

    def at(self, path: str) -> OpenStored:
        """Return what fetches the file at an address."""
        return through_a_copy(lambda: self.kept_at(path))

    @contextmanager
    def kept_at(self, path: str) -> Iterator[KeptFile]:
        """Give a copy of the file at an address.

        What the store says of the version is asked for before the bytes and after them: no copy is of two versions.

        Raises:
            ConfigError: the driver of this kind of address is not installed.
            SourceRefusedError: no such file, no access, too large, or no address at all.
            SourceUnavailableError: it did not come, or not whole, or changed meanwhile.
        """
        shown = without_secrets(path)
        with ExitStack() as open_things:
            # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
            copy = open_things.enter_context(TemporaryFile(prefix="eventsync-"))
            with self._at(path) as (store, inside):
                before = store.info(inside)
                if before.get("type") == "directory":
                    raise SourceRefusedError(f"{shown} is a folder", hint='name its files: "*.csv" after its last slash')
                watch = Watch.begun(self.bounds, shown)
                watch.announced(before.get("size") or 0)
                with store.open(inside, "rb", block_size=_PIECE_BYTES) as stream:
                    received = 0
                    while piece := stream.read(_PIECE_BYTES):
                        copy.write(piece)
                        received += len(piece)
                        watch.saw(len(piece), received)
                if _mark(store.info(inside)) != _mark(before) or before.get("size") not in {None, received}:
                    raise SourceUnavailableError(f"{shown} changed while we fetched it", hint="run again later")
            version, has_known_end = _version_of(before), before.get("size") is not None
            stamp = f"{version} size={received}" if version else digest_of(copy)
            yield KeptFile(copy, name_of(path), stamp, has_known_end=has_known_end)


def _mark(found: Mapping[str, Any]) -> tuple[object, str]:
    return found.get("size"), _version_of(found)


def _version_of(found: Mapping[str, Any]) -> str:
    return next((f"{name}={found[name]}" for name in _EVIDENCE if found.get(name)), "")


def _changed_at(found: Mapping[str, Any]) -> float | None:
    changed = next((found[name] for name in _TIMES if found.get(name)), None)
    match changed:
        case datetime():
            return (changed if changed.tzinfo else changed.replace(tzinfo=UTC)).timestamp()
        case int() | float():
            return float(changed)
        case _:
            return None


def _fixed_folder(pattern: str) -> str:
    parts = pattern.split("/")[:-1]
    fixed = next((place for place, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    return "/".join(parts[:fixed])


def _ensure_told(store: Any, folder: str, pattern: str) -> None:
    """A bucket has no folders: only where the store has, its absence is a mistake. Listing tells what is wrong."""
    try:
        store.ls(folder)
    except FileNotFoundError:
        message = f"there is no folder {folder} at {without_secrets(pattern)}"
        raise NoFolderError(message, hint="check `source.path`") from None


@contextmanager
def _opened_store(address: str) -> Iterator[tuple[Any, str]]:
    with sorted_errors(address):
        store, inside = _store_at(address)
        try:
            yield store, inside
        finally:
            _close(store)


def _store_at(address: str) -> tuple[Any, str]:
    for link in address.split("::"):  # fsspec chains file systems: `simplecache::sftp://host/file`
        refusal = refusal_of_host(urlsplit(link).hostname or "")
        if refusal:
            message = f"{without_secrets(link)} {refusal}"
            raise SourceRefusedError(message, hint="nothing is ever read from there; check `source.path`")
    store, inside = fsspec.url_to_fs(address, **_options(address))
    return store, inside


def _options(address: str) -> dict[str, Any]:
    match urlsplit(address).scheme:
        case "sftp" | "ssh":
            # Servers that the user knows, as `ssh` itself insists on; the driver alone would trust anybody.
            known = {} if "known_hosts" in conf.get("sftp", {}) else {"known_hosts": ()}
            return {"skip_instance_cache": True, **known, "connect_timeout": 30, "login_timeout": 30, "keepalive_interval": 15}
        case _:
            return dict(_CACHES)


def _close(store: Any) -> None:
    """Close the connections now; what the driver would do when its object is collected, some time."""
    with suppress(*driver_errors()):
        match store.protocol:
            case "sftp":
                store._finalize(store.loop, store._pool, store._stack)  # noqa: SLF001  # the driver has no other door
            case ("s3", *_):
                store.close_session(store.loop, store.s3)
            case _:
                pass
