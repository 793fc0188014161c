"""A key that may not list its channels: only a mapping that looks a channel up by its slug has to know, and it says why."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from unit.connectors_api.wired import api_over, told
from unit.pipelines.feed_files import feed
from virtual_time import at_once

from connectors.errors import ScopeMissingError
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, RowLocation, SourceRow
from pipelines.run.service import ServiceLists, ask_lists

ROW = SourceRow(
    RowLocation("agenda.csv:2", 2),
    {"ID": "1", "TITLE": "Evening", "START": "2031-05-01T20:00:00+02:00", "CHANNEL": "city-agenda"},
)


def _directory() -> Directory:
    async def service(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/channels"):
            return told(403, "insufficient_scope")
        return httpx.Response(200, json={"version": "2026-01-01", "docs": [{"slug": "music"}]})

    async def main() -> Directory:
        api, http = api_over(service)
        async with http:
            return (await ask_lists(api)).directory

    return at_once(main)


@pytest.mark.parametrize("channel", ["{channel: city-agenda}", "{channel: {from: CHANNEL}}"], ids=["of the file", "of the row"])
def test_a_channel_by_its_slug_meets_the_missing_scope_instead_of_being_called_unknown(tmp_path: Path, channel: str) -> None:
    with pytest.raises(ScopeMissingError, match="channels:read"):
        compile_feed(feed(tmp_path, channel=channel), _directory())(ROW)


def test_a_channel_by_its_id_needs_no_list(tmp_path: Path) -> None:
    assert isinstance(compile_feed(feed(tmp_path), _directory())(ROW), MappedRow)


def test_a_list_that_is_empty_is_another_one_than_a_list_that_is_not_shown() -> None:
    lists = (Directory(classifications=slugs) for slugs in (None, frozenset[str](), frozenset({"music"})))
    assert len({ServiceLists(one, None).evidence for one in lists}) == 3
