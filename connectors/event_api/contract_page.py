"""The service's OpenAPI page: fetch it, and read it as a tree of plain values, bounded in bytes, depth and size.

YAML's own guesses (dates, octal numbers, `no`) are not made here, as a page means text by them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from connectors.event_api.transport import Exchange, HttpAnswer

LONGEST_PAGE = 1 << 20
"""Bytes of the longest page that is read."""
MOST_NODES = 100_000
"""The most values of a page, each alias counted with all that it stands for."""
DEEPEST = 64
"""The deepest nesting of a page; a description that people write stays below 25."""
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]{1,18}(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_WORDS: Mapping[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_VERSION = re.compile(r"3\.[0-9]+(\.[0-9]+)?.*")


@dataclass(frozen=True, slots=True)
class ContractPage:
    """A page that describes an API in OpenAPI 3: `tree` is its root, every mapping with texts for keys."""

    tree: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoPage:
    """Why what lies there could not be compared, in words for people."""

    why: str


class _TooMuchError(Exception):
    """The page is larger inside than any description of an API."""


def read_page(body: bytes) -> ContractPage | NoPage:
    """Read the bytes of a page. Never raises, and takes time and memory in proportion to the page's length at most."""
    if len(body) >= LONGEST_PAGE:
        return NoPage(f"the page is larger than {LONGEST_PAGE >> 20} MB")
    try:
        tree = _Builder().build(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return NoPage("the page is not UTF-8 text")
    except _TooMuchError as problem:
        return NoPage(str(problem))
    except yaml.YAMLError as problem:
        return NoPage(f"the page is not YAML ({_first_line(problem)}){_looks_like(body)}")
    if not isinstance(tree, dict):
        return NoPage(f"the page is not a description of an API{_looks_like(body)}")
    return _described(tree)


def _described(tree: dict[str, Any]) -> ContractPage | NoPage:
    version = str(tree.get("openapi", tree.get("swagger", "")))
    if not _VERSION.fullmatch(version):
        said = f"is of OpenAPI {version[:20]}, and 3.0 or 3.1 can be read" if version else "does not say that it is OpenAPI"
        return NoPage(f"the page {said}")
    paths = tree.get("paths")
    return ContractPage(tree) if isinstance(paths, dict) and paths else NoPage("the page describes no path")


@dataclass(slots=True)
class _Open:
    """A collection on its way: `children` in order, keys and values in turn for a mapping; `size` of all within."""

    is_mapping: bool
    anchor: str | None
    children: list[Any] = field(default_factory=list)
    size: int = 1


class _Builder:
    """Builds the tree from the parser's events, counting as it goes; aliases share what they stand for."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._known: dict[str, tuple[Any, int]] = {}
        self._root: Any = None

    def build(self, text: str) -> Any:
        for event in _events(text):
            match event:
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(_Open(isinstance(event, yaml.MappingStartEvent), event.anchor))
                case yaml.CollectionEndEvent():
                    self._end()
                case yaml.ScalarEvent():
                    self._put(_scalar(event), 1, event.anchor)
                case yaml.AliasEvent():
                    self._put(*self._of_alias(event.anchor or ""), None)
                case _:
                    pass
        return self._root

    def _begin(self, opened: _Open) -> None:
        if len(self._open) >= DEEPEST:
            raise _TooMuchError(f"the page is nested deeper than {DEEPEST} levels")
        self._open.append(opened)

    def _end(self) -> None:
        ended = self._open.pop()
        value = _mapping(ended.children) if ended.is_mapping else ended.children
        self._put(value, ended.size, ended.anchor)

    def _put(self, value: Any, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._known[anchor] = value, size
        if not self._open:
            self._root = value
            return
        outer = self._open[-1]
        outer.children.append(value)
        outer.size += size
        if outer.size > MOST_NODES:
            raise _TooMuchError(f"the page holds more than {MOST_NODES} values")

    def _of_alias(self, anchor: str) -> tuple[Any, int]:
        if anchor not in self._known:
            raise _TooMuchError("the page refers to itself by an alias")
        return self._known[anchor]


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of the first document."""
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentEndEvent):
            return
        yield event


def _mapping(children: list[Any]) -> dict[str, Any]:
    """Return keys and values as a mapping; a merge key (`<<`) brings what its mapping says otherwise."""
    pairs = [(_key(key), value) for key, value in zip(children[::2], children[1::2], strict=True)]
    own = dict(pairs)
    merged = own.pop("<<", None)
    for base in merged if isinstance(merged, list) else [merged]:
        if isinstance(base, dict):
            own = {**base, **own}
    return own


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key).lower()


def _scalar(event: yaml.ScalarEvent) -> Any:
    """Read a scalar as YAML 1.2's JSON schema does: everything that is quoted, or looks like nothing else, is text."""
    text: str = event.value
    if not event.implicit[0] or event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _first_line(problem: yaml.YAMLError) -> str:
    return str(problem).partition("\n")[0][:120]


def _looks_like(body: bytes) -> str:
    head = body[:200].lstrip().lower()
    return ": it looks like an HTML page" if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")) else ""


PATH = "/api/developer/openapi/public-api-v1"
"""Where the page is: public, YAML (spec, Versioning)."""
PATIENCE_S = 3.0
"""The longest that a run waits for it."""
_LONGEST_ETAG = 200


@dataclass(frozen=True, slots=True)
class PageBody:
    """The page's bytes as they came, and the `ETag` to ask with next time, "" if there was none."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class PageUnchanged:
    """It is still the page of the `etag` handed in."""


PageAnswer = PageBody | PageUnchanged | NoPage


async def ask_page(exchange: Exchange, etag: str = "", *, patience_s: float = PATIENCE_S) -> PageAnswer:
    """Ask once for the page; with `etag`, only if it is another one by now. Never raises for what comes back."""
    headers = {"accept": "application/yaml, text/yaml, */*;q=0.1"} | ({"if-none-match": etag} if etag else {})
    request = exchange.request("GET", exchange.url(PATH, prefix=""), headers=headers, has_key=False)
    try:
        async with asyncio.timeout(patience_s):
            told = await exchange(request)
    except TimeoutError:
        return NoPage(f"the page did not come within {patience_s:.0f} seconds")
    if not isinstance(told, HttpAnswer):
        return NoPage(f"the page could not be fetched: {told.answer.message if told else 'not sent'}")
    return _meaning(told, etag)


def _meaning(told: HttpAnswer, etag: str) -> PageAnswer:
    if told.status == 304 and etag:
        return PageUnchanged()
    if told.status != 200:
        return NoPage(f"{PATH} answers {told.status}")
    tag = told.headers.get("etag", "")
    return PageBody(told.body, tag if tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG else "")
