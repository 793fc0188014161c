"""Who we are to Google: credentials read from a file, or those of this machine, with the fewest rights that will do.

How they are used is `google_wire`'s; where the file is comes from the environment, by `access`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import google.auth
import orjson
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.oauth2.credentials import Credentials as UserCredentials
from google.oauth2.service_account import Credentials as ServiceAccount
from gspread.http_client import HTTPClient
from gspread.urls import DRIVE_FILES_API_V3_URL, SPREADSHEETS_API_V4_BASE_URL
from requests import PreparedRequest, RequestException, Response, Session, TooManyRedirects
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from connectors.masking import Mask
from connectors.retry import RetryPolicy, ask_again_until, retry_after_s
from connectors.sources.environment import Clock, GoogleAccess
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from connectors.sources.service_answers import read_whole
from mappings.errors import ConfigError, SyncError

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


_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RATES = frozenset({"RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "backendError"})
_DISABLED = frozenset({"SERVICE_DISABLED", "accessNotConfigured"})
_SCOPES = frozenset({"ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficientPermissions", "insufficientScopes"})
_MOST_SHOWN = 300
_LONG_PAUSE_S = 120.0


class GridMovedError(SourceUnavailableError):
    """What we asked for is not there any more, and the same request will not bring it back: one must look anew."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than a success. `what` is what was asked for, in words; `account` who asked, "" if unknown.

    `asked_s`: the pause that it asks for, None if it asks for none. `writes`: it was to be written, for which one needs more
    leave than for reading.
    """

    status: int
    body: bytes
    asked_s: float | None
    what: str
    account: str
    writes: bool = False

    def error(self) -> SyncError:
        """Return what is to be told: a `SourceUnavailableError` if another attempt may help."""
        told = _error_of(self.body)
        message, reasons = _message(told), frozenset(_reasons(told))
        said = f"{self.what}: Google answered {self.status}{f' ({message})' if message else ''}"
        if self.status in _PASSING or reasons & _RATES:
            return SourceUnavailableError(said, hint=self._patience(), retry_after_s=self._pause_s())
        match self.status:
            case 400:
                return _bad_request(said, message, self._account())
            case 401:
                return SourceRefusedError(said, hint="the credentials are not accepted: make a new key for the account")
            case 403:
                return SourceRefusedError(said, hint=self._missing_leave(reasons, told))
            case 404:
                hint = f"check the address in `source.spreadsheet`, and that it is shared with {self._account()}"
                return SourceRefusedError(said, hint=hint)
            case _:
                return SourceRefusedError(said, hint="check `source.spreadsheet` and the account's rights")

    def _pause_s(self) -> float | None:
        return 60.0 if self.asked_s is None and self.status == 429 else self.asked_s

    def _patience(self) -> str:
        pause_s = self._pause_s() or 0.0
        if pause_s > _LONG_PAUSE_S:
            return f"Google asks for a pause of {pause_s:,.0f} s: run again after it"
        if self.status == 429:
            return "the quota is 60 requests a minute for an account, 300 for a project: run again in a minute, or ask for more"
        return "run again in a few minutes"

    def _missing_leave(self, reasons: frozenset[str], told: Mapping[str, Any]) -> str:
        if reasons & _DISABLED or "has not been used in project" in _message(told):
            where = next((one["activationUrl"] for one in _metadata(told) if "activationUrl" in one), "")
            return f"switch the API on in the project of the account{f': {where}' if where else ''}"
        if reasons & _SCOPES:
            right = "write to" if self.writes else "read"
            made = f"the credentials were made without the right to {right} spreadsheets"
            return f"{made}: use a service account, or log in anew with it"
        if self.writes:
            return f"share the spreadsheet with {self._account()} as an editor, and let it edit the columns if they are protected"
        return f"share the spreadsheet with {self._account()} (Share, Viewer is enough)"

    def _account(self) -> str:
        return self.account or "the account that GOOGLE_APPLICATION_CREDENTIALS is for"


def _bad_request(said: str, message: str, account: str) -> SyncError:
    if "exceeds grid limits" in message or "Unable to parse range" in message:
        return GridMovedError(said, hint="the tab was changed while it was read: run again; else check `source.range`")
    if "protected cell" in message:
        hint = f"let {account} edit the columns that we write (Data, Protect sheets and ranges)"
        return SourceRefusedError(said, hint=hint)
    if "not supported for this document" in message:
        hint = "it is an Office file kept on Drive: save it as Google Sheets (File), or read the file by `kind: xlsx`"
        return SourceRefusedError(said, hint=hint)
    return SourceRefusedError(said, hint="check `source.spreadsheet`, `source.tab` and `source.range`")


def _error_of(body: bytes) -> Mapping[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    found = content.get("error") if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def _message(told: Mapping[str, Any]) -> str:
    """Return Google's own words; a page of HTML or whatever else came says nothing."""
    return " ".join(str(told.get("message", "")).split())[:_MOST_SHOWN]


