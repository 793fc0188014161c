"""Logging in to Salesforce with whatever the environment gives, by way of simple-salesforce.

What the session is then good for is `salesforce_org`'s.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import requests
from jwt.exceptions import PyJWTError
from simple_salesforce.exceptions import SalesforceAuthenticationFailed
from simple_salesforce.login import SalesforceLogin

from connectors.sources.access import Access, SalesforceAccess
from connectors.sources.errors import SourceRefusedError
from connectors.sources.salesforce.errors import BusyError, sorted_out, unreachable, words_of
from connectors.sources.salesforce.wire import Told
from mappings.errors import ConfigError, SyncError

API_VERSION = "59.0"
"""The version of the API that is spoken; each is kept alive for years."""

_NOTHING = "nothing says who we are to Salesforce"
_WAYS = (
    "set SALESFORCE_USERNAME, SALESFORCE_PASSWORD and SALESFORCE_SECURITY_TOKEN; or SALESFORCE_USERNAME, SALESFORCE_CONSUMER_KEY"
    " and SALESFORCE_PRIVATEKEY_FILE (JWT); or SALESFORCE_CONSUMER_KEY, SALESFORCE_CONSUMER_SECRET and SALESFORCE_DOMAIN"
)
_STRANGER = "what answers our login does not answer as Salesforce does"
_STRANGER_HINT = "check SALESFORCE_DOMAIN and SALESFORCE_INSTANCE_URL"
_BUSY = frozenset({"SERVER_UNAVAILABLE", "LOGIN_RATE_EXCEEDED", "temporarily_unavailable", "rate_limit_exceeded"})
_BUSY_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
_HINTS = {
    "INVALID_LOGIN": "check user, password and security token (a new password brings a new token); for a sandbox"
    " SALESFORCE_DOMAIN is test",
    "LOGIN_MUST_USE_SECURITY_TOKEN": "set SALESFORCE_SECURITY_TOKEN: it is sent by Salesforce when the user resets it",
    "API_DISABLED_FOR_ORG": "this edition of Salesforce, or this user, has no API: the permission is called API Enabled",
    "INVALID_OPERATION": "SOAP logins may be switched off in the org: use a connected app, with JWT or client credentials",
    "invalid_grant": "check user, password or certificate, that the user is let into the connected app, and SALESFORCE_DOMAIN",
    "invalid_client": "check SALESFORCE_CONSUMER_KEY and SALESFORCE_CONSUMER_SECRET",
    "invalid_client_id": "check SALESFORCE_CONSUMER_KEY; a new connected app needs ten minutes before it works",
    "unsupported_grant_type": "switch the flow on in the connected app",
}


def log_in(access: Access, session: requests.Session, told: Told) -> tuple[str, str]:
    """Return a session's token and the host of the org; the mask learns the token. `told` is what `session` has heard.

    Raises:
        ConfigError: what the environment gives is no login.
        SourceRefusedError: Salesforce does not let us in.
        SourceUnavailableError: it did not answer.
    """
    arguments = _arguments(access.salesforce)
    access.mask.learn(*(value for name, value in arguments.items() if value and name not in ("username", "consumer_key")))
    try:
        with warnings.catch_warnings():
            # simple-salesforce warns on stderr of what it also raises.
            warnings.simplefilter("ignore")
            token, host = SalesforceLogin(session=session, sf_version=API_VERSION, domain=access.salesforce.domain, **arguments)
    except SalesforceAuthenticationFailed as error:
        raise _refused(str(error.code or ""), access.mask.hide(error.auth_message), told) from None
    except requests.RequestException as error:
        # Without the cause: what it knows of the request holds the password.
        raise unreachable("our login", access.mask.hide(f"{type(error).__name__}: {error}")) from None
    except (ExpatError, AttributeError, KeyError, TypeError):
        raise SourceRefusedError(_STRANGER, hint=_STRANGER_HINT) from None
    except (PyJWTError, ValueError) as error:
        message = f"{access.salesforce.privatekey_file} is not the private key of a JWT login ({type(error).__name__})"
        raise ConfigError(message, hint="it is a PEM file: -----BEGIN PRIVATE KEY-----") from None
    if not token or not host:
        raise SourceRefusedError("the login's answer holds no session", hint="check SALESFORCE_DOMAIN") from None
    access.mask.learn(token)
    return token, host


def _arguments(access: SalesforceAccess) -> dict[str, Any]:
    secret = access.consumer_secret.get_secret_value()
    if access.username and access.consumer_key and access.privatekey_file:
        return {"username": access.username, "consumer_key": access.consumer_key, "privatekey": _key(access.privatekey_file)}
    if access.username and access.password.get_secret_value():
        app = {"consumer_key": access.consumer_key, "consumer_secret": secret} if access.consumer_key and secret else {}
        token = access.security_token.get_secret_value() or None
        return {"username": access.username, "password": access.password.get_secret_value(), "security_token": token, **app}
    if access.consumer_key and secret:
        if access.domain in ("login", "test"):
            message = f"a login by client credentials goes to the org's own domain, and SALESFORCE_DOMAIN is {access.domain}"
            raise ConfigError(message, hint="set SALESFORCE_DOMAIN=example.my for https://example.my.salesforce.com")
        return {"consumer_key": access.consumer_key, "consumer_secret": secret}
    raise ConfigError(_NOTHING, hint=_WAYS)


def _key(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"SALESFORCE_PRIVATEKEY_FILE cannot be read: {error}", hint="name a PEM file that we may read"
        ) from None


def _refused(code: str, said: str, told: Told) -> SyncError:
    short = words_of(said)[:300]
    message = f"Salesforce does not let us in{f' ({code})' if code else ''}: {short or 'it does not say why'}"
    if code == "UNKNOWN_EXCEPTION_CODE":
        # simple-salesforce's own word for an answer that holds neither a session nor a fault.
        return SourceRefusedError(_STRANGER, hint=_STRANGER_HINT)
    if code == "REQUEST_LIMIT_EXCEEDED":
        return sorted_out("our login", told.status, {"errorCode": code, "message": short}, retry_after_s=told.retry_after_s)
    # A login that is refused for good is a 500 as well, with a code; a gateway's page has none.
    if code in _BUSY or code.startswith("5") or told.status in _BUSY_STATUSES or (told.status >= 500 and not code):
        return BusyError(message, hint="run again later", retry_after_s=told.retry_after_s)
    return SourceRefusedError(message, hint=_HINTS.get(code, "check the SALESFORCE_ variables, and the user's login history"))
