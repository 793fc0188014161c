"""First contact: a row that a proxy refuses in its own words is told from a host that is not the service at all."""

from __future__ import annotations

import httpx
import pytest
from unit.connectors_api.wired import Handler, api_over, created, intent, page, told
from virtual_time import at_once

from mappings.delivery import Intent, Postponed, Receipt, Refusal, Verdict

LIST = httpx.Response(200, json={"version": "2026-01-01", "docs": []})
STRANGERS = {
    "a page": page(400),
    "plain text": httpx.Response(413, content=b"too large"),
    "a list": httpx.Response(422, json=["title is bad"]),
    "an envelope without a code": httpx.Response(400, json={"error": {"message": "bad"}}),
}


def _verdicts(handler: Handler, *intents: Intent) -> list[Verdict]:
    async def main() -> list[Verdict]:
        api, http = api_over(handler)
        async with http:
            return [await api.deliver(one) for one in intents]

    return at_once(main)


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("listed", [LIST, told(401, "invalid_api_key")], ids=["lists are open", "lists want a key"])
def test_the_very_first_row_may_be_refused_by_a_proxy_and_the_others_go_on(
    stranger: httpx.Response, listed: httpx.Response
) -> None:
    async def service(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return LIST if "authorization" in request.headers else listed
        return stranger if request.headers["idempotency-key"] == intent(number=1).key else created()

    verdicts = _verdicts(service, intent(number=1), intent(number=2))
    assert [type(verdict) for verdict in verdicts] == [Refusal, Receipt]


def test_another_host_that_refuses_everything_stops_the_route_and_is_not_given_the_key_again() -> None:
    asked: list[httpx.Request] = []

    async def host(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return page(400)

    verdicts = _verdicts(host, intent(number=1), intent(number=2))
    assert [type(verdict) for verdict in verdicts] == [Postponed, Postponed]
    assert sum("authorization" in request.headers for request in asked) == 1
