"""HTML as text that cannot be broken out of: elements whose text and attributes are escaped, inside one page frame.

What a page shows is `pages`'s.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from starlette.responses import HTMLResponse

_VOID: Final = frozenset({"img", "meta"})


class Markup(str):
    """Text that is HTML already; any other text is escaped where it is used."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element. Children that are not Markup are escaped, attributes always; `class_` is written `class`."""
    written = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Several pieces after each other, each escaped unless it is Markup."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def page(title: str, *content: str, status: int = 200) -> HTMLResponse:
    """A whole page in the sandbox's frame. Nothing on it runs, and nothing is loaded but its own images."""
    navigation = tag("nav", tag("a", "Channels", href="/"), tag("a", "API keys", href="/developers/keys"))
    header = tag("header", tag("div", tag("strong", tag("a", "Event publishing sandbox", href="/")), navigation))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_style())),
    )
    document = tag("html", head, tag("body", header, tag("main", *content)), lang="en")
    return HTMLResponse(f"<!doctype html>{document}", status, {"Content-Security-Policy": _policy()})


@cache
def _style() -> str:
    return files("sandbox").joinpath("style.css").read_text(encoding="utf-8")


@cache
def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; img-src 'self'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
