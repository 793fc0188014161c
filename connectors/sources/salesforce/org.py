"""One Salesforce org during a reading: the login, and requests that are repeated while it is busy; its errors with advice.

simple-salesforce logs in, and sends requests through our session: it has no time limits, follows redirects with the token, and
puts its addresses together itself. It neither repeats requests nor replaces a session that has ended.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from xml.parsers.expat import ExpatError

import requests
import urllib3
from jwt.exceptions import PyJWTError
from rapidfuzz import process
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceAuthenticationFailed, SalesforceError, SalesforceExpiredSession
from simple_salesforce.login import SalesforceLogin
from simple_salesforce.util import exception_handler

from connectors.addresses import is_loopback
from connectors.retry import RetryPolicy, http_date, retry_after_s, retry_on
from connectors.sources.contract import (
    Access,
    BadSourceError,
    Clock,
    SalesforceAccess,
    SourceRefusedError,
    SourceUnavailableError,
)
from connectors.sources.rows import NumberText
from connectors.sources.service_answers import BusyError, ServiceSession, check_trust, read_whole
from mappings.columns import folded
from mappings.errors import ConfigError, SyncError

T = TypeVar("T")
API_VERSION = "59.0"
"""The version of the API; each is supported for years."""
CONNECT_S = 10.0
READ_S = 130.0
"""Salesforce itself gives a query up after 120 seconds."""
POLICY = RetryPolicy(attempts=7, budget_s=180.0, first_wait_s=1.0, longest_wait_s=30.0)
"""How often and how long requests to a busy org are repeated."""
DAY_SPENT_S = 3600.0
"""The daily requests are counted over the last 24 hours: some are free again an hour later."""

_USAGE = re.compile(r"(?:^|[\s,;])api-usage=(\d+)/(\d+)", re.ASCII)
_LONGEST_MESSAGE = 500
_LONGEST_PAGE = 10_000
_NEAR_SCORE = 60.0
_BUSY_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
_CLEARS = frozenset({"SERVER_UNAVAILABLE", "UNABLE_TO_LOCK_ROW", "UNKNOWN_EXCEPTION", "REQUEST_LIMIT_EXCEEDED"})
_QUERY = frozenset({"MALFORMED_QUERY", "INVALID_FIELD", "INVALID_QUERY_FILTER_OPERATOR", "INVALID_TYPE", "QUERY_TOO_COMPLICATED"})
_NOT_ALLOWED = frozenset(
    {"API_DISABLED_FOR_ORG", "API_CURRENTLY_DISABLED", "INSUFFICIENT_ACCESS", "INSUFFICIENT_ACCESS_OR_READONLY"}
)
_MARKUP = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_NO_FIELD = re.compile(r"No such column '([\w.]+)' on entity '(\w+)'")
_LIMIT_HINT = "run again in an hour; other programs of the org use its daily requests too: `check --live` shows how many are left"
_LATER = "run again later"
NO_SALESFORCE = "check SALESFORCE_INSTANCE_URL"
_NO_LOGIN = "no Salesforce login is set"
_LOGINS_HINT = (
    "set SALESFORCE_USERNAME, SALESFORCE_PASSWORD and SALESFORCE_SECURITY_TOKEN; or SALESFORCE_USERNAME, SALESFORCE_CONSUMER_KEY"
    " and SALESFORCE_PRIVATEKEY_FILE (JWT); or SALESFORCE_CONSUMER_KEY, SALESFORCE_CONSUMER_SECRET and SALESFORCE_DOMAIN"
)
_LOGIN_BUSY = frozenset({"SERVER_UNAVAILABLE", "LOGIN_RATE_EXCEEDED", "temporarily_unavailable", "rate_limit_exceeded"})
_LOGIN_HINTS = {
    "INVALID_LOGIN": "check user, password and security token (a new password brings a new token); for a sandbox"
    " SALESFORCE_DOMAIN is test",
    "LOGIN_MUST_USE_SECURITY_TOKEN": "set SALESFORCE_SECURITY_TOKEN: it is sent by Salesforce when the user resets it",
    "API_DISABLED_FOR_ORG": "this edition of Salesforce, or this user, has no API: the permission is called API Enabled",
    "INVALID_OPERATION": "SOAP logins may be switched off in the org: use a connected app, with JWT or client credentials",
    "invalid_grant": "check user, password or certificate, that the user may use the connected app, and SALESFORCE_DOMAIN",
    "invalid_client": "check SALESFORCE_CONSUMER_KEY and SALESFORCE_CONSUMER_SECRET",
    "invalid_client_id": "check SALESFORCE_CONSUMER_KEY; a new connected app needs ten minutes before it works",
    "unsupported_grant_type": "switch the flow on in the connected app",
}


class LocatorLostError(SourceUnavailableError):
    """Salesforce has forgotten a query whose pages we were reading: too long ago, or more than ten others since."""


class SlowQueryError(BusyError):
    """Salesforce gave a query up because it took too long."""


class _NewSessionRefusedError(SourceRefusedError):
    """A session that was opened a moment ago is not accepted."""


class OrgSession(ServiceSession):
    """The connections to one org, and facts from its answers' headers: requests `used` of those `allowed` in 24 hours, and the
    org's time.

    With `instance_url` every request, including logins, goes there instead of to simple-salesforce's own address
    (`https://{domain}.salesforce.com`): a My Domain address, or a server on this machine. `status`: that of the last answer.
    """

    def __init__(self, instance_url: str) -> None:
        super().__init__()
        self._instance = urlsplit(checked_url(instance_url))
        self.used = self.allowed = self.status = 0
        self.now: datetime | None = None
        self.retry_after_s: float | None = None

    @property
    def share(self) -> float:
        """The used share of the daily requests, 0 while nothing is known."""
        return self.used / self.allowed if self.allowed else 0.0

    # The base class takes fifteen parameters by position; those after the address pass through unchanged.
    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; redirects are answers like others, as they would carry our token elsewhere."""
        is_streamed = kwargs.get("stream", False)
        kwargs = {"timeout": (CONNECT_S, READ_S), **kwargs, "allow_redirects": False, "stream": True}
        if self._instance.netloc:
            url = urlunsplit(urlsplit(url)._replace(scheme=self._instance.scheme, netloc=self._instance.netloc, fragment=""))
        response = super().request(method, url, *args, **kwargs)
        self.status, self.retry_after_s = response.status_code, retry_after_s(response.headers)
        if match := _USAGE.search(response.headers.get("Sforce-Limit-Info", "")):
            self.used, self.allowed = int(match[1]), int(match[2])
        self.now = http_date(response.headers.get("Date", "")) or self.now
        hint = "ask for fewer fields, or write api: bulk"
        return response if is_streamed else read_whole(response, "Salesforce", hint=hint)


