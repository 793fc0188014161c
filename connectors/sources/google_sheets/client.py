"""The HTTP client for Google: credentials, quota, retries, and errors with advice.

It is gspread's `HTTPClient` with another `request`: gspread has no retries within a time limit, no bound on an answer's size,
no other address than Google's own, and its errors do not say what to do.
"""

from __future__ import annotations

import json as json_module
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import google.auth
import orjson
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.oauth2.credentials import Credentials as UserCredentials
from google.oauth2.service_account import Credentials as ServiceAccount
from gspread.http_client import HTTPClient
from gspread.urls import DRIVE_FILES_API_V3_URL, SPREADSHEETS_API_V4_BASE_URL
from requests import RequestException, Response, TooManyRedirects
from urllib3.exceptions import HTTPError

from connectors.masking import Mask
from connectors.retry import RetryPolicy, retry_after_s, retry_on
from connectors.sources.contract import Clock, GoogleAccess, SourceRefusedError, SourceUnavailableError
from connectors.sources.service_answers import BusyError, ServiceSession, check_trust, read_whole
from mappings.errors import ConfigError, SyncError

T = TypeVar("T")
_SCOPE = "https://www.googleapis.com/auth/"
_NAMED = "GOOGLE_APPLICATION_CREDENTIALS"
_GUIDE = "docs/sources.md shows how to make a service account"

