"""What Salesforce's refusals mean: which clear by themselves, which need a person, and what would help.

When something is asked again is `salesforce_org`'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from connectors.sources.errors import BadSourceError, SourceRefusedError, SourceUnavailableError
from mappings.errors import SyncError

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
