"""How a person reads pages of the Dagster UI and what is done on them; their colours, and what the browser was sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from browser.stage import Stage
from playwright.sync_api import BrowserContext, Error, Locator, Page, Request, WebSocket, expect

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


def visit(page: Page, url: str, awaited: str) -> None:
    """Open a page and wait until it shows a text."""
    page.goto(url, wait_until="domcontentloaded")
    expect(page.get_by_text(awaited).first).to_be_visible()


def is_red(shown: Locator) -> bool:
    """Whether a text is written in red, however the page spells that."""
    red, green, blue, _ = shown.evaluate(_COLOUR)
    return bool(red > green + 60 and red > blue + 60)


def is_cut(shown: Locator) -> bool:
    """Whether a text goes on beyond what is seen of it."""
    return bool(shown.evaluate(_CUT))


@dataclass
class Heard:
    """Everything that a browser was told by the UI's server, and whom it has asked for anything at all."""

    texts: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def listen_to(self, context: BrowserContext) -> None:
        """Hear all pages of a browser from now on."""
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
        """The pieces of a secret that were heard; a key may be named by a few of its last characters."""
        pieces = {secret[at : at + length] for at in range(len(secret) - length + 1)}
        sought = re.compile("|".join(map(re.escape, pieces)))
        return {found[0] for text in self.texts for found in sought.finditer(text)}


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
