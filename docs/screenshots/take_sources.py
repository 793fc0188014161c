"""Take the picture of two feeds of `make demo-sources` in the Dagster UI: a Google sheet and a Salesforce object.

Needs what `take.py` needs. `PYTHONPATH=tests python docs/screenshots/take_sources.py` from the top of the repository.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from lookalikes.demo import FEEDS, running_places
from playwright.sync_api import Page, sync_playwright
from take import HERE, SIZE, visit

from pipelines.cli.servers import free_port, running_dagster
from pipelines.cli.output.console import Output
from pipelines.cli.run_report import show_accounts
from pipelines.cli.run import sync_feeds
from pipelines.cli.servers import demo_service
from pipelines.settings import read_settings


def main() -> None:
    """Sync all feeds twice, then take the picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        demo_service(Path(folder) / "demo", FEEDS) as (_sandbox, environ),
        running_places(Path(folder) / "access") as places,
    ):
        environ = {**environ, **places.environ, "EVENTSYNC_FEEDS": str(places.feeds)}
        settings = read_settings(environ, Path(folder))
        for title in ("first", "second"):
            sync_feeds(settings, Output(), title, show_accounts)
        with running_dagster(settings, environ, free_port(3000), print) as ui:
            take(ui)


def take(ui: str) -> None:
    """Take every picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport=SIZE, device_scale_factor=1)
        lineage_of_both(page, ui)
        page.screenshot(path=HERE / "sources.png")
        sys.stdout.write(f"sources: {(HERE / 'sources.png').stat().st_size // 1024} kB\n")
        browser.close()


def lineage_of_both(page: Page, ui: str) -> None:
    """Both feeds as assets: a Google sheet and a Salesforce object, each under its kind."""
    groups = quote('group:"demo_sheet" or group:"demo_salesforce"')
    visit(page, f"{ui}/asset-groups~{groups}/", "demo_sheet")
    page.mouse.click(1250, 800)
    page.keyboard.press("Alt+e")
    page.wait_for_timeout(4000)


if __name__ == "__main__":
    main()
