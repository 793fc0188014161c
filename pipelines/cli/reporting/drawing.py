"""The page for a partner's editor, drawn: one HTML file, in which every text of a partner is text.

What it says is `page`'s.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipelines.cli.reporting.page import Line, Page
from pipelines.cli.whole_file import written_whole
from pipelines.control_characters import replaced

_PAGES = Path(__file__).with_name("pages")
_FOLD = 100
"""Lines that are seen at once; the others are folded away, so many at a time."""


def write_page(page: Page, file: Path) -> int:
    """Write the page to a file, in place of an older one, which is there until then; return how many bytes it has.

    Raises:
        ConfigError: the file cannot be written.
    """
    style = (_PAGES / "report.css").read_text("utf-8")
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": _moment, "number": "{:,}".format, "folds": _folds}
    template = environment.get_template("report.html.jinja")
    with written_whole(file, "--html") as beside, beside.open("wb") as stream:
        template.stream(page=page, style=style, style_digest=_digest(style)).dump(stream, encoding="utf-8")
        return stream.tell()


def _harmless(value: object) -> object:
    """Replace the harmful characters of any text that is put on the page; markup was made from such text."""
    return replaced(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(style: str) -> str:
    """Return what lets this style in, and no other (Content Security Policy Level 3, `hash-source`)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _folds(lines: Sequence[Line]) -> Iterator[tuple[int, int, list[Line]]]:
    """Yield lines so many at a time, with the numbers of the first and the last."""
    rest, first = iter(lines), 1
    while fold := list(islice(rest, _FOLD)):
        yield first, first + len(fold) - 1, fold
        first += len(fold)
