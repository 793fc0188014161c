"""Answers of web services to `requests`, read whole within a bound on their size."""

from __future__ import annotations

from io import BytesIO

from requests import Response

from connectors.sources.errors import BadSourceError

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
