"""The HTTP session of a Salesforce org, the login, and errors with advice; simple-salesforce logs in and sends through it.

simple-salesforce has no time limits, follows redirects with the token, and puts its addresses together itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from xml.parsers.expat import ExpatError

import requests
from jwt.exceptions import PyJWTError
from simple_salesforce.exceptions import SalesforceAuthenticationFailed
from simple_salesforce.login import SalesforceLogin

from connectors.addresses import is_loopback
from connectors.retry import http_date, retry_after_s
from connectors.sources.contract import Access, SalesforceAccess
from connectors.sources.errors import BadSourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.service_answers import BusyError, ServiceSession, read_whole
from mappings.errors import ConfigError, SyncError

CONNECT_S = 10.0
READ_S = 130.0
"""Salesforce itself gives a query up after 120 seconds."""
_USAGE = re.compile(r"(?:^|[\s,;])api-usage=(\d+)/(\d+)", re.ASCII)


@dataclass(slots=True)
class OrgUsage:
    """What the headers of answers said: requests used of those allowed in 24 hours, and the org's own time.

    `sent`: the requests of this reading, logins among them. `status`: that of the last answer, 0 before the first.
    """

    used: int = 0
    allowed: int = 0
    now: datetime | None = None
    retry_after_s: float | None = None
    sent: int = 0
    status: int = 0

    @property
    def share(self) -> float:
        """The used share of the daily requests, 0 while nothing is known."""
        return self.used / self.allowed if self.allowed else 0.0

    def update(self, response: requests.Response) -> None:
        """Take over what an answer's headers say."""
        self.status = response.status_code
        if match := _USAGE.search(response.headers.get("Sforce-Limit-Info", "")):
            self.used, self.allowed = int(match[1]), int(match[2])
        self.retry_after_s = retry_after_s(response.headers)
        self.now = http_date(response.headers.get("Date", "")) or self.now


class OrgSession(ServiceSession):
    """The connections to one org.

    With `instance_url` every request, logins too, goes there instead of to simple-salesforce's own address
    (`https://{domain}.salesforce.com`): a My Domain address, or a server on this machine.
    """

    def __init__(self, instance_url: str, usage: OrgUsage) -> None:
        super().__init__()
        self._instance = urlsplit(checked_url(instance_url))
        self._usage = usage

    # The base class takes fifteen parameters by position; those after the address pass through unchanged.
    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; redirects are answers like others, as they would carry our token elsewhere."""
        kwargs.setdefault("timeout", (CONNECT_S, READ_S))
        kwargs["allow_redirects"] = False
        is_streamed = kwargs.get("stream", False)
        kwargs["stream"] = True
        if self._instance.netloc:
            parts = urlsplit(url)
            url = urlunsplit((self._instance.scheme, self._instance.netloc, parts.path, parts.query, ""))
        self._usage.sent += 1
        response = super().request(method, url, *args, **kwargs)
        self._usage.update(response)
        hint = "ask for fewer fields, or write api: bulk"
        return response if is_streamed else read_whole(response, "Salesforce", hint=hint)


def checked_url(url: str) -> str:
    """Return the scheme and host of an instance's address, "" for none.

    Raises:
        ConfigError: it is no address, or passwords would travel to it unencrypted.
    """
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query:
        message = "SALESFORCE_INSTANCE_URL is not the address of an org"
        raise ConfigError(message, hint="write it like https://example.my.salesforce.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        message = f"SALESFORCE_INSTANCE_URL ({parts.hostname}) is not encrypted, and passwords would travel to it"
        raise ConfigError(message, hint="write https:// instead of http://")
    return f"{parts.scheme}://{parts.netloc}"


DAY_SPENT_S = 3600.0
"""The daily requests are counted over the last 24 hours: some are free again an hour later."""
_LONGEST_MESSAGE = 500
_CLEARS = frozenset({"SERVER_UNAVAILABLE", "UNABLE_TO_LOCK_ROW", "UNKNOWN_EXCEPTION"})
_QUERY = frozenset({"MALFORMED_QUERY", "INVALID_FIELD", "INVALID_QUERY_FILTER_OPERATOR", "INVALID_TYPE", "QUERY_TOO_COMPLICATED"})
_NOT_ALLOWED = frozenset(
    {"API_DISABLED_FOR_ORG", "API_CURRENTLY_DISABLED", "INSUFFICIENT_ACCESS", "INSUFFICIENT_ACCESS_OR_READONLY"}
)
_MARKUP = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST_PAGE = 10_000
_NO_FIELD = re.compile(r"No such column '([\w.]+)' on entity '(\w+)'")
_LIMIT_HINT = "run again in an hour; other programs of the org use its daily requests too: `check --live` shows how many are left"


class LocatorLostError(SourceUnavailableError):
    """Salesforce has forgotten a query whose pages we were reading: too long ago, or more than ten others since."""


class SlowQueryError(BusyError):
    """Salesforce gave a query up because it took too long."""


def refusal_error(about: str, status: int, content: Any, *, retry_after_s: float | None = None) -> SyncError:
    """Return the error for a refusal; `about` is what was requested: an object, a query's job."""
    code, text = _code_and_message(content)
    message = f"Salesforce answered {status}{f' {code}' if code else ''} to {about}{f': {text}' if text else ''}"
    if code == "INVALID_QUERY_LOCATOR":
        return LocatorLostError(message, hint="run again later")
    if code == "REQUEST_LIMIT_EXCEEDED" and "oncurrent" not in text:
        return SourceUnavailableError(message, hint=_LIMIT_HINT, retry_after_s=DAY_SPENT_S)
    if code == "QUERY_TIMEOUT":
        return SlowQueryError(message, hint="narrow `source.where`, or write api: bulk", retry_after_s=retry_after_s)
    if code in _CLEARS or code == "REQUEST_LIMIT_EXCEEDED" or status in (408, 425, 429) or status >= 500:
        return BusyError(message, hint="run again later", retry_after_s=retry_after_s)
    if code in _QUERY:
        hint = "correct `source` in the mapping file; `check --live` shows the fields there are"
        return BadSourceError(about, message, hint=hint)
    return SourceRefusedError(message, hint=_permanent_hint(code, status))