def checked_url(url: str) -> str:
    """Return the scheme and host of an instance's address, "" for none.

    Raises:
        ConfigError: it is not an address, or not encrypted.
    """
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query:
        message = "SALESFORCE_INSTANCE_URL is not the address of an org"
        raise ConfigError(message, hint="write it like https://example.my.salesforce.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        message = f"SALESFORCE_INSTANCE_URL ({parts.hostname}) is not encrypted, so passwords could be read on the way"
        raise ConfigError(message, hint="write https:// instead of http://")
    return f"{parts.scheme}://{parts.netloc}"


def refusal_error(about: str, status: int, content: Any, retry_after_s: float | None) -> SyncError:
    """Return the error for a refusal; `about` is what was requested: an object, a query's job."""
    code, text = _code_and_message(content)
    message = f"Salesforce answered {status}{f' {code}' if code else ''} to {about}{f': {text}' if text else ''}"
    if code == "INVALID_QUERY_LOCATOR":
        return LocatorLostError(message, hint=_LATER)
    if code == "REQUEST_LIMIT_EXCEEDED" and "oncurrent" not in text:
        return SourceUnavailableError(message, hint=_LIMIT_HINT, retry_after_s=DAY_SPENT_S)
    if code == "QUERY_TIMEOUT":
        return SlowQueryError(message, hint="narrow `source.where`, or write api: bulk", retry_after_s=retry_after_s)
    if code in _CLEARS or status in _BUSY_STATUSES or status >= 500:
        return BusyError(message, hint=_LATER, retry_after_s=retry_after_s)
    if code in _QUERY:
        return BadSourceError(
            about, message, hint="correct `source` in the mapping file; `check --live` shows the fields there are"
        )
    hints = {
        403: 'the user needs the permission "API Enabled", and to see the object and its fields',
        404: "check the object's name, and that the user may see it",
        **dict.fromkeys((414, 431), "the query is too long for a page: ask for fewer fields, or write api: bulk"),
    }
    return SourceRefusedError(
        message, hint=hints.get(403 if code in _NOT_ALLOWED else status, "ask the administrator of the org")
    )


def one_line(text: str) -> str:
    """Return a text in one line; of an HTML page its first words without markup."""
    is_page = text.lstrip()[:1] == "<"
    return " ".join((_MARKUP.sub(" ", text[:_LONGEST_PAGE]) if is_page else text).split())


def _code_and_message(content: Any) -> tuple[str, str]:
    """Return the error code and the message of an answer of any shape."""
    if isinstance(content, list) and content:
        content = content[0]
    code = ""
    if isinstance(content, dict):
        code, content = str(content.get("errorCode", content.get("error", ""))), content.get("message", "")
    text = one_line(content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content))
    return code, text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def log_in(access: Access, session: OrgSession) -> tuple[str, str]:
    """Return a session's token and the host of the org; the mask learns the token.

    Raises:
        ConfigError: what the environment gives is no login.
        SourceRefusedError: Salesforce refuses the login.
        SourceUnavailableError: it did not answer.
    """
    arguments = _login_arguments(access.salesforce)
    access.mask.learn(*(value for name, value in arguments.items() if value and name not in ("username", "consumer_key")))
    try:
        with warnings.catch_warnings():
            # simple-salesforce warns on stderr of what it also raises.
            warnings.simplefilter("ignore")
            token, host = SalesforceLogin(session=session, sf_version=API_VERSION, domain=access.salesforce.domain, **arguments)
    except SalesforceAuthenticationFailed as error:
        raise _login_error(str(error.code or ""), access.mask.hide(error.auth_message), session) from None
    except requests.RequestException as error:
        check_trust(error, "Salesforce")
        # Without the cause: what it knows of the request holds the password.
        reason = access.mask.hide(f"{type(error).__name__}: {error}")
        raise BusyError(f"Salesforce did not answer to our login: {reason}", hint=_LATER) from None
    except (ExpatError, AttributeError, KeyError, TypeError):
        raise _not_salesforce() from None
    except (PyJWTError, ValueError) as error:
        message = f"{access.salesforce.privatekey_file} is not the private key of a JWT login ({type(error).__name__})"
        raise ConfigError(message, hint="it is a PEM file: -----BEGIN PRIVATE KEY-----") from None
    if not token or not host:
        raise SourceRefusedError("the login's answer holds no session", hint="check SALESFORCE_DOMAIN")
    access.mask.learn(token)
    return token, host