TIMEOUT_S = (10.0, 180.0)
"""To connect, and between two pieces of an answer: Google itself gives up a request after 180 s."""
BRIEF_TIMEOUT_S = (10.0, 20.0)
"""The same for an answer that we can do without."""
_TOKEN_TIMEOUT_S = 30.0
_POLICY = RetryPolicy(attempts=9, budget_s=240.0, first_wait_s=1.0, longest_wait_s=64.0)
"""A minute's quota comes back within a minute: together these waits are longer (backoff as Google's usage limits advise)."""
_REQUESTS_A_MINUTE = 55
"""Of the 60 that an account has: other programs may be using it too."""
_GOOGLE = (SPREADSHEETS_API_V4_BASE_URL.partition("/v4/")[0], DRIVE_FILES_API_V3_URL.partition("/drive/")[0])

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RATES = frozenset({"RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "backendError"})
_DISABLED = frozenset({"SERVICE_DISABLED", "accessNotConfigured"})
_SCOPES = frozenset({"ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficientPermissions", "insufficientScopes"})
_LONGEST_MESSAGE = 300
_LONG_PAUSE_S = 120.0


def google_login(access: GoogleAccess, *, writes: bool = False) -> Credentials:
    """Return the credentials with the least rights that suffice; no request is sent yet.

    The scope for file metadata covers a file's version and title, never its content.

    Raises:
        ConfigError: there are none, or the file cannot be used.
    """
    scopes = (f"{_SCOPE}spreadsheets{'' if writes else '.readonly'}", f"{_SCOPE}drive.metadata.readonly")
    path = access.credentials
    try:
        if path is None:
            credentials: Credentials = google.auth.default(scopes=scopes)[0]
            return credentials
        content = json_module.loads(path.read_text("utf-8"))
        return _file_login(content if isinstance(content, dict) else {}, scopes)
    except OSError as error:
        raise ConfigError(f"{_NAMED}: cannot read {path}: {error.strerror}", hint=_GUIDE) from error
    except (json_module.JSONDecodeError, UnicodeDecodeError):
        # Without its cause: that would hold the file's text, which is secret.
        raise ConfigError(f"{path} is no file of credentials: it is not JSON", hint=_GUIDE) from None
    except (ValueError, GoogleAuthError) as error:
        if path is None:
            hint = f"set {_NAMED} to the file of a service account; {_GUIDE}"
            raise ConfigError("there are no credentials for Google", hint=hint) from error
        raise ConfigError(f"{path} is not a whole file of credentials: {error}", hint=_GUIDE) from error


def _file_login(content: Mapping[str, Any], scopes: tuple[str, ...]) -> Credentials:
    match content.get("type"):
        case "service_account":
            account: Credentials = ServiceAccount.from_service_account_info(content, scopes=scopes)  # type: ignore[no-untyped-call]
            return account
        case "authorized_user" | None if "refresh_token" in content:
            user = UserCredentials.from_authorized_user_info(content)  # type: ignore[no-untyped-call]
            # Made anew without scopes: a refresh with other scopes than the user agreed to is refused.
            known = {name: getattr(user, name) for name in ("refresh_token", "client_id", "client_secret", "account")}
            return UserCredentials(None, token_uri=content.get("token_uri", user.token_uri), **known)  # type: ignore[no-untyped-call]
        case kind:
            raise ValueError(f'its type is "{kind}", and should be "service_account" or "authorized_user"')


def account_of(credentials: Credentials) -> str:
    """Return the address of the credentials' account, "" where they do not state it."""
    found = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "")
    return str(found) if "@" in str(found) else ""


class GridMovedError(SourceUnavailableError):
    """The requested range is gone; the same request will not bring it back, so the tab must be read anew."""


class GoogleClient(HTTPClient):
    """Send requests within Google's quota, repeat them while Google is busy; `name` is the spreadsheet's in messages.

    `api_url` replaces Google's own address, which gspread has as constants: a gateway, or a server of a test. Tokens are renewed
    here, as google-auth's own session asks a further service of Google's about each service account, in a thread of its own.
    """

    def __init__(self, credentials: Credentials, api_url: str, mask: Mask, clock: Clock, name: str = "the spreadsheet") -> None:
        super().__init__(credentials, ServiceSession())
        self.session.max_redirects = 0
        self.set_timeout(TIMEOUT_S)
        self._credentials, self._api_url, self._mask, self._clock, self._name = credentials, api_url, mask, clock, name
        self._sent_s: deque[float] = deque(maxlen=_REQUESTS_A_MINUTE)

    def retry(self, read: Callable[[], T]) -> T:
        """Return what `read` makes of answers; repeat it while Google is busy or answers in an unexpected shape.

        Raises:
            SourceUnavailableError: Google stayed busy or out of reach; `retry_after_s` where it named a time.
            SourceRefusedError: Google refuses it.
        """

        def attempt() -> T:
            try:
                return read()
            except (ValueError, AttributeError, LookupError, TypeError) as error:
                raise BusyError(f"{self._name}: Google's answer was cut off", hint="run again") from error

        clock = self._clock
        return retry_on(BusyError, attempt, _POLICY, sleep=clock.sleep, random=clock.chance, clock=clock.clock_s)

    # The base class has further parameters, for uploads.
    def request(self, method: str, endpoint: str, params: Any = None, data: Any = None, json: Any = None, *_: Any) -> Response:
        """Send a request once and return a successful answer.

        Raises:
            BusyError: another attempt may help.
            SourceRefusedError: Google refuses it.
        """
        del data
        what = f"{self._name}: {_purpose(method, endpoint, params or {})}"
        now = self._clock.clock_s()
        if len(self._sent_s) == _REQUESTS_A_MINUTE and now - self._sent_s[0] < 60.0:
            self._clock.sleep(60.0 - (now - self._sent_s[0]))
        self._sent_s.append(self._clock.clock_s())
        send = partial(self._send, what, method, endpoint, params, json)
        try:
            response = send()
            if response.status_code == 401:  # a token may end before its time
                self._credentials.expiry = None
                self._credentials.token = None
                response = send()
        except TooManyRedirects as error:
            hint = "check EVENTSYNC_SHEETS_URL: our token is sent to no other address"
            raise SourceRefusedError(f"{what}: Google's address redirects elsewhere", hint=hint) from error
        except (RequestException, HTTPError, TransportError) as error:
            check_trust(error, "Google")
            raise BusyError(f"{what}: Google did not answer ({type(error).__name__})", hint="run again later") from error
        except GoogleAuthError as error:
            raise _token_error(error, what) from error
        if not response.ok:
            raise refusal_error(response, what, account_of(self._credentials), writes=method == "post")
        return response

    def _send(self, what: str, method: str, endpoint: str, params: Any, json: Any) -> Response:
        credentials, headers = self._credentials, dict[str, str]()
        if not credentials.valid:
            credentials.refresh(partial(Request(self.session), timeout=_TOKEN_TIMEOUT_S))  # type: ignore[no-untyped-call]
            self._mask.learn(str(credentials.token or ""))
        credentials.apply(headers)  # type: ignore[no-untyped-call]
        google_url = next((url for url in _GOOGLE if endpoint.startswith(url)), "")
        if self._api_url and google_url:
            endpoint = self._api_url.rstrip("/") + endpoint.removeprefix(google_url)
        response = self.session.request(
            method, endpoint, params=params, json=json, headers=headers, timeout=self.timeout, stream=True
        )
        return read_whole(response, f"{what}: Google", hint="read fewer columns: name them in `source.range`")


def _purpose(method: str, endpoint: str, params: Mapping[str, Any]) -> str:
    """Return what a request does, in words for messages."""
    if method == "post":
        return "writing"
    if "ranges" in params:
        places = params["ranges"]
        return f"reading {places if isinstance(places, str) else ', '.join(places)}"
    if endpoint.startswith(DRIVE_FILES_API_V3_URL):
        return "asking for its version"
    return "reading its tabs"


def refusal_error(response: Response, what: str, account: str, *, writes: bool) -> SyncError:
    """Return the error for an answer that is no success; `account`: whose request it was, "" if unknown."""
    answer = _error_object(response.content)
    # A page of HTML has no message. Drive lists the reasons under `errors`, Sheets under `details`.
    message = " ".join(str(answer.get("message", "")).split())[:_LONGEST_MESSAGE]
    found = [one for part in ("errors", "details") for one in answer.get(part) or () if isinstance(one, dict)]
    reasons = frozenset(str(one.get("reason")) for one in found)
    status, account = response.status_code, account or f"the account that {_NAMED} is for"
    text = f"{what}: Google answered {status}{f' ({message})' if message else ''}"
    if status in _PASSING or reasons & _RATES:
        pause_s = retry_after_s(response.headers)
        pause_s = 60.0 if pause_s is None and status == 429 else pause_s
        return BusyError(text, hint=_patience(status, pause_s or 0.0), retry_after_s=pause_s)
    if status == 400 and ("exceeds grid limits" in message or "Unable to parse range" in message):
        return GridMovedError(text, hint="the tab was changed while it was read: run again; else check `source.range`")
    hints = {
        400: _bad_request(message, account),
        401: "the credentials are not accepted: make a new key for the account",
        403: _missing_right(found, message, reasons, account, writes=writes),
        404: f"check the address in `source.spreadsheet`, and that it is shared with {account}",
    }
    return SourceRefusedError(text, hint=hints.get(status, "check `source.spreadsheet` and the account's rights"))


def _patience(status: int, pause_s: float) -> str:
    if pause_s > _LONG_PAUSE_S:
        return f"Google asks for a pause of {pause_s:,.0f} s: run again after it"
    if status == 429:
        return "the quota is 60 requests a minute for an account, 300 for a project: run again in a minute, or ask for more"
    return "run again in a few minutes"


def _bad_request(message: str, account: str) -> str:
    if "protected cell" in message:
        return f"let {account} edit the columns that we write (Data, Protect sheets and ranges)"
    if "not supported for this document" in message:
        return "it is an Office file kept on Drive: save it as Google Sheets (File), or read the file by `kind: xlsx`"
    return "check `source.spreadsheet`, `source.tab` and `source.range`"


def _missing_right(found: list[dict[str, Any]], message: str, reasons: frozenset[str], account: str, *, writes: bool) -> str:
    if reasons & _DISABLED or "has not been used in project" in message:
        details = [one["metadata"] for one in found if isinstance(one.get("metadata"), dict)]
        where = next((f": {one['activationUrl']}" for one in details if "activationUrl" in one), "")
        return f"switch the API on in the project of the account{where}"
    if reasons & _SCOPES:
        made = f"the credentials were made without the right to {'write to' if writes else 'read'} spreadsheets"
        return f"{made}: use a service account, or log in anew with it"
    if writes:
        return f"share the spreadsheet with {account} as an editor, and let it edit the columns if they are protected"
    return f"share the spreadsheet with {account} (Share, Viewer is enough)"


def _error_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _token_error(error: GoogleAuthError, what: str) -> SyncError:
    """Return the error for a token that was refused, for now or for good (RFC 6749, section 5.2)."""
    reason = str(error.args[0]) if error.args else type(error).__name__
    if error.retryable:
        return BusyError(f"{what}: Google gave us no token ({reason})", hint="run again later")
    if "invalid_scope" in reason:
        hint = "the account may not ask for the rights that docs/sources.md names: use a service account of its own for this"
        return SourceRefusedError(f"{what}: Google does not give us the rights that we need ({reason})", hint=hint)
    hint = "the key was deleted, the consent withdrawn, or this machine's clock is wrong: make a new key, or log in anew"
    return SourceRefusedError(f"{what}: Google does not accept our credentials ({reason})", hint=hint)
