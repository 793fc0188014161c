"""The one door through which requests go to Salesforce: time limits on all of them, one address if one was named.

simple-salesforce logs in and speaks REST over it; what answers mean is `salesforce_org`'s.
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
from requests.adapters import HTTPAdapter
from simple_salesforce.exceptions import SalesforceAuthenticationFailed
from simple_salesforce.login import SalesforceLogin

from connectors.addresses import is_loopback
from connectors.retry import http_date, retry_after_s
from connectors.sources.environment import Access, SalesforceAccess
from connectors.sources.errors import BadSourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.service_answers import read_whole
from mappings.errors import ConfigError, SyncError

CONNECT_S = 10.0
READ_S = 130.0
"""Salesforce itself gives a query up after 120 seconds."""
_USAGE = re.compile(r"(?:^|[\s,;])api-usage=(\d+)/(\d+)", re.ASCII)


@dataclass(slots=True)
class Told:
    """What answers said beside their content: requests used of those allowed in 24 hours, and the org's own time.

    `sent`: the requests that this reading sent, logins among them. `status`: that of the last answer, 0 before the first.
    """

    used: int = 0
    allowed: int = 0
    now: datetime | None = None
    retry_after_s: float | None = None
    sent: int = 0
    status: int = 0

    @property
    def share(self) -> float:
        """The share of the daily requests that is used, 0 while nothing is known."""
        return self.used / self.allowed if self.allowed else 0.0

    def hear(self, response: requests.Response) -> None:
        """Note what an answer's head says."""
        self.status = response.status_code
        if match := _USAGE.search(response.headers.get("Sforce-Limit-Info", "")):
            self.used, self.allowed = int(match[1]), int(match[2])
        self.retry_after_s = retry_after_s(response.headers)
        self.now = http_date(response.headers.get("Date", "")) or self.now


class OrgSession(requests.Session):
    """The connections to one org.

    simple-salesforce puts its addresses together itself (`https://{domain}.salesforce.com`); with `instance_url` every request,
    logins too, goes there instead: a My Domain address, or a server on this machine.
    """

    def __init__(self, instance_url: str, told: Told) -> None:
        super().__init__()
        # Without one, requests looks for a password in ~/.netrc and sends that instead of our token.
        self.auth = _as_it_is
        self._instance = checked_url(instance_url)
        self._told = told

    # The base class takes fifteen parameters by position; those after the address pass through as they are.
    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; redirects are answers like others, as they would lead our token elsewhere."""
        kwargs.setdefault("timeout", (CONNECT_S, READ_S))
        kwargs["allow_redirects"] = False
        self._told.sent += 1
        is_streamed = kwargs.get("stream", False)
        kwargs["stream"] = True
        response = super().request(method, self._where(url), *args, **kwargs)
        self._told.hear(response)
        hint = "ask for fewer fields, or write api: bulk"
        return response if is_streamed else read_whole(response, "Salesforce", hint=hint)

    def close(self) -> None:
        """Close the connections: now, and not when the last traceback that knows of them is forgotten."""
        adapters = [one for one in self.adapters.values() if isinstance(one, HTTPAdapter)]
        for manager in (manager for one in adapters for manager in (one.poolmanager, *one.proxy_manager.values())):
            for key in manager.pools.keys():  # noqa: SIM118  # it is no mapping that could be iterated itself
                manager.pools[key].close()
        super().close()

    def _where(self, url: str) -> str:
        if not self._instance:
            return url
        wanted, parts = urlsplit(self._instance), urlsplit(url)
        return urlunsplit((wanted.scheme, wanted.netloc, parts.path, parts.query, ""))


def checked_url(url: str) -> str:
    """Return an instance's address without its end, "" for none.

    Raises:
        ConfigError: it is no address, or one to which passwords would travel unencrypted.
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


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


