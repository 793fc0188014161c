"""The page about the real feeds, written from a run over all of them. `python tests/contract/feed_page.py` writes it anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Skipped, if_unknown
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "mappings" / "feeds"
REAL = ROOT / "tests" / "feeds"
REAL_FEEDS = sorted(REAL.glob("[!_]*.yaml"))
PAGE = ROOT / "docs" / "real-feeds.md"
SLUGS = frozenset(
    re.findall(
        r"\w+",
        "music workshop culture theatre film festival exhibition dance family sport literature comedy talk tech food market"
        " tour nightlife opera classical",
    )
)
AS_OF = datetime(2026, 3, 1, tzinfo=UTC)
CHANNELS = {"city-agenda": 1, "krakow-culture": 2, "osaka-fireworks": 3}
_HEAD = """# Real feeds

What becomes of files that partners really publish, each mapped by one YAML file in `tests/feeds/` and no code. A test runs
them all and keeps this page up to date. Sources and licences of the files are in
[LICENSES.md](../tests/feeds/data/LICENSES.md). "Different" counts an event once where its file repeats the row.

| feed | format | rows read | events | left out, by label | rejected, by code |
|---|---|---|---|---|---|
"""
_TAIL = """
One festival of `jp-hanabi` takes place on three evenings: three events from one row.

Only the partner can correct the rejected rows:

| feed | why rows are rejected |
|---|---|
| `confs-tech-2019` | the city is a state or an archipelago |
| `confs-tech-2024` | a conference that is not online has no place |
| `pl-krakow` | the city is a street, or begins with a postcode |
| `sf-campaign-tree` | the campaigns have no date: the mapping calls that column `optional`, so that each row is listed |
"""


class Accounts(NamedTuple):
    """`rejected` counts rejected rows; `codes` what they were rejected for, once a row and code."""

    events: int
    keys: int
    rejected: int
    skipped: dict[str, int]
    codes: dict[str, int]
    rows: int


def outcomes_of(path: Path) -> list[RowOutcome]:
    """Map the feed's whole file as a run would, offline."""
    mapping = load_feed(path, folders=(ROOT,))
    mapper = compile_feed(mapping, Directory(CHANNELS, SLUGS), AS_OF)
    with open_source(mapping.source, path.parent, mapper.columns, folders=mapping.folders).read() as reading:
        return list(map(if_unknown, mapper.over(reading.rows)))


def accounts_of(outcomes: list[RowOutcome]) -> Accounts:
    events = [outcome for outcome in outcomes if isinstance(outcome, MappedRow)]
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    return Accounts(
        len(events),
        len({event.row_key for event in events}),
        len(rejections),
        dict(Counter(outcome.because for outcome in outcomes if isinstance(outcome, Skipped))),
        dict(Counter(code.value for one in rejections for code in {reason.code for reason in one.reasons})),
        len({outcome.location for outcome in outcomes}),
    )


def events_in(outcomes: list[RowOutcome]) -> dict[str, dict[str, Any]]:
    """Return the payloads by their row keys."""
    return {outcome.row_key: orjson.loads(outcome.body) for outcome in outcomes if isinstance(outcome, MappedRow)}


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(_lines()) + _TAIL


def _lines() -> Iterator[str]:
    for path in REAL_FEEDS:
        account = accounts_of(outcomes_of(path))
        cells = (
            f"[{path.stem}](../tests/feeds/{path.name})",
            load_feed(path).source.kind,
            f"{account.rows:,}",
            f"{account.events:,}" + (f" ({account.keys:,} different)" if account.keys < account.events else ""),
            _counted(account.skipped, "{} {:,}"),
            _counted(account.codes, "`{}` {:,}"),
        )
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def _counted(counts: Mapping[str, int], shown: str) -> str:
    return ", ".join(shown.format(name, count) for name, count in sorted(counts.items()))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
