"""Who we are to Google: credentials read from a file, or those of this machine, with the fewest rights that will do.

How they are used is `google_wire`'s; where the file is comes from the environment, by `access`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google.auth
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2.credentials import Credentials as UserCredentials
from google.oauth2.service_account import Credentials as ServiceAccount

from connectors.sources.access import GoogleAccess
from mappings.errors import ConfigError

_SCOPE = "https://www.googleapis.com/auth/"
_READING = (f"{_SCOPE}spreadsheets.readonly", f"{_SCOPE}drive.metadata.readonly")
_WRITING = (f"{_SCOPE}spreadsheets", f"{_SCOPE}drive.metadata.readonly")
_NAMED = "GOOGLE_APPLICATION_CREDENTIALS"
_GUIDE = "docs/connectors.md tells how to make a service account"


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials, and the address of the account that they are for, "" where they do not tell."""

    credentials: Credentials
    account: str = ""


def google_login(access: GoogleAccess, *, writes: bool = False) -> Login:
    """Return our credentials; nobody is asked yet. `writes`: they are to be good for writing too.

    The scope for the metadata of files lets us see a file's version and find it by its title, never its content.

    Raises:
        ConfigError: there are none, or the file cannot be used.
    """
    scopes = _WRITING if writes else _READING
    if access.credentials is None:
        return _of_this_machine(scopes)
    content = _content(access.credentials)
    try:
        return _of_file(content, scopes)
    except (ValueError, GoogleAuthError) as error:
        raise ConfigError(f"{access.credentials} is not a whole file of credentials: {error}", hint=_GUIDE) from error


def _of_this_machine(scopes: tuple[str, ...]) -> Login:
    try:
        credentials, _ = google.auth.default(scopes=scopes)
    except GoogleAuthError as error:
        hint = f"set {_NAMED} to the file of a service account; {_GUIDE}"
        raise ConfigError("there are no credentials for Google", hint=hint) from error
    account = getattr(credentials, "service_account_email", "")
    return Login(credentials, account if "@" in str(account) else "")


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{_NAMED}: cannot read {path}: {error.strerror}", hint=_GUIDE) from error
    except ValueError:
        # Without its cause: that would hold the file's text, which is secret.
        raise ConfigError(f"{path} is no file of credentials: it is not JSON", hint=_GUIDE) from None
    return content if isinstance(content, dict) else {}


def _of_file(content: Mapping[str, Any], scopes: tuple[str, ...]) -> Login:
    match content.get("type"):
        case "service_account":
            account = ServiceAccount.from_service_account_info(content, scopes=scopes)  # type: ignore[no-untyped-call]
            return Login(account, str(content.get("client_email", "")))
        case "authorized_user" | None if "refresh_token" in content:
            return Login(_of_person(content), str(content.get("account", "")))
        case kind:
            raise ValueError(f'its type is "{kind}", and should be "service_account" or "authorized_user"')


def _of_person(content: Mapping[str, Any]) -> Credentials:
    """Return what a person has lent us: with the scopes that they agreed to, as asking for others would be refused."""
    checked = UserCredentials.from_authorized_user_info(content)  # type: ignore[no-untyped-call]
    return UserCredentials(  # type: ignore[no-untyped-call]
        None,
        refresh_token=checked.refresh_token,
        token_uri=content.get("token_uri", checked.token_uri),
        client_id=checked.client_id,
        client_secret=checked.client_secret,
    )
