"""Takes the pictures of this folder: three syncs of a growing file and one that a brake stops, in the Dagster UI.

Needs what `make test` installs, and Chromium on the PATH: `python docs/screenshots/take.py [NAME ...]` from the top of the
repository; without names, every picture.
"""

from __future__ import annotations

import csv
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from mappings.yaml.loader import load_folder
from pipelines.cli.servers import free_port, running_dagster, running_sandbox
from pipelines.cli.output.console import Output
from pipelines.cli.run import Launcher
from pipelines.before_serving import prepare_dagster_home
from pipelines.logs import configure_logs
from pipelines.run.options import RunOptions
from pipelines.settings import PACKAGED_FEEDS, Settings, read_settings

HERE = Path(__file__).parent
FEED = "lisbon-agenda"
SIZE = {"width": 1400, "height": 900}
ROUNDS = (35, 48, 61)
"""So many rows of the sample file each of the three runs finds."""
ENCODING = "windows-1252"


@dataclass(frozen=True)
class Stage:
    """What the pictures are taken of."""

    ui: str
    settings: Settings


def main(wanted: list[str]) -> None:
    """Set the stage in a temporary folder, take the pictures, strike the stage."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, set_stage(Path(folder)) as stage, sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport=SIZE, device_scale_factor=1)
        for name, show in PICTURES.items():
            if not wanted or name in wanted:
                show(page, stage)
                page.screenshot(path=HERE / f"{name}.png")
                sys.stdout.write(f"{name}: {(HERE / f'{name}.png').stat().st_size // 1024} kB\n")
        browser.close()


@contextmanager
def set_stage(folder: Path) -> Iterator[Stage]:
    """Run everything that is to be seen, and leave the UI running."""
    shutil.copytree(PACKAGED_FEEDS.parent, folder / "mappings", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    with running_sandbox(folder / "sandbox") as sandbox:
        environ = {
            **os.environ,
            "EVENT_API_BASE_URL": sandbox.base_url,
            "EVENT_API_KEY": sandbox.api_key,
            "EVENTSYNC_FEEDS": str(folder / "mappings" / "feeds"),
            "EVENTSYNC_STATE_URL": f"sqlite:///{folder / 'state.db'}",
            "DAGSTER_HOME": str(folder / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "EVENTSYNC_LOG": "warning",
        }
        prepare_dagster_home(folder / "dagster")
        settings = read_settings(environ, folder)
        configure_logs(settings)
        sync_all(settings)
        with running_dagster(settings, environ, free_port(3000), print) as url:
            yield Stage(url, settings)


def sync_all(settings: Settings) -> None:
    """Run every feed, one of them three times."""
    sync(settings, "osaka-fireworks")
    sync(settings, "krakow-culture")
    rows = sample_rows()
    for count in ROUNDS:
        write_rows(settings, rows[: count + 1])
        sync(settings, FEED)


def sync_spoilt(settings: Settings) -> None:
    """Run the feed over a file with too many bad dates."""
    rows = sample_rows()
    write_rows(
        settings, [[*row[:3], row[3].replace("-", " "), *row[4:]] if number % 7 == 6 else row for number, row in enumerate(rows)]
    )
    sync(settings, FEED)


def sync(settings: Settings, feed: str) -> None:
    mappings = [one for one in load_folder(settings.feeds).feeds if one.feed == feed]
    (report,) = Launcher(settings, RunOptions(), Output()).run_in_process(mappings)
    sys.stdout.write(f"{feed}: {report.outcome}\n")


def sample_rows() -> list[list[str]]:
    text = (PACKAGED_FEEDS / "samples" / f"{FEED}.csv").read_text(ENCODING)
    return list(csv.reader(text.splitlines(keepends=True), delimiter=";"))


def write_rows(settings: Settings, rows: list[list[str]]) -> None:
    with (settings.feeds / "samples" / f"{FEED}.csv").open("w", encoding=ENCODING, newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(rows)


def lineage(page: Page, stage: Stage) -> None:
    """A feed as three assets, with their checks."""
    visit(page, f"{stage.ui}/locations/eventsync/asset-groups/lisbon_agenda/lineage", "published")


def staged(page: Page, stage: Stage) -> None:
    """What is staged, with the table of rejected rows."""
    visit(page, f"{stage.ui}/assets/{FEED}/staged?view=events", "rejected rows")
    wheel(page, 230)


def plots(page: Page, stage: Stage) -> None:
    """The counts over the runs."""
    visit(page, f"{stage.ui}/assets/{FEED}/staged?view=overview", "unchanged")
    fold(page, "Status", "Description")
    page.get_by_text("Plots", exact=True).first.click()
    page.wait_for_timeout(2000)
    page.get_by_text("rejected", exact=True).first.scroll_into_view_if_needed()
    wheel(page, 105)


def check(page: Page, stage: Stage) -> None:
    """The brakes as checks, one of them tripped."""
    with ThreadPoolExecutor(1) as apart:  # Playwright keeps an event loop in this thread
        apart.submit(sync_spoilt, stage.settings).result()
    visit(page, f"{stage.ui}/assets/{FEED}/staged?view=checks&checkDetail=rejected", "blocking")


def wheel(page: Page, pixels: int) -> None:
    """Scroll what is in the middle of the page."""
    page.mouse.move(900, 650)
    page.mouse.wheel(0, pixels)
    page.wait_for_timeout(1500)


def fold(page: Page, *sections: str) -> None:
    """Fold sections of an asset's page away."""
    for section in sections:
        page.get_by_text(section, exact=True).first.click()
        page.wait_for_timeout(500)


def visit(page: Page, url: str, awaited: str) -> None:
    """Open a page of the UI and wait until it shows a text and has settled."""
    page.goto(url)
    page.get_by_text(awaited).first.wait_for(timeout=90_000)
    page.wait_for_timeout(4000)


PICTURES: Mapping[str, Callable[[Page, Stage], None]] = {
    "lineage": lineage,
    "staged": staged,
    "plots": plots,
    "check": check,
}

if __name__ == "__main__":
    main(sys.argv[1:])
