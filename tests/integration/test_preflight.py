"""A service whose contract or classifications change, in real processes: told before rows are burnt, on more than its word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from integration.desk import Desk, lines
from integration.service import Service

ROWS = 12
ROOT = Path(__file__).parents[2]


def test_a_changed_list_of_classifications_is_told_once_and_its_rows_are_rejected_with_a_hint(
    desk: Desk, service: Service
) -> None:
    desk.edit("play: theatre", "play: workshop")
    rows = lines(40)
    assert desk.run_with(rows).run["notices"] == []
    service.switch(classification_list="revised")
    said = desk.run_with([*rows, "99,An evening,2031-05-01,19:30,play,"])
    (notice,) = said.run["notices"]
    assert "changed from 2026-03-02 to 2026-10-01" in notice
    assert "gone: nightlife, workshop (now workshops?); new: podcast, workshops" in notice
    assert "this mapping uses workshop" in notice
    (rejection,) = said.run["rejections"]
    assert 'did you mean "workshops"?' in rejection["reasons"][0]["hint"]
    assert not any("changed from" in notice for notice in desk.run().run["notices"])


def test_check_live_compares_the_list_with_the_version_that_the_mapping_was_written_for(desk: Desk, service: Service) -> None:
    desk.source(lines(ROWS))
    desk.edit("feed:", "classifications_version: 2026-03-02\nfeed:")
    assert "classifications ready version 2026-03-02" in desk.command("check", "--live").words
    service.switch(classification_list="revised")
    before = desk.command("check", "--live")
    assert "written for version 2026-03-02, the service's list is now 2026-10-01" in before.words
    service.switch(classification_list="first")
    desk.run(code=0)
    service.switch(classification_list="revised")
    after = desk.command("check", "--live")
    assert (before.code, after.code) == (0, 0)
    assert "gone: nightlife, workshop (now workshops?)" in after.words


def test_the_page_about_it_shows_what_the_command_says(desk: Desk, service: Service) -> None:
    text = (ROOT / "docs" / "preflight.md").read_text("utf-8")
    found = re.search(r"```console\n\$ eventsync (.*)\n([^`]*(?:`[^`]+`[^`]*)*?)```", text)
    assert found is not None
    shutil.copytree(ROOT / "mappings" / "feeds", desk.folder / "mappings" / "feeds")
    shutil.copytree(ROOT / "mappings" / "lookups", desk.folder / "mappings" / "lookups")
    desk.env["EVENTSYNC_FEEDS"] = "mappings/feeds"
    desk.command("run", "lisbon-agenda", "--no-dagster", code=0)
    service.switch(contract="new_required_field")
    said = desk.command(*found[1].split(), code=2)
    shown = re.sub(r"req_[0-9a-f]+", "req_41c7", said.out.replace(service.base_url, "http://127.0.0.1:8765"))
    assert shown.split() == found[2].split()
