"""Files in stores by fsspec: SFTP servers, buckets of S3, Google and Azure, and others with a driver.

Drivers need not be installed, and their exceptions are converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.config import conf
from fsspec.implementations.local import LocalFileSystem

from connectors.addresses import refusal_of_host
from connectors.sources.contract import NoFolderError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.choice import Files, FoundFile, LocalFiles, fixed_folder, name_of
from connectors.sources.files.opened_file import StoredFile, digest_of
from connectors.sources.files.web import FetchLimits
from mappings.allowed_files import OutsideError
from mappings.errors import DISK_IS_FULL, ConfigError, SyncError
from mappings.spec.source_words import without_secrets

_EXTRAS = {
    **dict.fromkeys(("sftp", "ssh"), "sftp"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "azure"),
}
"""The extra with the driver of each scheme."""

_REFUSALS = frozenset(
    {
        *("ClientAuthenticationError", "DefaultCredentialsError", "KeyEncryptionError", "KeyImportError"),
        *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "RefreshError"),
    }
)
"""Exceptions of drivers, by name, that need a person to grant access."""

_LOCAL = frozenset({"file", "local"})
_INDIRECT = frozenset({"dir", "generic", "git", "reference"})
"""Schemes of drivers that open other file systems by what they read or are configured with."""
_PIECE_BYTES = 4 * 1024 * 1024
_EVIDENCE = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated")
_TIMES = ("mtime", "LastModified", "last_modified", "updated")
_FRESH_S = 60.0
"""A time of change within so many seconds of now may belong to two versions: some servers give whole seconds, by their own
clock.
"""


@dataclass(frozen=True, slots=True)
class StoreFiles(Files):
    """The files of a store, by address. `local`: the door to local files, which an address may lead to, too.

    `_store`: an open connection, None to open one for each request.
    """

    bounds: FetchLimits
    local: LocalFiles
    _store: Any = field(default=None, repr=False)

    @contextmanager
    def connected(self, path: str) -> Iterator[StoreFiles]:
        """Use a single connection: opening one takes longer than fetching a small file."""
        with _sorted_errors(path):
            store = _store_at(path, self.local)
        try:  # errors in the block are not the store's
            yield replace(self, _store=store)
        finally:
            _close(store)

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[Any, str]]:
        with nullcontext(self) if self._store else self.connected(path) as files, _sorted_errors(path):
            yield files._store, files._store._strip_protocol(path)  # noqa: SLF001  # as `url_to_fs` itself does it

    def find(self, path: str) -> FoundFile | None:
        """Return the file at an address, None if there is none."""
        with self._at(path) as (store, inside):
            try:
                return self._found(path, name_of(path), store.info(inside))
            except FileNotFoundError:
                return None

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match a pattern, unordered.

        Raises:
            NoFolderError: the pattern's folder does not exist.
            SourceRefusedError: we may not list it.
        """
        with self._at(pattern) as (store, inside):
            folder = fixed_folder(inside)
            if folder.strip("/") and not store.isdir(folder):
                # A bucket has no folders: only where the store has, its absence is a mistake. Listing shows what is wrong.
                try:
                    store.ls(folder)
                except FileNotFoundError:
                    message = f"there is no folder {folder} at {without_secrets(pattern)}"
                    raise NoFolderError(message, hint="check `source.path`") from None
            root = pattern[: len(pattern) - len(inside)] if pattern.endswith(inside) else ""
            return [
                self._found(f"{root}{path}", path.removeprefix(folder).strip("/"), found)
                for path, found in store.glob(inside, detail=True).items()
                if found.get("type") == "file"
            ]

    def _found(self, path: str, label: str, found: Mapping[str, Any]) -> FoundFile:
        version, changed = _version_of(found), _changed_at(found)
        is_fresh = changed is not None and self.bounds.clock.now() - changed < _FRESH_S
        firm = version if not is_fresh or version.lower().startswith("etag=") else ""
        return FoundFile(path, label, f"{firm} size={found.get('size')}" if firm else "", changed, found.get("size"))

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Yield a copy of the file at an address.

        The version is compared before and after the transfer, so that no copy mixes two versions.

        Raises:
            ConfigError: the driver for this kind of address is not installed.
            SourceRefusedError: no such file, no access, too large, or not an address.
            SourceUnavailableError: it did not arrive, or not completely, or changed meanwhile.
        """
        shown = without_secrets(path)
        with ExitStack() as open_things:
            # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
            copy = open_things.enter_context(TemporaryFile(prefix="eventsync-"))
            with self._at(path) as (store, inside):
                before = store.info(inside)
                if before.get("type") == "directory":
                    raise SourceRefusedError(f"{shown} is a folder", hint='name its files: "*.csv" after its last slash')
                size, version = before.get("size"), _version_of(before)
                self.bounds.check_size(size or 0, shown)
                with store.open(inside, "rb", block_size=_PIECE_BYTES) as stream:
                    received = self.bounds.copy(iter(partial(stream.read, _PIECE_BYTES), b""), copy, shown)
                after = store.info(inside)
                if (after.get("size"), _version_of(after)) != (size, version) or size not in {None, received}:
                    raise SourceUnavailableError(f"{shown} changed while we fetched it", hint="run again later")
            stamp = f"{version} size={received}" if version else digest_of(copy)
            yield StoredFile(copy, name_of(path), stamp, has_known_end=size is not None)


def _version_of(found: Mapping[str, Any]) -> str:
    return next((f"{name}={found[name]}" for name in _EVIDENCE if found.get(name)), "")


def _changed_at(found: Mapping[str, Any]) -> float | None:
    match next((found[name] for name in _TIMES if found.get(name)), None):
        case datetime() as changed:
            return (changed if changed.tzinfo else changed.replace(tzinfo=UTC)).timestamp()
        case int() | float() as changed:
            return float(changed)
        case _:
            return None


def _check_local(link: str, local: LocalFiles, *, is_first: bool) -> None:
    """Raise OutsideError for a link of an address that leads to a local file outside of the feed's folders."""
    scheme, mark, _ = link.partition("://")
    if (mark or is_first) and scheme.lower() in _INDIRECT:
        raise OutsideError(f"{scheme}:// may lead to any file of this machine", hint="name the file's own path or address")
    if scheme.lower() in _LOCAL or not (mark or is_first):
        local.check(str(LocalFileSystem._strip_protocol(link)))  # noqa: SLF001  # as the driver itself reads it


