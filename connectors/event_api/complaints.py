"""The sentences in which the service's refusals reach people: what we tried, what came back, what would help.

When each one is due is decided in `delivery` and `client`.
"""

from __future__ import annotations

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    RedirectRefusedError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from mappings.delivery import Answer


def in_short(answer: Answer) -> str:
    """Say what came back in one line, with the request id that support asks for."""
    said = " ".join(filter(None, (str(answer.status) if answer.status else "", answer.code)))
    about = f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    quoted = f" (request {answer.request_id})" if answer.request_id else ""
    return (f"{said}: {about}" if about and said else said or about) + quoted


def key_refused(answer: Answer, key_tail: str) -> KeyRefusedError:
    """401, for the key named by its tail."""
    return KeyRefusedError(
        f"the service refused the API key {key_tail}: {in_short(answer)}",
        hint="it may be revoked, disabled, expired or mistyped: see the service's page /developers/keys, then set EVENT_API_KEY",
    )


def scope_missing(answer: Answer, key_tail: str, scope: str, channel_id: int | None = None) -> ScopeMissingError:
    """403 insufficient_scope; `scope` as the spec names it, "" where it names none; `channel_id` where one was asked for."""
    wanted = f"`{scope}`" if scope else "for this request"
    where = "" if channel_id is None else f" for channel {channel_id}"
    return ScopeMissingError(
        f"the API key {key_tail} lacks the scope {wanted}{where}: {in_short(answer)}",
        hint="add the scope on the page of the key, or use a key that has it" + (" and may use that channel" if where else ""),
    )


def redirect_refused(answer: Answer, location: str) -> RedirectRefusedError:
    """3xx; `location` without its query."""
    return RedirectRefusedError(
        f"the service's address redirects ({answer.status}) to {location or 'nowhere'}: not followed, as the key would go along",
        hint="if that is the service's true address, set EVENT_API_BASE_URL to it",
    )


def not_the_service(answer: Answer) -> NotTheServiceError:
    """An answer in words that the service does not use."""
    return NotTheServiceError(
        f"what answers there is not the Event Publishing API: {in_short(answer)}",
        hint="check EVENT_API_BASE_URL (host and path), and whether a proxy answers in its place",
    )


def unavailable(answer: Answer, attempts: int) -> ServiceUnavailableError:
    """No usable answer within the budget."""
    return ServiceUnavailableError(
        f"no usable answer after {attempts} attempts, the last one: {in_short(answer)}",
        hint="nothing is lost: run again when the service is back; if it never answered, check EVENT_API_BASE_URL",
    )


def request_refused(answer: Answer, asked: str) -> RequestRefusedError:
    """A definitive refusal of a question about the account as a whole; `asked` names the question."""
    return RequestRefusedError(
        f"the service refused to tell {asked}: {in_short(answer)}",
        answer=answer,
        hint="check EVENT_API_BASE_URL, and that the key's owner may see it; quote the request id to the service's support",
    )
