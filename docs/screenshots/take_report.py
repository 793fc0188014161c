"""Takes the picture of the page for a partner's editor: a file is synced, then edited, spoilt in places and synced again.

Needs what `take.py` needs: `python docs/screenshots/take_report.py` from the top of the repository.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from take import ENCODING, FEED, HERE, sample_rows

from pipelines.cli.servers import running_sandbox
from pipelines.settings import PACKAGED_FEEDS

SIZE = {"width": 1100, "height": 1000}


def main() -> None:
    """Sync twice in a temporary folder, write the page, take its picture."""
    with tempfile.TemporaryDirectory() as name, running_sandbox(Path(name) / "sandbox") as sandbox:
        folder = Path(name)
        shutil.copytree(PACKAGED_FEEDS.parent, folder / "mappings", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        environ = {**os.environ, "EVENT_API_BASE_URL": sandbox.base_url, "EVENT_API_KEY": sandbox.api_key}
        rows = sample_rows()
        for edit in (lambda row: row, edited):
            sample = folder / "mappings" / "feeds" / "samples" / f"{FEED}.csv"
            with sample.open("w", encoding=ENCODING, newline="") as file:
                csv.writer(file, delimiter=";", lineterminator="\n").writerows(edit(list(row)) for row in rows)
            command(folder, environ, "run", FEED, "--no-dagster")
        command(folder, environ, "report", FEED, "--html", "report.html")
        take(folder / "report.html")


def edited(row: list[str]) -> list[str]:
    """Give some rows another title, and others a day that is none."""
    if row[0].endswith("7"):
        row[3] = row[3].replace("-", " ")
    if row[0].endswith("3"):
        row[1] = f"{row[1]} (esgotado)"
    return row


def command(folder: Path, environ: dict[str, str], *words: str) -> None:
    """Run `eventsync` in the folder."""
    subprocess.run([Path(sys.executable).with_name("eventsync"), *words], cwd=folder, env=environ, check=False)  # noqa: S603  # a command of ours


def take(page: Path) -> None:
    """Take the picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport=SIZE, device_scale_factor=1)
        shown.goto(page.as_uri())
        shown.screenshot(path=HERE / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
