"""GET /channels and GET /classifications: what a caller may publish into, and under which slugs."""

from __future__ import annotations

from dataclasses import asdict
from typing import assert_never

from sandbox.answers import Answer, invalid, said
from sandbox.paging import full_envelope, read_page
from sandbox.seed import classifications
from sandbox.service import Sandbox, Visit


async def list_channels(sandbox: Sandbox, visit: Visit) -> Answer:
    """The channels available to the key's owner, in the full envelope."""
    key = sandbox.admit(visit, "channels:read")
    page = read_page(visit.request)
    available = sandbox.channels_of(key)
    shown = available[page.offset : page.offset + page.limit]
    docs: list[dict[str, object]] = [{"id": one.id, "name": one.name, "slug": one.slug} for one in shown]
    return said(full_envelope(docs, page, len(available)))


async def list_classifications(sandbox: Sandbox, visit: Visit) -> Answer:
    """All classifications with their version; what an Authorization header does here is a switch."""
    match sandbox.switches.classifications_auth:
        case "ignored":
            sandbox.count(visit)
        case "required":
            sandbox.admit(visit, "none")
        case "rejected":
            if "authorization" in visit.request.headers:
                raise invalid("Authorization", "must not be sent to this public route")
            sandbox.count(visit)
        case _:
            assert_never(sandbox.switches.classifications_auth)
    version, docs = classifications(sandbox.switches.classification_list)
    return said({"version": version, "docs": [asdict(one) for one in docs]})
