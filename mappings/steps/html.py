"""Steps that turn HTML and Markdown into text."""

from __future__ import annotations

import html
import re
from typing import ClassVar, Literal
from urllib.parse import unquote

import nh3
from pydantic import Field

from mappings.measures import Switch
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Run, Shown, Step
from mappings.steps.text import SPACES

_MOST_LAYERS = 8
_REFERENCE = re.compile("&[#A-Za-z]")
"""How every character reference begins."""
_BREAKS = re.compile(r"<\s*(?:br\s*/?|/(?:p|div|li|tr|h[1-6]|ul|ol|table|blockquote|section|article))\s*>", re.IGNORECASE)
_LINE_SPACE = re.compile(r"[^\S\n]+")
_BACKSLASHED = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\([nNrt\"'\\/,;])")
_LETTERS = {"n": "\n", "N": "\n", "r": "\r", "t": "\t"}
_LONGEST_MARKDOWN = 50_000
_MANY_LINES = re.compile(r"(?<![^\S\n])[^\S\n]*+\n\s*")


def unescape(text: str) -> str:
    """Undo HTML's character references until nothing changes: exports often escape twice."""
    if "&" not in text:
        return text
    for _ in range(_MOST_LAYERS):
        plain = text.replace("&amp;", "&")  # nearly all there is to undo, found much sooner
        if not _REFERENCE.search(plain):
            return plain
        plain = html.unescape(plain)
        if plain == text:
            return text
        text = plain
    return text


class HtmlUnescape(Step, name="html_unescape", refuses=False):
    """Undo HTML's character references, however many times over they were escaped."""

    shown: ClassVar[tuple[Shown, ...]] = (Shown("html_unescape", "Jazz &amp;amp; blues &#8211; live", "Jazz & blues – live"),)
    switch: Switch = Field(default=True, alias="html_unescape")

    def function(self) -> Run:
        return unescape


class Unescape(Step, name="unescape", refuses=False):
    """Undo one more way of writing characters that another program would misread.

    `percent`: as in web addresses; `backslash`: as in JSON and calendars. What is no escape stays as it is.
    """

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{unescape: percent}", "Caf%C3%A9%20Central 100%", "Café Central 100%"),
        Shown("{unescape: backslash}", r"Caf\u00e9\, Rua A\nLisboa", "Café, Rua A\nLisboa"),
    )
    form: Literal["percent", "backslash"] = Field(alias="unescape", description="How the characters are written.")

    def function(self) -> Run:
        return unquote if self.form == "percent" else _without_backslashes


class HtmlToText(Step, name="html_to_text", refuses=False):
    """Keep the words of an HTML text: tags, scripts and comments go, paragraphs become lines."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("html_to_text", "<p>Jazz &amp; <b>blues</b></p><p>Live</p><script>x()</script>", "Jazz & blues\nLive"),
        Shown("html_to_text", "5 < 7 €", "5 < 7 €"),
    )
    switch: Switch = Field(default=True, alias="html_to_text")

    def function(self) -> Run:
        return html_to_text


class MarkdownToText(Step, name="markdown_to_text"):
    """Keep the words of a Markdown text: marks and addresses of links go, paragraphs and list items become lines."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("markdown_to_text", "# Jazz\n\n**Live** at [Blå](https://example.org)\n\n* free", "Jazz\nLive at Blå\nfree"),
        Shown("markdown_to_text", "5 * 3 _ok", "5 * 3 _ok"),
    )
    switch: Switch = Field(default=True, alias="markdown_to_text")

    def function(self) -> Run:
        from markdown_it import MarkdownIt  # noqa: PLC0415  # sixty modules, for the few feeds that read Markdown

        render = MarkdownIt("commonmark").render

        def markdown_to_text(text: str) -> str:
            if len(text) > _LONGEST_MARKDOWN:
                raise Refusal(ReasonCode.TOO_LONG, f"at most {_LONGEST_MARKDOWN} characters of Markdown can be read")
            return html_to_text(render(text.encode("utf-8", "replace").decode()))

        return markdown_to_text


def _without_backslashes(text: str) -> str:
    return _BACKSLASHED.sub(_written, text)


def _written(escape: re.Match[str]) -> str:
    if escape[1]:
        return escape[1].encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LETTERS.get(escape[2], escape[2])


def html_to_text(text: str) -> str:
    """Keep the words of an HTML text, one line a paragraph."""
    if "<" not in text and "&" not in text:
        return text
    whole = text.encode("utf-8", "replace").decode()  # half a character of an escape is none
    clean = nh3.clean(_BREAKS.sub("\n", whole), tags=set(), strip_comments=True)
    lines = _LINE_SPACE.sub(" ", unescape(clean))
    return _MANY_LINES.sub("\n", lines).strip(SPACES)
