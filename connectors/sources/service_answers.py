"""Answers of web services: read whole within a bound on their size, and errors for those of an unexpected shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TypeVar

from requests import Response

from connectors.sources.errors import BadSourceError, SourceUnavailableError

T = TypeVar("T")

MOST_BYTES = 128 * 1024 * 1024
"""Bytes of one answer, unpacked: thirty times what 40,000 cells of a sheet or 2,000 records of an org take."""
_PIECE_BYTES = 64 * 1024


def read_whole(response: Response, service: str, *, hint: str) -> Response:
    """Read the body of an answer that was asked for with `stream`, so that `content` and `json()` have it.

    Raises:
        BadSourceError: it is too large.
        urllib3.exceptions.HTTPError: it broke off.
    """
    body = BytesIO()
    for piece in response.raw.stream(_PIECE_BYTES, decode_content=True):
        body.write(piece)
        if body.tell() > MOST_BYTES:
            response.close()
            raise BadSourceError(service, f"an answer is larger than {MOST_BYTES // 2**20} million bytes", hint=hint)
    body.seek(0)
    response.raw = body
    return response


_ODD_SHAPE = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError, RecursionError)
"""What reading a JSON document raises that is made otherwise than its API describes."""


@contextmanager
def as_odd_answer(place: str, service: str) -> Iterator[None]:
    """Turn what an answer of another shape than its API describes raises in the block into an error of the source.

    Raises:
        SourceUnavailableError: it is such.
    """
    try:
        yield
    except _ODD_SHAPE as error:
        message = f"{place}: {service} answered in another shape than its API describes ({type(error).__name__})"
        raise SourceUnavailableError(message, hint="run again; if it stays so, please report it") from error


def in_known_shape(rows: Iterator[T], place: str, service: str) -> Iterator[T]:
    """Yield the rows, which are made of answers as they are asked for; raises as `as_odd_answer`."""
    with as_odd_answer(place, service):
        yield from rows
