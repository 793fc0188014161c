"""The Dagster UI as a person meets it: what is well looks calm, what is wrong is red and says why, what is launched runs.

And as others meet it: a page of another origin changes nothing, another user of the machine finds no way to run code.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial

import dagster as dg
import pytest
from browser.conftest import REBOUND, Heard, choose_days, is_cut, is_red, visit
from browser.others import ATTACK, LAUNCH, LAUNCHES, REACH, SOCKET, as_another_user, listening, site
from browser.stage import BAD, BRAKED, BROKEN, DATED, DAYS, KEY, LAUNCHED, ROWS, STEADY, Stage
from integration.waiting import until
from playwright.sync_api import BrowserContext, Locator, Page, expect

pytestmark = pytest.mark.slow(about_s=30)  # the first; the others find its UI there

VERDICT = f"{BAD} of {ROWS} rows rejected ({BAD / ROWS:.1%}; the feed allows 20.0%"
ALARMS = ("Failed", "Overdue", "Never", "Missing", "Stale", "Unsynced", "broken")


def group(stage: Stage, feed: str) -> str:
    """The address of the picture of a feed."""
    return f"{stage.ui}/locations/eventsync/asset-groups/{feed.replace('-', '_')}/lineage"


def node(page: Page, phase: str = "") -> Locator:
    """An asset in the picture of a feed, or all of them."""
    return page.locator("foreignObject").filter(has_text="Asset checks").filter(has_text=phase)


def test_a_feed_that_is_well_is_three_calm_assets(page: Page, stage: Stage) -> None:
    visit(page, group(stage, STEADY), "published")
    expect(node(page)).to_have_count(3)
    expect(node(page, "source")).to_contain_text("Observed")
    expect(node(page, "staged")).to_contain_text("7 / 7 Passed")
    expect(node(page, "staged")).to_contain_text("Materialized")
    expect(node(page, "published")).to_contain_text("3 / 3 Passed")
    assert not is_red(node(page, "published").get_by_text("Materialized", exact=True))
    shown = page.locator("body").inner_text()
    assert [word for word in ALARMS if word in shown] == []


def test_a_brake_that_stopped_a_feed_is_red_and_says_why(page: Page, stage: Stage) -> None:
    visit(page, group(stage, BRAKED), "published")
    expect(node(page, "staged")).to_contain_text("6 / 7 Passed")
    assert is_red(node(page, "published").get_by_text("Failed", exact=True))
    visit(page, stage.asset(BRAKED, "staged", "view=checks&checkDetail=rejected"), VERDICT)
    expect(page.get_by_text("blocking").first).to_be_visible()
    assert is_red(page.get_by_text("Failed", exact=True).last)


def test_the_page_of_a_run_that_was_stopped_says_what_would_help(page: Page, stage: Stage) -> None:
    visit(page, f"{stage.ui}/runs/{stage.braked_run}", "RUN_FAILURE")
    assert is_red(page.get_by_text("Failure", exact=True).first)
    expect(page.get_by_text(VERDICT).first).to_be_visible()
    expect(page.get_by_text(f"eventsync run {BRAKED} --accept rejected").first).to_be_visible()


def test_a_run_is_launched_with_options_and_keeps_to_them(page: Page, stage: Stage) -> None:
    visit(page, f"{stage.ui}/locations/eventsync/asset-groups/{LAUNCHED.replace('-', '_')}/lineage", "published")
    page.get_by_role("button", name="Materialize all").locator("xpath=following::button[1]").click()
    page.get_by_text("Open launchpad").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("No errors")).to_be_visible()
    for option, verdict in (("limt", 'unexpected config entry "limt"'), ("limit", "No errors")):
        dialog.locator(".CodeMirror").first.click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(f"resources: {{eventsync_options: {{config: {{{option}: 2}}}}}}")
        expect(dialog.get_by_text(verdict).first).to_be_visible()
    dialog.get_by_role("button", name="Materialize").click()
    page.wait_for_url(re.compile("/runs/"))
    expect(page.get_by_text("RUN_SUCCESS").first).to_be_visible()
    sent = {f"Evening {number}" for number in range(200, 205)} & set(stage.desk.titles())
    assert len(sent) == 2


def test_days_of_the_past_are_launched_as_one_backfill_brought_in_and_shown_as_made(page: Page, stage: Stage) -> None:
    dialog = choose_days(page, stage)
    expect(dialog.get_by_text("3 partitions").first).to_be_visible()
    dialog.get_by_role("button", name="Launch backfill").click()
    launched = page.get_by_text(re.compile("Created backfill"))
    expect(launched).to_be_visible()
    visit(page, f"{stage.ui}/runs?view=backfills", launched.inner_text().split()[-1])
    expect(page.get_by_text("3 partitions").first).to_be_visible()
    backfilled = dg.AssetKey([DATED, "backfilled"])
    made = partial(stage.desk.instance.get_materialized_partitions, backfilled)
    until(lambda: made() == set(DAYS), within_s=180, every_s=1.0, what="the three days")
    visit(page, stage.asset(DATED, "backfilled", f"view=partitions&partition={DAYS[1]}"), "Materialized (3)")
    assert {f"Evening {number}" for number in range(300, 306)} <= set(stage.desk.titles())


def test_a_broken_mapping_file_is_red_and_shows_its_mistake(page: Page, stage: Stage) -> None:
    mistake = 'the event lacks the required field "title", is it written as "titel"?'
    visit(page, stage.asset("broken_feeds", f"{BROKEN}_yaml", "view=overview"), mistake)
    assert not is_cut(page.get_by_text(mistake).first)
    expect(page.get_by_text(f"{BROKEN}.yaml").first).to_be_visible()
    address = stage.asset("broken_feeds", f"{BROKEN}_yaml", "view=checks&checkDetail=loads")

    def is_check_red() -> bool:
        visit(page, address, "The mapping file can be used.")
        page.wait_for_timeout(500)
        failed = page.get_by_text("Failed", exact=True).last
        return failed.is_visible() and is_red(failed)

    until(is_check_red, every_s=3.0, what="the sensor that turns the check red")
    visit(page, stage.asset(BROKEN, "staged", "view=overview"), "mapping file is broken")


def test_no_page_shows_the_key_and_none_asks_another_host(page: Page, stage: Stage, heard: Heard) -> None:
    for path, awaited in (
        (f"/runs/{stage.braked_run}?logType=stderr", "Failure"),
        ("/deployment/config", "run_launcher"),
        ("/deployment/daemons", "Sensors"),
        (f"/assets/{STEADY}/published?view=events", "delivered"),
    ):
        visit(page, f"{stage.ui}{path}", awaited)
        page.wait_for_timeout(300)
    assert heard.pieces_of(BRAKED), "what the pages were sent is what is searched"
    assert heard.pieces_of(KEY) == set()
    assert heard.hosts == {stage.ui.removeprefix("http://")}


def test_a_page_of_another_origin_changes_nothing(stage: Stage, context: BrowserContext) -> None:
    before, titles = stage.desk.instance.get_runs_count(), stage.desk.titles()
    assert context.browser is not None
    with site(ATTACK) as port, context.browser.new_context() as elsewhere:  # not heard: no page of the UI asks for this one
        visitor = elsewhere.new_page()
        for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://{REBOUND}:{port}"):
            for name in ("127.0.0.1", "localhost"):
                visitor.goto(origin)
                target = stage.ui.replace("127.0.0.1", name)
                result = visitor.evaluate("attack", [target, stage.desk.base_url.replace("127.0.0.1", name), LAUNCH])
                assert result == {"image": "error", "socket": "error", "read": "TypeError"}, (origin, name)
        for service in (stage.ui, stage.desk.base_url):
            answer = visitor.goto(service.replace("127.0.0.1", REBOUND))
            assert answer is not None
            assert (answer.status, REBOUND in answer.text()) == (403, True)
        assert (stage.desk.instance.get_runs_count(), stage.desk.titles()) == (before, titles)
        visitor.goto(stage.ui)
        assert visitor.evaluate(SOCKET, [stage.ui]) == "open", "its own page has its socket"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_finds_no_way_to_run_code(stage: Stage) -> None:
    doors = listening(stage.pid)
    assert [family for family, _ in doors].count("unix") >= 2, "the code server and the one that it starts"
    assert as_another_user(REACH, doors) == [["tcp", [*stage.ui.removeprefix("http://").split(":")]]], "the UI itself, by design"
    # They may launch runs there, as docs/operations.md says; but a run's configuration loads no code and names no mapping file.
    selector = {"repositoryLocationName": "eventsync", "repositoryName": "__repository__", "jobName": "sync"}
    loading = [
        {"loggers": {"os.system": {"config": {"command": "id"}}}},
        {"loggers": {"console": {"config": {"log_level": "INFO", "module": "os"}}}},
        {"execution": {"config": {"module": "os", "class": "system"}}},
        {"resources": {"eventsync_options": {"config": {"mapping": "/srv/theirs.yaml"}}}},
    ]
    asked = [{"selector": selector, "mode": "default", "runConfigData": json.dumps(config)} for config in loading]
    answers = as_another_user(LAUNCHES, [stage.ui, asked])
    assert answers == ["RunConfigValidationInvalid"] * len(loading)
