"""A service whose contract or classifications change, in real processes: told before rows are burnt, on more than its word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from integration.desk import Desk, lines
from integration.service import Service

ROWS = 12
ROOT = Path(__file__).parents[2]


def test_a_new_required_field_is_met_by_one_refused_row_out_of_ten_thousand(desk: Desk, service: Service) -> None:
    desk.source(lines(10_000))
    service.switch(contract="new_required_field")
    said = desk.run()
    assert (said.code, said.run["outcome"]) == (5, "stopped by a brake")
    assert service.outcomes() == {"refused": 1}
    assert "`organizer` is required" in said.run["message"]
    assert "9999 rows were not sent" in said.run["message"]
    assert "check --live" in said.run["hint"]
    assert said.run["publish"]["pending"] == 9_999

    desk.mapping(more="organizer: The town", extra="organizer")
    desk.run("--limit", "50", code=0)
    assert len(service.titles()) == 50
    assert service.outcomes()["refused"] <= 2, "beside the first, at most its stored refusal under the same key"


def test_check_live_tells_every_difference_and_ends_with_2(desk: Desk, service: Service) -> None:
    desk.source(lines(ROWS))
    service.switch(contract="new_required_field")
    told = desk.command("check", "--live", "--json")
    (finding,) = [one for one in told.document["feeds"][0]["live"] if one["asked"] == "contract"]
    assert (told.code, finding["severity"], finding["ok"]) == (2, "error", False)
    assert finding["difference"]["fields"] == ["organizer"]
    assert {"where", "page", "ours", "breaks", "helps"} < finding["difference"].keys()
    service.switch(contract="shorter_titles")
    warned = desk.command("check", "--live", code=0)
    assert "contract ready POST /events: title" in warned.words
    assert service.requests() == []


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


@pytest.mark.parametrize(
    ("key", "code", "says"),
    [
        ("sandbox-key-starter", 0, "this proves `events:create`, unless"),
        ("sandbox-key-reader", 3, "may not create events: 403 insufficient_scope"),
    ],
)
def test_a_probe_tells_whether_the_key_may_create_events(desk: Desk, service: Service, key: str, code: int, says: str) -> None:
    desk.source(lines(ROWS))
    desk.point_to(service, key)
    assert "`--probe`" in desk.command("check", "--live").out
    assert service.requests() == []
    said = desk.command("check", "--probe")
    assert (said.code, says in said.words, key in said.words) == (code, True, False)
    assert [sent["idempotency_key"] for sent in service.requests()] == [""]
    assert service.events() == []


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
