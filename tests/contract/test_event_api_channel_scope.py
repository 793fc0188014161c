"""403 insufficient_scope may be said of a scope or of one channel, the spec leaves it open: other channels go on either way."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from unit.connectors_api.wired import api_over, created, intent, told
from unit.state.world import World, row
from virtual_time import at_once

from connectors.errors import ScopeMissingError
from mappings.delivery import Intent, Postponed, Receipt, Verdict
from mappings.errors import SyncError
from mappings.outcome import MappedRow
from pipelines.run.publish import Drain
from pipelines.run.systemic_failure import OUT_OF_SCOPE_IN_A_ROW

BARRED, FREE = 8, 7


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()


def _row(number: int, channel_id: int) -> MappedRow:
    body = json.dumps({"channelId": channel_id, "title": f"Evening {number}"}).encode()
    return replace(row(str(number)), body=body, channel_id=channel_id)


def _drained(world: World, channels: Collection[int]) -> tuple[SyncError | None, list[int]]:
    """Send a row to each of these channels, four at a time, and return why it ended and which channels were asked for."""
    world.stage([_row(number, channel_id) for number, channel_id in enumerate(channels)])
    asked: list[int] = []

    async def service(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["channelId"])
        return told(403, "insufficient_scope") if asked[-1] == BARRED else created(len(asked))

    async def main() -> SyncError | None:
        api, http = api_over(service)
        async with http:
            drain = Drain(world.outbox(), 4, 5.0, lambda _: None, api.deliver)
            await drain.run()
            return drain.cause or drain.systemic.scope_cause

    return at_once(main), asked


def test_other_channels_are_served_however_many_rows_of_a_barred_one_stand_before_them(world: World) -> None:
    cause, asked = _drained(world, [BARRED] * 30 + [FREE] * 5)
    assert isinstance(cause, ScopeMissingError)
    assert f"channel {BARRED}" in str(cause)
    assert asked.count(FREE) == 5
    assert asked.count(BARRED) <= 4


def test_where_every_row_is_out_of_scope_the_drain_ends_early(world: World) -> None:
    cause, asked = _drained(world, [BARRED] * (OUT_OF_SCOPE_IN_A_ROW + 50))
    assert isinstance(cause, ScopeMissingError)
    assert len(asked) <= 4


def test_a_barred_row_is_postponed_and_costs_one_request_for_its_channel() -> None:
    requests: list[httpx.Request] = []

    async def service(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return told(403, "insufficient_scope") if len(requests) == 1 else created()

    async def main() -> list[Verdict]:
        api, http = api_over(service)
        async with http:
            rows: list[Intent] = [replace(intent(number=n), channel_id=BARRED) for n in (1, 2)]
            return [await api.deliver(one) for one in (*rows, intent(number=3))]

    first, second, third = at_once(main)
    assert isinstance(first, Postponed)
    assert isinstance(second, Postponed)
    assert (first.attempts, second.attempts) == (1, 0)
    assert isinstance(third, Receipt)
    assert len(requests) == 2
