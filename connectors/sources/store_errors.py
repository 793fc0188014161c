"""What the drivers of stores raise, and what it means for a source: each has errors of its own, and need not be installed.

How stores are opened and asked is `store_files`'.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
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
