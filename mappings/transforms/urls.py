"""Steps that turn what partners type into a web address. Whether it answers is never asked."""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import quote, urlsplit, urlunsplit

import idna
from pydantic import Field

from mappings.measures import Switch
from mappings.refusals import Refusal
from mappings.transforms.step import Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.vocabulary import ReasonCode

_SOUND = re.compile(
    r"https?://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d{1,5})?"
    r"(?:[/?](?:(?:[\w/?:@!$&'()*+,;=~.-]++|%[0-9A-Fa-f]{2})++(?<=[\w/=-]))?)?",
    re.ASCII,
)
"""Addresses that need no change: by far the most."""
_FIRST = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_BARE = re.compile(r"(?:www\.)?(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}(?::\d+)?(?:[/?#][^\s<>\"']*)?")
_OTHER_SCHEME = re.compile(r"(?:mailto|tel|javascript|data|ftp|file):", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRAILING = ".,;:!?)]}»”’"
_LONGEST = 4000
_WANTED = "an address like https://example.org/tickets would be accepted"


class EncodeSpaces(Step):
    """Write the spaces inside an address as %20, where the cell holds nothing but the address; `url` ends at a space."""

    name: ClassVar[str] = "encode_spaces"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("encode_spaces", " https://example.org/photo 1.jpg", "https://example.org/photo%201.jpg"),
    )
    switch: Switch = Field(default=True, alias="encode_spaces")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: re.sub(r"\s", "%20", text.strip(SPACES))


class Url(Step):
    """Find the first web address, add https:// where the scheme is missing, percent-encode exactly once.

    Addresses other than http and https (mailto, tel) are refused.
    """

    name: ClassVar[str] = "url"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("url", "Bilhetes: https://example.org/a b", "https://example.org/a"),
        Shown("url", "www.example.org/café", "https://www.example.org/caf%C3%A9"),
        Shown("url", "https://example.org/a%7Cb|c", "https://example.org/a%7Cb%7Cc"),
        Shown("url", "mailto:box@example.org", ReasonCode.NOT_A_URL),
    )
    switch: Switch = Field(default=True, alias="url")

    def function(self) -> Run:
        """Return the step's function."""
        return clean_url


def clean_url(text: str) -> str:
    """Return the first web address in a text, in the form in which it can be sent.

    Raises:
        Refusal: there is none, or it is not an address of the web.
    """
    if len(text) < _LONGEST and _SOUND.fullmatch(text):
        return text
    if len(text) > _LONGEST:
        raise Refusal(ReasonCode.NOT_A_URL, f"an address of at most {_LONGEST} characters would be accepted")
    found = _FIRST.search(text)
    if found:
        return _encoded(_without_tail(found[0]))
    bare = text.strip()
    if _OTHER_SCHEME.match(bare) or not _BARE.fullmatch(bare):
        raise Refusal(ReasonCode.NOT_A_URL, _WANTED)
    return _encoded("https://" + bare)


def _without_tail(url: str) -> str:
    """Drop the punctuation of the sentence around it, but keep a bracket that the address itself opens."""
    while url and url[-1] in _TRAILING and not (url[-1] == ")" and url.count("(") >= url.count(")")):
        url = url[:-1]
    return url


def _encoded(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = _host(parts.hostname or "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise Refusal(ReasonCode.NOT_A_URL, _WANTED) from None
    path = _percent(parts.path, "/:@!$&'()*+,;=~-._%")
    query = _percent(parts.query, "/?:@!$&'()*+,;=~-._%")
    fragment = _percent(parts.fragment, "/?:@!$&'()*+,;=~-._%")
    return urlunsplit((parts.scheme.lower(), host + port, path, query, fragment))


def _percent(part: str, safe: str) -> str:
    return quote(_BAD_ESCAPE.sub("%25", part), safe=safe, errors="replace")


def _host(host: str) -> str:
    if host.isascii() and re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", host):
        return host
    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError(host) from error
