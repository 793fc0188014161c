"""GET /api/developer/openapi/public-api-v1: the service's description, kept as a file beside this module."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import assert_never

from sandbox.answers import Answer, ApiError
from sandbox.drifting import described
from sandbox.service import Sandbox, Visit
from sandbox.switches import Contract

_HTML = b"<!doctype html><html><title>Developers</title><body>Sign in to read the documentation.</body></html>"


async def describe(sandbox: Sandbox, visit: Visit) -> Answer:
    """The OpenAPI description as YAML, for anybody; with `If-None-Match`, only if it is another one. Raises ApiError 404."""
    match sandbox.switches.contract_page:
        case "yaml":
            return _page(description(sandbox.switches.contract), visit.request.headers.get("if-none-match", ""))
        case "html":
            return Answer(200, _HTML, media_type="text/html")
        case "absent":
            raise ApiError("not_found", "There is no description here.")
        case _:
            assert_never(sandbox.switches.contract_page)


@cache
def description(contract: Contract = "as_specified") -> bytes:
    """The bytes of the OpenAPI description under a contract."""
    specified = files("sandbox").joinpath("public-api-v1.yaml").read_text("utf-8")
    return described(contract, specified).encode()


def _page(body: bytes, known: str) -> Answer:
    tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
    if known == tag:
        return Answer(304, b"", media_type="application/yaml", headers=(("etag", tag),))
    return Answer(200, body, media_type="application/yaml", headers=(("etag", tag),))
