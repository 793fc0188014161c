"""What Google's refusals mean: whether another attempt may help, and what a person must do if not.

How Google is asked is `google_wire`'s. Statuses and reasons are those of google.rpc.Code and google.rpc.ErrorInfo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from mappings.errors import SyncError

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
