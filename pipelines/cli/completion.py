"""Shell completion: feeds, runs, brakes, states of rows, rows that wait for a person.

Each answer imports what it needs. Errors are dropped: a command that is still being typed is no place for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pipelines.cli.state_reader import StateReader

_MOST = 50
_NAME = re.compile(r"^feed:[ \t]*['\"]?([a-z0-9][a-z0-9-]*)", re.MULTILINE)
Offer = tuple[str, str]
"""A word, and what it means."""


def feed_words(incomplete: str) -> list[Offer]:
    """Offer the feeds of the folder, by name; the mapping files are only looked through for it, not checked."""
    from pipelines.settings import current_settings

    offers: list[Offer] = []
    with _quietly():
        for path in sorted(current_settings().feeds.glob("[!_]*.y*ml")):
            found = _NAME.search(path.read_text("utf-8", "replace"))
            offers.append((found[1] if found else path.stem, path.name))
    return _fitting(offers, incomplete)


def run_words(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the latest runs, youngest first; of one feed, where the words before name it."""
    offers: list[Offer] = []
    with _quietly(), _reader() as reader:
        runs = reader.runs(context.params.get("feed"), _MOST)
        offers += [
            (run.run_id, f"{run.book.feed}, {run.started_at:%Y-%m-%d %H:%M}, {run.outcome or 'not ended'}") for run in runs
        ]
    return _fitting(offers, incomplete)


def brake_words(incomplete: str) -> list[Offer]:
    """Offer the brakes that a person may pass; several are joined by commas."""
    from pipelines.run.options import BRAKE_TEXTS

    before, comma, word = incomplete.rpartition(",")
    said = before.split(",")
    offers = _fitting(((brake, text) for brake, text in BRAKE_TEXTS.items() if brake not in said), word)
    return [(f"{before}{comma}{brake}", text) for brake, text in offers]


def state_words(incomplete: str) -> list[Offer]:
    """Offer the words that `rows --state` takes."""
    from pipelines.run.standing import ALL, WAITING

    return _fitting(((str(word), "waits for a person" if word in WAITING else "") for word in ALL), incomplete)


def waiting_words(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer the keys of the rows of a feed that wait for a person's decision; a rejected row waits for its source."""
    from pipelines.cli.listed_rows import chosen_rows
    from pipelines.run.standing import WAITING

    offers: list[Offer] = []
    with _quietly(), _reader() as reader:
        book = reader.book(str(context.params.get("feed")))
        if reader.books is not None and book is not None:
            rows = (
                row
                for row in chosen_rows(reader.books, book, WAITING)
                if row["state"] != "rejected" and row["row_key"].startswith(incomplete)
            )
            offers += [(row["row_key"], f"{row['state']}: {row['place']}") for row in islice(rows, _MOST)]
    return _fitting(offers, incomplete)


def _fitting(offers: Iterable[Offer], incomplete: str) -> list[Offer]:
    return [offer for offer in dict(offers).items() if offer[0].startswith(incomplete)]


@contextmanager
def _reader() -> Iterator[StateReader]:
    """Open what there is, as it is: pressing Tab changes no schema."""
    from pipelines.cli.state_reader import open_state
    from pipelines.settings import current_settings

    with open_state(current_settings(), upgrades=False) as reader:
        yield reader


@contextmanager
def _quietly() -> Iterator[None]:
    from mappings.errors import SyncError

    try:
        yield
    except (SyncError, OSError):
        return
