"""One stage, one browser and one webserver for all tests of a file, one page for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from browser.reading import PATIENCE_MS, Heard
from browser.stage import Stage, staged
from browser.system_browser import ARGUMENTS, chromium_or_leave
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

SIZE = {"width": 1400, "height": 900}


@pytest.fixture(scope="session")
def chromium() -> str:
    return chromium_or_leave(os.environ)


@pytest.fixture(scope="module")
def stage(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Not for the session: webserver and daemon would work on beside all the tests that come after these."""
    del chromium  # where there is none, nothing is staged for it
    with staged(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def context(chromium: str, stage: Stage, heard: Heard) -> Iterator[BrowserContext]:
    """A browser. Not for the session: while it is open, no other test of this thread could run an event loop."""
    del stage  # which runs one itself, and so comes first
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        opened = browser.new_context(viewport=SIZE, timezone_id="UTC", locale="en-GB")
        opened.set_default_timeout(PATIENCE_MS)
        heard.listen_to(opened)
        yield opened
        opened.close()
        browser.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    opened = context.new_page()
    yield opened
    opened.close()