def _login_arguments(access: SalesforceAccess) -> dict[str, Any]:
    secret, password = access.consumer_secret.get_secret_value(), access.password.get_secret_value()
    if access.username and access.consumer_key and access.privatekey_file:
        try:
            key = access.privatekey_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"SALESFORCE_PRIVATEKEY_FILE cannot be read: {error}"
            raise ConfigError(message, hint="name a PEM file that we may read") from None
        return {"username": access.username, "consumer_key": access.consumer_key, "privatekey": key}
    app = {"consumer_key": access.consumer_key, "consumer_secret": secret} if access.consumer_key and secret else {}
    if access.username and password:
        token = access.security_token.get_secret_value() or None
        return {"username": access.username, "password": password, "security_token": token, **app}
    if app and access.domain in ("login", "test"):
        message = f"a login by client credentials goes to the org's own domain, and SALESFORCE_DOMAIN is {access.domain}"
        raise ConfigError(message, hint="set SALESFORCE_DOMAIN=example.my for https://example.my.salesforce.com")
    if app:
        return app
    raise ConfigError(_NO_LOGIN, hint=_LOGINS_HINT)


def _not_salesforce() -> SourceRefusedError:
    message = "the server that answered the login is not Salesforce"
    return SourceRefusedError(message, hint="check SALESFORCE_DOMAIN and SALESFORCE_INSTANCE_URL")


