"""The page about the real feeds, written from a run over all of them. `python tests/contract/feed_page.py` writes it anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")] * (str(ROOT / "tests") not in sys.path)

from contract.feed_runs import REAL_FEEDS, accounts_of, outcomes_of  # noqa: E402 - found by the path that this script adds

from mappings.yaml.loader import load_feed  # noqa: E402 - as above

PAGE = ROOT / "docs" / "real-feeds.md"
_HEAD = """# Real feeds

Files that partners really publish, each mapped by a YAML file alone (`tests/feeds/`), and what becomes of their rows. This page
is written by a run over all of them, and a test compares it with the next. Where each file comes from, and its licence, says
[LICENSES.md](../tests/feeds/data/LICENSES.md); what must become of single rows was written down by hand from the files, in
`tests/contract/`. A row said twice is an event once: that is what "different" counts.

| feed | format | rows read | events | left out, by label | rejected, by code |
|---|---|---|---|---|---|
"""
_TAIL = """
One festival of `jp-hanabi` is on three evenings, of which only a note tells: three events.

Every rejection is one that only the partner can mend:

* `confs-tech-2019`: a state and an archipelago stand for cities.
* `confs-tech-2024`: a conference that is not online says nothing of its place.
* `pl-krakow`: a street, and a postcode before the name, stand for cities.
* `sf-campaign-tree`: campaigns without any day. A mapping that takes the day for granted stops before the first row and names the
  column; this one calls it `optional`, so that each campaign is listed.
"""


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
