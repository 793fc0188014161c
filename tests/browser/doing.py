"""What a person does on pages of the Dagster UI: options written into the launchpad, days of the past chosen.

What is seen there is read in `reading`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from browser.reading import visit
from browser.stage import Stage
from playwright.sync_api import Locator, Page, expect


def open_launchpad(page: Page, stage: Stage, feed: str) -> Locator:
    """Go from the page of a feed's job to its launchpad; return the dialog."""
    visit(page, f"{stage.ui}/locations/eventsync/jobs/sync_{feed.replace('-', '_')}", "Materialize all")
    page.get_by_role("button", name="Materialize all").locator("xpath=following::button[1]").click()
    page.get_by_text("Open launchpad").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("No errors")).to_be_visible()
    return dialog


def write(page: Page, text: str) -> None:
    """Replace what stands in the editor of the launchpad."""
    page.get_by_role("dialog").locator(".CodeMirror").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def choose_days(page: Page, stage: Stage, feed: str, days: Sequence[str]) -> Locator:
    """Go from a feed's past to days of it that are to be brought in; return the dialog, ready to be launched."""
    visit(page, stage.asset(feed, "backfilled", "view=overview"), "Past days, by file")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Show all partitions").click()
    chosen = dialog.get_by_placeholder(re.compile("^ex: "))
    chosen.fill(f"[{days[0]}...{days[-1]}]")
    chosen.press("Enter")
    expect(dialog.get_by_text(f"{len(days)} partitions").first).to_be_visible()
    return dialog
