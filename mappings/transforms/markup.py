"""Steps that turn HTML into text. What the text then means is other steps' business."""

from __future__ import annotations

import html
import re
from typing import ClassVar

import nh3
from pydantic import Field

from mappings.measures import Switch
from mappings.transforms.step import Run, Shown, Step
from mappings.transforms.text import SPACES

_MOST_LAYERS = 8
_BREAKS = re.compile(r"<\s*(?:br\s*/?|/(?:p|div|li|tr|h[1-6]|ul|ol|table|blockquote|section|article))\s*>", re.IGNORECASE)
_LINE_SPACE = re.compile(r"[^\S\n]+")
_MANY_LINES = re.compile(r"\s*\n\s*")


def unescape(text: str) -> str:
    """Undo HTML's character references until nothing changes: exports often escape twice."""
    for _ in range(_MOST_LAYERS):
        plain = html.unescape(text)
        if plain == text:
            return text
        text = plain
    return text


class HtmlUnescape(Step):
    """Undo HTML's character references, however many times over they were escaped."""

    name: ClassVar[str] = "html_unescape"
    shown: ClassVar[tuple[Shown, ...]] = (Shown("html_unescape", "Jazz &amp;amp; blues &#8211; live", "Jazz & blues – live"),)
    switch: Switch = Field(default=True, alias="html_unescape")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: unescape(text) if "&" in text else text


class HtmlToText(Step):
    """Keep the words of an HTML text: tags, scripts and comments go, paragraphs become lines."""

    name: ClassVar[str] = "html_to_text"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("html_to_text", "<p>Jazz &amp; <b>blues</b></p><p>Live</p><script>x()</script>", "Jazz & blues\nLive"),
        Shown("html_to_text", "5 < 7 €", "5 < 7 €"),
    )
    switch: Switch = Field(default=True, alias="html_to_text")

    def function(self) -> Run:
        """Return the step's function."""
        return html_to_text


def html_to_text(text: str) -> str:
    """Keep the words of an HTML text, one line a paragraph."""
    if "<" not in text and "&" not in text:
        return text
    clean = nh3.clean(_BREAKS.sub("\n", text), tags=set(), strip_comments=True)
    lines = _LINE_SPACE.sub(" ", unescape(clean))
    return _MANY_LINES.sub("\n", lines).strip(SPACES)