DAY_SPENT_S = 3600.0
"""The daily requests are counted over the last 24 hours: some are free again an hour later."""
_LONGEST_TOLD = 500
_CLEARS = frozenset({"SERVER_UNAVAILABLE", "UNABLE_TO_LOCK_ROW", "UNKNOWN_EXCEPTION"})
_QUERY = frozenset({"MALFORMED_QUERY", "INVALID_FIELD", "INVALID_QUERY_FILTER_OPERATOR", "INVALID_TYPE", "QUERY_TOO_COMPLICATED"})
_NOT_LET = frozenset({"API_DISABLED_FOR_ORG", "API_CURRENTLY_DISABLED", "INSUFFICIENT_ACCESS", "INSUFFICIENT_ACCESS_OR_READONLY"})
_LOST = "INVALID_QUERY_LOCATOR"
_MARKUP = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LONGEST_PAGE = 10_000
_NO_FIELD = re.compile(r"No such column '([\w.]+)' on entity '(\w+)'")
_LIMIT_HINT = "run again in an hour; other programs of the org use its daily requests too: `check --live` shows how many are left"


class LocatorLostError(SourceUnavailableError):
    """Salesforce has forgotten a query that was being paged through: too long ago, or more than ten others since.

    Pages are gone on with; where nobody can, it is the reading's own error.
    """


class BusyError(SourceUnavailableError):
    """Salesforce cannot answer just now; a moment later it may."""


class SlowQueryError(BusyError):
    """Salesforce gave a query up because it took too long."""


def sorted_out(about: str, status: int, content: Any, *, retry_after_s: float | None = None) -> SyncError:
    """Return what a refusal means; `about` is what was asked: an object, a query's job."""
    code, said = _told(content)
    message = f"Salesforce answered {status}{f' {code}' if code else ''} to {about}{f': {said}' if said else ''}"
    if code == _LOST:
        return LocatorLostError(message, hint="run again later")
    if code == "REQUEST_LIMIT_EXCEEDED" and "oncurrent" not in said:
        return SourceUnavailableError(message, hint=_LIMIT_HINT, retry_after_s=DAY_SPENT_S)
    if code == "QUERY_TIMEOUT":
        return SlowQueryError(message, hint="narrow `source.where`, or write api: bulk", retry_after_s=retry_after_s)
    if code in _CLEARS or code == "REQUEST_LIMIT_EXCEEDED" or status in (408, 425, 429) or status >= 500:
        return BusyError(message, hint="run again later", retry_after_s=retry_after_s)
    return _for_a_person(about, code, status, message)


def words_of(said: str) -> str:
    """Return a text in one line, of a page the words of its beginning alone."""
    is_page = said.lstrip()[:1] == "<"
    return " ".join((_MARKUP.sub(" ", said[:_LONGEST_PAGE]) if is_page else said).split())


def no_such_field(error: BaseException) -> tuple[str, str] | None:
    """Return the field and the object that a refused query names, if it does."""
    match = _NO_FIELD.search(str(error))
    return (match[1], match[2]) if match else None


def unreachable(about: str, said: str) -> BusyError:
    """Return the error for a connection that could not be made or broke."""
    return BusyError(f"Salesforce did not answer to {about}: {said}", hint="run again later")


def _for_a_person(about: str, code: str, status: int, message: str) -> SyncError:
    if code in _QUERY:
        return BadSourceError(
            about, message, hint="correct `source` in the mapping file; `check --live` shows the fields there are"
        )
    if code in _NOT_LET or status == 403:
        return SourceRefusedError(
            message, hint='the user needs the permission "API Enabled", and to see the object and its fields'
        )
    if status in (414, 431):
        return SourceRefusedError(message, hint="the query is too long for a page: ask for fewer fields, or write api: bulk")
    if status == 404:
        return SourceRefusedError(message, hint="check the object's name, and that the user may see it")
    return SourceRefusedError(message, hint="ask whoever looks after the org")


def _told(content: Any) -> tuple[str, str]:
    """Return the code and the words of an answer, however it is made."""
    if isinstance(content, Sequence) and not isinstance(content, str | bytes) and content:
        content = content[0]
    if isinstance(content, dict):
        code, said = str(content.get("errorCode", content.get("error", ""))), str(content.get("message", ""))
    else:
        code, said = "", content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
    said = words_of(said)
    return code, said if len(said) <= _LONGEST_TOLD else f"{said[:_LONGEST_TOLD]}…"


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
