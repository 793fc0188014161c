"""How Google is asked: one request at a time, within our share of its quota, insisted on within bounds.

What is asked is `google_spreadsheet`'s; what a refusal means `google_refusals`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from gspread.http_client import HTTPClient
from gspread.urls import DRIVE_FILES_API_V3_URL, SPREADSHEETS_API_V4_BASE_URL
from requests import PreparedRequest, RequestException, Response, Session, TooManyRedirects
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from connectors.masking import Mask
from connectors.retry import RetryPolicy, ask_again_until, retry_after_s
from connectors.sources.clockwork import Clockwork
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from connectors.sources.google_sheets.login import Login
from connectors.sources.google_sheets.refusals import GridMovedError, Refusal
from connectors.sources.whole_answers import read_whole
from mappings.errors import SyncError

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

    def __init__(self, login: Login, api_url: str, mask: Mask, clockwork: Clockwork) -> None:
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
        for google in _GOOGLE:
            if self._api_url and address.startswith(google):
                return self._api_url.rstrip("/") + address.removeprefix(google)
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