def _login_error(code: str, text: str, session: OrgSession) -> SyncError:
    short = one_line(text)[:300]
    message = f"Salesforce refuses the login{f' ({code})' if code else ''}: {short or 'without a reason'}"
    if code == "UNKNOWN_EXCEPTION_CODE":
        # simple-salesforce's own word for an answer that holds neither a session nor a fault.
        return _not_salesforce()
    if code == "REQUEST_LIMIT_EXCEEDED":
        return refusal_error("our login", session.status, {"errorCode": code, "message": short}, session.retry_after_s)
    # A login that is refused for good is a 500 as well, with a code; a gateway's page has none.
    if code in _LOGIN_BUSY or code.startswith("5") or session.status in _BUSY_STATUSES or (session.status >= 500 and not code):
        return BusyError(message, hint=_LATER, retry_after_s=session.retry_after_s)
    hint = _LOGIN_HINTS.get(code, "check the SALESFORCE_ variables, and the user's login history")
    return SourceRefusedError(message, hint=hint)


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a query: `total` of all its pages, `more` the address of the next page, "" at the end."""

    records: Sequence[Mapping[str, Any]]
    total: int
    more: str

    @classmethod
    def of(cls, answer: Any) -> Page:
        """Parse an answer, which has one shape for a query and for child rows."""
        try:
            return cls(answer["records"], int(answer["totalSize"]), "" if answer["done"] else answer["nextRecordsUrl"])
        except (KeyError, TypeError, ValueError) as error:
            place = "the answer does not look like Salesforce's"
            raise BadSourceError(place, f"a page of records lacks {error}", hint=NO_SALESFORCE) from error


class Org:
    """The org that `access` leads to; the caller closes it. No request is sent before the first method call."""

    def __init__(self, access: Access, clock: Clock) -> None:
        """Raises ConfigError if `instance_url` is not an address."""
        self.access, self.clock = access, clock
        self.session = OrgSession(access.salesforce.instance_url)
        self._salesforce: Salesforce | None = None

    @property
    def address(self) -> str:
        """The address under which a person opens the org's records."""
        known = f"https://{self._salesforce.sf_instance}" if self._salesforce else ""
        return self.access.salesforce.instance_url.rstrip("/") or known

    def close(self) -> None:
        """Close the connections."""
        self.session.close()

    def describe(self, name: str) -> Mapping[str, Any]:
        """Return the description of an object with the fields that we may see.

        Raises:
            SourceRefusedError: there is no such object that we may see; the most similar one is named.
        """
        try:
            return self.call("GET", f"sobjects/{name}/describe", about=name)
        except SourceRefusedError as error:
            if error.__cause__ is None or " 404" not in str(error):
                raise
            known = [one["name"] for one in self.call("GET", "sobjects").get("sobjects", ())]
            hint = "the names of custom objects end in __c; the user must be allowed to see the object"
            message = f"Salesforce has no object {name} that our user may see"
            raise SourceRefusedError(message, hint=_with_nearest(name, known, hint)) from error

    def query(self, soql: str, *, with_deleted: bool = False) -> Page:
        """Return the first page of a query.

        Raises:
            BadSourceError: it is refused; of a field that is not there, the nearest one is named.
        """
        try:
            return Page.of(self.ask("the query", lambda org: org.query(soql, include_deleted=with_deleted)))
        except BadSourceError as error:
            if match := _NO_FIELD.search(str(error)):
                known = [one["name"] for one in self.describe(match[2])["fields"]]
                error.hint = _with_nearest(match[1], known, error.hint)
            raise

    def more(self, address: str) -> Page:
        """Return a further page.

        Raises:
            LocatorLostError: the query is forgotten, or was known to a former session only.
            SourceUnavailableError: the pages have no end.
        """
        try:
            page = Page.of(self.ask("the next page", lambda org: org.query_more(address, identifier_is_url=True)))
        except _NewSessionRefusedError as error:
            raise LocatorLostError(str(error), hint=error.hint) from error
        if page.more == address:
            raise SourceUnavailableError("Salesforce gave a page of records whose next page is itself", hint=_LATER)
        return page

    def limits(self) -> Mapping[str, Any]:
        """Return the org's limits: of each, `Max` and `Remaining`."""
        return dict(self.ask("its limits", lambda org: org.limits()) or {})

    def call(self, method: str, path: str, content: Mapping[str, Any] | None = None, *, about: str = "") -> Mapping[str, Any]:
        """Send a request under the API's root, with `content` as JSON; `about` is its name in messages."""
        return dict(self.ask(about or path, lambda org: org.restful(path, method=method, json=content)) or {})

    def call_once(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> None:
        """Send a request that is not repeated if the org is busy."""
        self._once(path, lambda org: org.restful(path, method=method, json=content))

    def stream(self, path: str, **params: str | int) -> requests.Response:
        """Request a text that may be long; the caller reads the answer's body and closes it."""

        def request(org: Salesforce) -> requests.Response:
            headers = {**org.headers, "Accept": "text/csv"}
            response = org.session.request("GET", f"{org.base_url}{path}", headers=headers, params=params, stream=True)
            if response.status_code >= 300:
                exception_handler(response, name=path)
            return response

        return self.ask(path, request)

    def ask(self, about: str, request: Callable[[Salesforce], T]) -> T:
        """Send a request; repeat it with a new session if the old one has ended, and a moment later if the org is busy.

        Raises:
            SourceUnavailableError: it stayed busy, or the daily requests are used up.
            SourceRefusedError, BadSourceError: it refuses the request.
            LocatorLostError: it has forgotten the query.
        """
        clock = self.clock
        once = partial(self._once, about, request)
        return retry_on(BusyError, once, POLICY, sleep=clock.sleep, random=clock.chance, clock=clock.clock_s)

    def _once(self, about: str, request: Callable[[Salesforce], T], *, is_new: bool = False) -> T:
        """Send a request once, and again in a new session if the old one has ended."""
        try:
            return request(self._opened())
        except SalesforceExpiredSession as error:
            if is_new:
                message = f"Salesforce accepted the login and then refused its session, when asked for {about}"
                hint = "check the user's session settings: locked to an IP address, or to a domain"
                raise _NewSessionRefusedError(message, hint=hint) from error
        except SalesforceError as error:
            found = refusal_error(about, error.status, error.content, self.session.retry_after_s)
            found.args = tuple(self.access.mask.hide(str(arg)) for arg in found.args)
            raise found from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            check_trust(error, "Salesforce")
            reason = self.access.mask.hide(f"{type(error).__name__}: {error}")
            raise BusyError(f"Salesforce did not answer to {about}: {reason}", hint=_LATER) from error
        self._salesforce = None
        return self._once(about, request, is_new=True)

    def _opened(self) -> Salesforce:
        if self._salesforce is None:
            token, host = log_in(self.access, self.session)
            self._salesforce = Salesforce(
                session_id=token,
                instance=host,
                session=self.session,
                version=API_VERSION,
                parse_float=NumberText,
                object_pairs_hook=dict,
            )
            # simple-salesforce asks for it; it makes pages half as large again.
            self._salesforce.headers.pop("X-PrettyPrint", None)
        return self._salesforce


def _with_nearest(name: str, known: Sequence[str], hint: str) -> str:
    near = process.extractOne(name, known, processor=folded, score_cutoff=_NEAR_SCORE)
    return f"did you mean {near[0]}? {hint}" if near else hint
