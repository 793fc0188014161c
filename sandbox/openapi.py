"""GET /api/developer/openapi/public-api-v1: the service's description, kept as a file beside this module."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sandbox.answers import Answer
from sandbox.service import Sandbox, Visit


async def describe(_: Sandbox, __: Visit) -> Answer:
    """The OpenAPI description as YAML, for anybody."""
    return Answer(200, description(), media_type="application/yaml")


@cache
def description() -> bytes:
    """The bytes of the OpenAPI description."""
    return files("sandbox").joinpath("public-api-v1.yaml").read_bytes()