def _store_at(address: str, local: LocalFiles) -> Any:
    for place, link in enumerate(address.split("::")):  # fsspec chains file systems: `simplecache::sftp://host/file`
        _check_local(link, local, is_first=place == 0)
        if refusal := refusal_of_host(urlsplit(link).hostname or ""):
            message = f"{without_secrets(link)} {refusal}"
            raise SourceRefusedError(message, hint="nothing is ever read from there; check `source.path`")
    # A file system of its own for each reading: no connection outlives it, no listing is remembered.
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if urlsplit(address).scheme in {"sftp", "ssh"}:
        # Servers that the user knows, as `ssh` itself insists on; the driver alone would trust any.
        known = {} if "known_hosts" in conf.get("sftp", {}) else {"known_hosts": ()}
        options = {"skip_instance_cache": True, **known, "connect_timeout": 30, "login_timeout": 30, "keepalive_interval": 15}
    store, _ = fsspec.url_to_fs(address, **options)
    return store


def _close(store: Any) -> None:
    """Close the connections now; the driver would only do so on garbage collection."""
    with suppress(Exception):
        match store.protocol:
            case "sftp":
                store._finalize(store.loop, store._pool, store._stack)  # noqa: SLF001  # the driver has no public way
            case ("s3", *_):
                store.close_session(store.loop, store.s3)
            case _:
                pass


_FAULTS = (ArithmeticError, AssertionError, AttributeError, NameError, TypeError)
"""Exceptions that show a bug in a driver or in eventsync, which a later run would not clear."""


@contextmanager
def _sorted_errors(address: str) -> Iterator[None]:
    """Convert a driver's exception to an error of the source.

    Raises:
        ConfigError: the driver for this kind of address is not installed.
        SourceRefusedError: no such file, no access, or not an address.
        SourceUnavailableError: any other error.
    """
    try:
        yield
    except (SyncError, *_FAULTS):
        raise
    except OSError as error:
        if error.errno in DISK_IS_FULL:  # of our own copy
            raise
        raise _sorted_out(address, error) from None
    except Exception as error:  # noqa: BLE001  # each driver has errors of its own, and some have no common root
        # Without the cause: it repeats the address with its secrets, and a traceback would show it.
        raise _sorted_out(address, error) from None


def _sorted_out(address: str, error: Exception) -> SyncError:
    shown, scheme, kind = without_secrets(address), urlsplit(address).scheme, type(error).__name__
    text = f"{str(error) or kind}".replace(address, shown)
    match error:
        case ImportError() if scheme in _EXTRAS:
            message = f"{shown} cannot be opened: the driver of {scheme}:// is not installed"
            return ConfigError(message, hint=f"run `pip install 'eventsync[{_EXTRAS[scheme]}]'`")
        case FileNotFoundError() | IsADirectoryError():
            return SourceRefusedError(f"there is no file at {shown}", hint="check `source.path` with the partner")
        case ImportError() | ValueError():
            return SourceRefusedError(f"{shown} cannot be opened: {text}", hint="check the address, or install its driver")
        case _ if isinstance(error, PermissionError) or kind in _REFUSALS:
            return SourceRefusedError(f"we may not read {shown}: {text}", hint="check this machine's credentials for it")
        case _ if kind == "HostKeyNotVerifiable":
            hint = "have the partner give you the server's key, and write it into ~/.ssh/known_hosts (`FSSPEC_SFTP_KNOWN_HOSTS`)"
            return SourceRefusedError(f"{shown} is on a server that this machine does not know: {text}", hint=hint)
        case _:
            return SourceUnavailableError(f"{shown} could not be fetched: {text}", hint="run again later")
