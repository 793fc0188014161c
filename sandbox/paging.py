"""Pages of lists: `page` and `limit` of a query, and the two envelopes that the specification has for them."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.requests import Request

from sandbox.answers import invalid

MAX_LIMIT: Final = 100
"""The effective maximum of `limit` (specification, section Limits)."""

_DEFAULT_LIMIT: Final = 10
_MAX_PAGE: Final = 10**9


class Page(NamedTuple):
    """One page asked for, from 1, of `limit` items."""

    number: int
    limit: int

    @property
    def offset(self) -> int:
        """How many items come before it."""
        return (self.number - 1) * self.limit


def read_page(request: Request) -> Page:
    """The page that a query asks for, its limit capped. Raises ApiError 400 for anything but whole numbers from 1."""
    number, limit = _whole(request, "page", 1), _whole(request, "limit", _DEFAULT_LIMIT)
    return Page(min(number, _MAX_PAGE), min(limit, MAX_LIMIT))


def full_envelope(docs: list[dict[str, object]], page: Page, total: int) -> dict[str, object]:
    """The pagination envelope of the specification (section Resources)."""
    pages = max(1, -(-total // page.limit))
    return {
        "docs": docs,
        "page": page.number,
        "limit": page.limit,
        "totalDocs": total,
        "totalPages": pages,
        "hasNextPage": page.number < pages,
        "hasPrevPage": page.number > 1,
    }


def minimal_envelope(docs: list[dict[str, object]], page: Page, total: int) -> dict[str, object]:
    """The envelope of GET /events, from which further pages have to be derived."""
    return {"docs": docs, "totalDocs": total, "limit": page.limit, "page": page.number}


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text) >= 1):
        raise invalid(name, "must be a whole number from 1")
    return int(text)
