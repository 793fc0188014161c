"""One stage, one browser and one webserver for all tests of a file, one page for each; what is seen on it, and what was sent."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from browser.stage import DATED, DAYS, Stage, staged
from playwright.sync_api import BrowserContext, Error, Locator, Page, Request, WebSocket, expect, sync_playwright

VARIABLE = "EVENTSYNC_TEST_BROWSER"
"""`required`, as .ci/run has it: a Chromium must be on the PATH. Anything else: the name or the path of the one to take."""
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
REBOUND = "rebound.example"
"""A name of another site that leads to this machine."""
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
)
"""Root, as whom most containers run, has no sandbox to be in; and nothing but the page asks anything of the network."""
PATIENCE_MS = 90_000
"""Beside other tests on two cores a page takes its time; on a quiet machine it takes a second."""
_COLOUR = """
element => {
  const canvas = document.createElement('canvas').getContext('2d');
  canvas.fillStyle = getComputedStyle(element).color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
"""
_CUT = """
element => {
  for (let around = element; around; around = around.parentElement) {
    if (around.scrollWidth > around.clientWidth + 1 && getComputedStyle(around).overflowX !== 'visible') return true;
  }
  return false;
}
"""


@pytest.fixture(scope="session")
def chromium() -> str:
    """The Chromium of the system, never a downloaded one; without it tests are skipped, or fail where the variable is set."""
    wanted = os.environ.get(VARIABLE, "")
    found = next(filter(None, map(shutil.which, NAMES if wanted in {"", "required"} else (wanted,))), None)
    if found is None:
        (pytest.fail if wanted else pytest.skip)(f"no Chromium: install one (Debian: chromium), or name it in {VARIABLE}")
    return found


@pytest.fixture(scope="module")
def stage(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Not for the session: webserver and daemon would work on beside all the tests that come after these."""
    del chromium  # where there is none, nothing is staged for it
    with staged(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.fixture(scope="module")
def context(chromium: str, stage: Stage, heard: Heard) -> Iterator[BrowserContext]:
    """A browser. Not for the session: while it is open, no other test of this thread could run an event loop."""
    del stage  # which runs one itself, and so comes first
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        opened = browser.new_context(viewport={"width": 1400, "height": 900}, timezone_id="UTC", locale="en-GB")
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


def visit(page: Page, url: str, awaited: str) -> None:
    """Open a page and wait until it shows a text."""
    page.goto(url, wait_until="domcontentloaded")
    expect(page.get_by_text(awaited).first).to_be_visible()


def choose_days(page: Page, stage: Stage) -> Locator:
    """Open the dialog that launches days of the past, choose all of them, and return the dialog."""
    visit(page, stage.asset(DATED, "backfilled", "view=overview"), "Days (by file)")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Show all partitions").click()
    chosen = dialog.get_by_placeholder(re.compile("^ex: "))
    chosen.fill(f"[{DAYS[0]}...{DAYS[-1]}]")
    chosen.press("Enter")
    return dialog


def is_red(shown: Locator) -> bool:
    """Whether a text is written in red, however the page spells that."""
    red, green, blue, _ = shown.evaluate(_COLOUR)
    return bool(red > green + 60 and red > blue + 60)


def is_cut(shown: Locator) -> bool:
    """Whether a text goes on beyond what is seen of it."""
    return bool(shown.evaluate(_CUT))


@dataclass
class Heard:
    """Everything that the UI's server sent to a browser, and every host that the browser asked for anything."""

    texts: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def listen_to(self, context: BrowserContext) -> None:
        context.on("request", lambda request: self._asked(request.url))
        context.on("requestfinished", self._finished)
        context.on("page", lambda page: page.on("websocket", self._opened))

    def _asked(self, url: str) -> None:
        if host := urlsplit(url).netloc:  # what a page holds itself, as `data:`, has none
            self.hosts.add(host)

    def _finished(self, request: Request) -> None:
        if "/graphql" not in request.url and "/logs" not in request.url:
            return  # the program of the pages, which knows nothing of ours
        with suppress(Error):  # the page was left before its answer came
            answer = request.response()
            self.texts.append(answer.text() if answer else "")

    def _opened(self, socket: WebSocket) -> None:
        self._asked(socket.url)
        socket.on("framereceived", lambda frame: self.texts.append(frame if isinstance(frame, str) else frame.decode()))

    def pieces_of(self, secret: str, length: int = 8) -> set[str]:
        """The pieces of a secret that were sent; a key may be named by a few of its last characters."""
        pieces = {secret[at : at + length] for at in range(len(secret) - length + 1)}
        sought = re.compile("|".join(map(re.escape, pieces)))
        return {found[0] for text in self.texts for found in sought.finditer(text)}


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()