def _permanent_hint(code: str, status: int) -> str:
    if code in _NOT_ALLOWED or status == 403:
        return 'the user needs the permission "API Enabled", and to see the object and its fields'
    if status in (414, 431):
        return "the query is too long for a page: ask for fewer fields, or write api: bulk"
    if status == 404:
        return "check the object's name, and that the user may see it"
    return "ask the administrator of the org"


def one_line(text: str) -> str:
    """Return a text in one line; of an HTML page its first words without markup."""
    is_page = text.lstrip()[:1] == "<"
    return " ".join((_MARKUP.sub(" ", text[:_LONGEST_PAGE]) if is_page else text).split())


def no_such_field(error: BaseException) -> tuple[str, str] | None:
    """Return the field and the object that the error of a refused query names, if any."""
    match = _NO_FIELD.search(str(error))
    return (match[1], match[2]) if match else None


def unreachable(about: str, reason: str) -> BusyError:
    """Return the error for a connection that could not be made or broke."""
    return BusyError(f"Salesforce did not answer to {about}: {reason}", hint="run again later")


def _code_and_message(content: Any) -> tuple[str, str]:
    """Return the error code and the message of an answer of any shape."""
    if isinstance(content, Sequence) and not isinstance(content, str | bytes) and content:
        content = content[0]
    if isinstance(content, dict):
        code, text = str(content.get("errorCode", content.get("error", ""))), str(content.get("message", ""))
    else:
        code, text = "", content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
    text = one_line(text)
    return code, text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


API_VERSION = "59.0"
"""The version of the API; each is supported for years."""
_NO_LOGIN = "nothing says who we are to Salesforce"
_LOGINS_HINT = (
    "set SALESFORCE_USERNAME, SALESFORCE_PASSWORD and SALESFORCE_SECURITY_TOKEN; or SALESFORCE_USERNAME, SALESFORCE_CONSUMER_KEY"
    " and SALESFORCE_PRIVATEKEY_FILE (JWT); or SALESFORCE_CONSUMER_KEY, SALESFORCE_CONSUMER_SECRET and SALESFORCE_DOMAIN"
)
_NOT_SALESFORCE = "what answers our login does not answer as Salesforce does"
_NOT_SALESFORCE_HINT = "check SALESFORCE_DOMAIN and SALESFORCE_INSTANCE_URL"
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


def log_in(access: Access, session: requests.Session, usage: OrgUsage) -> tuple[str, str]:
    """Return a session's token and the host of the org; the mask learns the token. `usage` is that of `session`.

    Raises:
        ConfigError: what the environment gives is no login.
        SourceRefusedError: Salesforce refuses the login.
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
        raise _login_error(str(error.code or ""), access.mask.hide(error.auth_message), usage) from None
    except requests.RequestException as error:
        # Without the cause: what it knows of the request holds the password.
        raise unreachable("our login", access.mask.hide(f"{type(error).__name__}: {error}")) from None
    except (ExpatError, AttributeError, KeyError, TypeError):
        raise SourceRefusedError(_NOT_SALESFORCE, hint=_NOT_SALESFORCE_HINT) from None
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
    raise ConfigError(_NO_LOGIN, hint=_LOGINS_HINT)


def _key(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"SALESFORCE_PRIVATEKEY_FILE cannot be read: {error}", hint="name a PEM file that we may read"
        ) from None


def _login_error(code: str, text: str, usage: OrgUsage) -> SyncError:
    short = one_line(text)[:300]
    message = f"Salesforce does not let us in{f' ({code})' if code else ''}: {short or 'it does not say why'}"
    if code == "UNKNOWN_EXCEPTION_CODE":
        # simple-salesforce's own word for an answer that holds neither a session nor a fault.
        return SourceRefusedError(_NOT_SALESFORCE, hint=_NOT_SALESFORCE_HINT)
    if code == "REQUEST_LIMIT_EXCEEDED":
        return refusal_error("our login", usage.status, {"errorCode": code, "message": short}, retry_after_s=usage.retry_after_s)
    # A login that is refused for good is a 500 as well, with a code; a gateway's page has none.
    if code in _BUSY or code.startswith("5") or usage.status in _BUSY_STATUSES or (usage.status >= 500 and not code):
        return BusyError(message, hint="run again later", retry_after_s=usage.retry_after_s)
    return SourceRefusedError(message, hint=_HINTS.get(code, "check the SALESFORCE_ variables, and the user's login history"))
