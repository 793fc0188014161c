"""How pages of the Dagster UI are read: opened until they show a text; their colours, their plots, and what the browser was sent.

What should be seen on them is the tests'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

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
_PLOTS = """
() => [...document.querySelectorAll('canvas')].map(canvas => {
  let around = canvas;
  while (around.parentElement && !around.innerText?.trim()) around = around.parentElement;
  const {width, height} = canvas;
  if (!width || !height) return null;
  const dots = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const at = 4 * (y * width + x);
    if (dots[at + 3] > 128 && dots[at + 2] > dots[at] + 70 && dots[at + 2] > dots[at + 1] + 70) {
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
    }
  }
  return right < left ? null : [around.innerText.trim(), right - left, bottom - top];
}).filter(found => found)
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


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a plot: how far it goes across, and how far up and down, in dots of the screen."""

    across: int
    up: int


def plots_of(page: Page) -> Mapping[str, Line]:
    """The plots that a page has drawn, by their titles."""
    return {title: Line(across, up) for title, across, up in page.evaluate(_PLOTS)}


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
