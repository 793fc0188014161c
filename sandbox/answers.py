"""Answers of the service, and the error envelope of its refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import orjson

STATUS_OF: Final = {
    "invalid_request": 400,
    "invalid_api_key": 401,
    "forbidden": 403,
    "insufficient_scope": 403,
    "not_found": 404,
    "conflict": 409,
    "rate_limited": 429,
    "internal_error": 500,
}
"""The specification's error codes, each with its status."""

JSON: Final = "application/json"
Breakage = Literal["", "reset", "reset_midway", "closed", "hang", "drip", "truncated", "twice"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `code` is the error's code, "" for a success; `breakage` is how its delivery fails on purpose."""

    status: int
    body: bytes
    code: str = ""
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    breakage: Breakage = ""


class ApiError(Exception):
    """A refusal with a code of the specification, whose status it has unless another is given (405, 413, 415)."""

    def __init__(self, code: str, message: str, *, status: int = 0, field: str = "", issue: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status or STATUS_OF[code]
        self.message = message
        self.field = field
        self.issue = issue
        self.headers: tuple[tuple[str, str], ...] = ()

    def answer(self, request_id: str) -> Answer:
        """Return the refusal in the error envelope of the specification (section Errors)."""
        error: dict[str, object] = {"code": self.code, "message": self.message, "requestId": request_id}
        if self.field:
            error["details"] = {"field": self.field, "issue": self.issue}
        return Answer(self.status, orjson.dumps({"error": error}), self.code, headers=self.headers)


def invalid(field: str, issue: str) -> ApiError:
    """Return the 400 of a field: its path in the payload (`offers[0].url`), and what is wrong with it."""
    return ApiError("invalid_request", f"{field}: {issue}", field=field, issue=issue)


def json_answer(document: object, status: int = 200) -> Answer:
    """Return a success whose body is `document` as JSON."""
    return Answer(status, orjson.dumps(document))
