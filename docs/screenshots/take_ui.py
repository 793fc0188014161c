"""Take the pictures of the Dagster UI in use: a braked feed, a launchpad, held rows, backfills, a broken file.

The stage is that of the browser tests. `PYTHONPATH=tests python docs/screenshots/take_ui.py [NAME ...]` from the top of the
repository, with what `make test` installs and Chromium on the PATH; without names, every picture.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from browser.conftest import ARGUMENTS, NAMES, choose_days, visit
from browser.stage import BRAKED, BROKEN, DATED, DAYS, GROWING, LAUNCHED, STEADY, Stage, staged, write_rows
from on_dagster.desk import line
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
SIZE = {"width": 1400, "height": 900}
RENAME = """
([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}
"""


def main(wanted: list[str]) -> None:
    """Set the stage in a temporary folder, take the pictures, strike the stage."""
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder)) as stage, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(filter(None, map(shutil.which, NAMES))), args=ARGUMENTS)
        for name, show in PICTURES.items():
            if not wanted or name in wanted:
                page = browser.new_page(viewport=SIZE, device_scale_factor=1)
                show(page, stage)
                page.wait_for_timeout(2000)
                page.evaluate(RENAME, [folder, "/srv/events"])  # no path of this machine
                page.screenshot(path=HERE / f"{name}.png")
                sys.stdout.write(f"{name}: {(HERE / f'{name}.png').stat().st_size // 1024} kB\n")
        browser.close()


def brake(page: Page, stage: Stage) -> None:
    """A feed that a brake has stopped."""
    visit(page, f"{stage.ui}/locations/eventsync/asset-groups/{BRAKED.replace('-', '_')}/lineage", "published")


def launchpad(page: Page, stage: Stage) -> None:
    """The options of a run, before it is launched."""
    visit(page, f"{stage.ui}/locations/eventsync/asset-groups/{LAUNCHED.replace('-', '_')}/lineage", "published")
    page.get_by_role("button", name="Materialize all").locator("xpath=following::button[1]").click()
    page.get_by_text("Open launchpad").click()
    page.get_by_role("dialog").locator(".CodeMirror").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("resources:\n  eventsync_options:\n    config:\n      limit: 2\n      as_draft: true")


def days(page: Page, stage: Stage) -> None:
    """Days of the past that are about to be brought in."""
    choose_days(page, stage)


def held(page: Page, stage: Stage) -> None:
    """Rows that look like events sent under other keys."""
    copies = (line(number).replace(f"{number},", f"9{number},", 1) for number in (13, 25))
    write_rows(stage.desk, f"{STEADY}.csv", [*map(line, range(GROWING[-1] + 4)), *copies])
    with ThreadPoolExecutor(1) as apart:  # Playwright keeps an event loop in this thread
        apart.submit(stage.desk.run, feed=STEADY).result()
    visit(page, stage.asset(STEADY, "staged", "view=events"), "held rows")


def backfills(page: Page, stage: Stage) -> None:
    """Backfills that the command has launched."""
    for last in (DAYS[0], DAYS[-1]):
        stage.desk.start("backfill", DATED, "--from", DAYS[0], "--to", last).communicate()
    visit(page, f"{stage.ui}/runs?view=backfills", DATED)


def broken(page: Page, stage: Stage) -> None:
    """A mapping file with a mistake."""
    visit(page, stage.asset("broken_feeds", f"{BROKEN}_yaml", "view=overview"), "is it written as")


PICTURES: Mapping[str, Callable[[Page, Stage], None]] = {
    "brake": brake,
    "launchpad": launchpad,
    "days": days,
    "held": held,
    "backfills": backfills,
    "broken": broken,
}

if __name__ == "__main__":
    main(sys.argv[1:])
