"""Request bodies as they come in: their declared type, their size, their bytes.

What the bytes mean is the route's.
"""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request

from sandbox.answers import JSON, ApiError, invalid


def media_type(request: Request) -> str:
    """The body's declared type without parameters, lower case, "" where none is declared."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_media_type(accepted: str) -> ApiError:
    """The 415 of a body that is declared as something else than `accepted`."""
    return ApiError(
        "invalid_request", f"Send the body as {accepted}.", status=415, field="Content-Type", issue=f"must be {accepted}"
    )


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """The bytes of a body declared as JSON. Raises ApiError 415 or 413."""
    if media_type(request) != JSON:
        raise wrong_media_type(JSON)
    return await read_body(request, max_bytes)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body's bytes. Raises ApiError 413 as soon as it is known to be too large, 415 for a compressed one."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise ApiError(
            "invalid_request", "Send the body uncompressed.", status=415, field="Content-Encoding", issue="is not supported"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = b""
    async for chunk in request.stream():
        body = body + chunk if body else chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return body


def parsed_json(body: bytes) -> Any:
    """The body as JSON. Raises ApiError 400."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as unreadable:
        raise invalid("body", f"is not valid JSON: {unreadable}") from unreadable


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        "invalid_request", "The body is too large.", status=413, field="body", issue=f"must not be larger than {max_bytes} bytes"
    )