def _reasons(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons of a refusal: Drive lists them under `errors`, Sheets under `details`."""
    for part in ("errors", "details"):
        for one in told.get(part) or ():
            if isinstance(one, dict) and isinstance(one.get("reason"), str):
                yield one["reason"]


def _metadata(told: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (
        one["metadata"] for one in told.get("details") or () if isinstance(one, dict) and isinstance(one.get("metadata"), dict)
    )


_TIMEOUT_S = (10.0, 180.0)
"""To connect, and between two pieces of an answer: Google itself gives up a request after 180 s."""
_BRIEF_TIMEOUT_S = (10.0, 20.0)
"""The same where we can do without the answer."""
_TOKEN_TIMEOUT_S = 30.0
_INSISTENCE = RetryPolicy(attempts=9, budget_s=240.0, first_wait_s=1.0, longest_wait_s=64.0)
"""A minute's quota comes back within a minute: together these waits are longer (backoff as Google's usage limits advise)."""
_A_MINUTE = 55
"""Requests in 60 s, of the 60 that an account has: others may be using it too."""
_GOOGLE = (SPREADSHEETS_API_V4_BASE_URL.partition("/v4/")[0], DRIVE_FILES_API_V3_URL.partition("/drive/")[0])


@dataclass(frozen=True, slots=True)
class Question:
    """One request. `what` says in words what is asked for, for people; `read` makes of the answer what is wanted of it.

    `read` raises ValueError if the answer is not whole. `insists`: else it is asked once, and not for long.
    """

    address: str
    what: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    read: Callable[[bytes], Any] = orjson.loads
    insists: bool = True

    @property
    def method(self) -> str:
        """Whatever has a body writes."""
        return "get" if self.body is None else "post"


class GoogleWire(HTTPClient):
    """Gspread's client, held to time-outs, quota and bounds. It closes its connections when its `with` block ends.

    Gspread writes Google's addresses as constants, so another place (`api_url`: a look-alike, a gateway) is put into each address
    just before it is asked. The token is renewed here and not by google-auth's own session, which asks a further service of
    Google's about each service account, in a thread of its own. `asked` counts the requests that went out.
    """

    def __init__(self, login: Login, api_url: str, mask: Mask, clockwork: Clock) -> None:
        super().__init__(login.credentials, Session())
        self.session.max_redirects = 0
        self.session.auth = _as_it_is
        self.session.mount("https://", _Adapter())
        self.session.mount("http://", _Adapter())
        self.set_timeout(_TIMEOUT_S)
        self.asked = 0
        self._login, self._api_url, self._mask, self._clockwork = login, api_url, mask, clockwork
        self._lately: deque[float] = deque(maxlen=_A_MINUTE)

    def ask(self, question: Question) -> Any:
        """Return what `question.read` makes of the answer.

        Raises:
            SourceUnavailableError: no answer that can be used within the bounds; `retry_after_s` where Google named a time.
            SourceRefusedError: Google refuses it.
        """
        began = self._clockwork.clock_s()
        answer = ask_again_until(
            lambda answer: (
                not question.insists or not isinstance(answer, SourceUnavailableError) or isinstance(answer, GridMovedError)
            ),
            lambda: self._tried(question),
            wait_s=self._wait_s,
            is_spent=lambda tried, wait_s: _INSISTENCE.is_spent(tried, self._clockwork.clock_s() - began, wait_s),
            sleep=self._clockwork.sleep,
        )
        if isinstance(answer, SyncError):
            raise answer
        return answer

    def _wait_s(self, tried: int, answer: object) -> float:
        asked_s = answer.retry_after_s if isinstance(answer, SourceUnavailableError) else None
        return max(_INSISTENCE.wait_s(tried, self._clockwork.chance), asked_s or 0.0)

    def _tried(self, question: Question) -> Any:
        """Return the parsed answer, or the error that stands for it."""
        self._keep_to_quota()
        self.asked += 1
        try:
            response = self._sent(question)
            return question.read(response.content) if response.ok else self._refused(question, response)
        except SyncError as error:
            return error
        except ValueError as error:
            return _caused(SourceUnavailableError(f"{question.what}: Google's answer was cut off", hint="run again"), error)

    def _sent(self, question: Question) -> Response:
        try:
            response = self._sent_once(question)
            if response.status_code == 401:  # a token may end before its time
                self._login.credentials.expiry = None
                self._login.credentials.token = None
                response = self._sent_once(question)
        except TooManyRedirects as error:
            hint = "check EVENTSYNC_SHEETS_URL: our token is never carried elsewhere"
            raise SourceRefusedError(f"{question.what}: Google's address leads elsewhere", hint=hint) from error
        except (RequestException, HTTPError, TransportError) as error:
            told = SourceUnavailableError(
                f"{question.what}: Google did not answer ({type(error).__name__})", hint="run again later"
            )
            raise told from error
        except GoogleAuthError as error:
            raise _not_let_in(error, question.what) from error
        return response

    def _sent_once(self, question: Question) -> Response:
        credentials, headers = self._login.credentials, dict[str, str]()
        if not credentials.valid:
            credentials.refresh(partial(Request(self.session), timeout=_TOKEN_TIMEOUT_S))  # type: ignore[no-untyped-call]
            self._mask.learn(str(credentials.token or ""))
        credentials.apply(headers)  # type: ignore[no-untyped-call]
        response = self.session.request(
            question.method,
            self._at(question.address),
            params=question.params,
            json=question.body,
            headers=headers,
            timeout=self.timeout if question.insists else _BRIEF_TIMEOUT_S,
            stream=True,
        )
        return read_whole(response, f"{question.what}: Google", hint="read fewer columns: name them in `source.range`")

    def _refused(self, question: Question, response: Response) -> SyncError:
        pause_s = retry_after_s(response.headers)
        account, writes = self._login.account, question.body is not None
        return Refusal(response.status_code, response.content, pause_s, question.what, account, writes).error()

    def _at(self, address: str) -> str:
        for address_of_google in _GOOGLE:
            if self._api_url and address.startswith(address_of_google):
                return self._api_url.rstrip("/") + address.removeprefix(address_of_google)
        return address

    def _keep_to_quota(self) -> None:
        now = self._clockwork.clock_s()
        if len(self._lately) == _A_MINUTE and now - self._lately[0] < 60.0:
            self._clockwork.sleep(60.0 - (now - self._lately[0]))
        self._lately.append(self._clockwork.clock_s())


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    """Sign nothing: the token is in the headers already, and what `~/.netrc` says of the host would take its place."""
    return request


class _Adapter(HTTPAdapter):
    """Closes its connections when it is closed, and not when the last error that knows of them is forgotten (as urllib3 does)."""

    def close(self) -> None:
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 # this container knows no other way to be gone through
                if (pool := manager.pools.get(key)) is not None:
                    pool.close()
        super().close()


def _not_let_in(error: GoogleAuthError, what: str) -> SyncError:
    """Tell of a token that we were not given: for now, or for good (RFC 6749, section 5.2)."""
    said = str(error.args[0]) if error.args else type(error).__name__
    if error.retryable:
        return SourceUnavailableError(f"{what}: Google gave us no token ({said})", hint="run again later")
    if "invalid_scope" in said:
        hint = "the account may not ask for the rights that docs/connectors.md names: use a service account of its own for this"
        return SourceRefusedError(f"{what}: Google does not give us the rights that we need ({said})", hint=hint)
    hint = "the key was deleted, the consent withdrawn, or this machine's clock is wrong: make a new key, or log in anew"
    return SourceRefusedError(f"{what}: Google does not accept our credentials ({said})", hint=hint)


def _caused(error: SyncError, cause: Exception) -> SyncError:
    error.__cause__ = cause
    return error
