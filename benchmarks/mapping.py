"""What it costs to make events of rows, beside the script that somebody would write by hand: `python benchmarks/mapping.py`.

Reading them from a file is only shown beside it; the ledger is `publish.py`'s.
"""

from __future__ import annotations

import argparse
import csv
import gc
import io
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
from peers.job import mapping as mapping_by_hand
from rich.console import Console
from rich.table import Table
from rows import COLUMNS, cells, write_tables
from worker import FIELDS

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory, dump, judge
from mappings.outcome import MappedRow, RowLocation, SourceRow
from mappings.row_key import duplicate_digest, fingerprint, row_digest
from mappings.yaml.loader import load_feed

ROWS = 20_000
BLOCK = 500
ROUNDS = 5
PLAIN = {
    "title": "Night",
    "startAt": "2027-05-01T20:00:00+01:00",
    "endAt": "2027-05-01T22:00:00+01:00",
    "classifications": "[music]",
    "approxLocation.city": "{placeId: pt-lisboa, name: Lisboa, countryCode: PT}",
    "locationName": "Hall",
    "offers": "[{name: 12 €, url: https://tickets.example.org/1, availability: available}]",
}
"""The same fields as constants: what a field costs is what the row costs less without it."""
WAYS = {
    "title: html_unescape, collapse": ("title",),
    "two dates, two times, a zone": ("startAt", "endAt"),
    "category: a lookup": ("classifications",),
    "city: a lookup by two columns": ("approxLocation.city",),
    "venue: trim": ("locationName",),
    "offer: truncate, url": ("offers",),
}


def mapper(folder: Path, plain: Iterable[str] = ()) -> RowMapper:
    """Return the compiled mapping, with some fields as constants."""
    fields = FIELDS | {name: PLAIN[name] for name in plain}
    event = "".join(f"  {name}: {value}\n" for name, value in fields.items())
    path = folder / "bench.yaml"
    path.write_text(f"feed: bench\nsource: {{kind: csv, path: rows.csv}}\nkey: [id]\nevent:\n{event}", encoding="utf-8")
    return compile_feed(load_feed(path), Directory())


def by_hand(folder: Path) -> Callable[[SourceRow], bytes]:
    """Return what a script does that checks nothing, tells nothing and knows one file: a dict and orjson."""
    to_event = mapping_by_hand(folder)
    return lambda row: orjson.dumps(to_event(row.cells), option=orjson.OPT_SORT_KEYS)


def costs(contenders: Sequence[Callable[[Sequence[SourceRow]], object]], rows: Sequence[SourceRow]) -> list[float]:
    """Return the CPU of each, in us a row: medians of rounds in which all take turns, a block of rows at a time."""
    rounds = []
    for _ in range(ROUNDS):
        spent = [0] * len(contenders)
        for begin in range(0, len(rows), BLOCK):
            block = rows[begin : begin + BLOCK]
            for place, contender in enumerate(contenders):
                started = time.process_time_ns()
                contender(block)
                spent[place] += time.process_time_ns() - started
        rounds.append(spent)
    return [statistics.median(one) / 1000 / len(rows) for one in zip(*rounds, strict=True)]


def each(work: Callable[[Any], object]) -> Callable[[Sequence[Any]], object]:
    def all_of(rows: Sequence[Any]) -> None:
        for row in rows:
            work(row)

    return all_of


def endings(map_row: RowMapper, rows: Sequence[SourceRow]) -> dict[str, float]:
    """Return what is done with a finished event, each by itself."""
    outcome = map_row(rows[0])
    assert isinstance(outcome, MappedRow), outcome
    payload, body = orjson.loads(outcome.body), outcome.body
    used = [rows[0].cells[column] for column in sorted(map_row.columns)]
    place = (payload["channelId"], payload["title"], payload["startAt"], "pt-lisboa Hall")
    works: dict[str, Callable[[SourceRow], object]] = {
        "key, blank?, state": map_row.open_row,
        "validation by pydantic": lambda _row: judge(payload),
        "dump: canonical JSON": lambda _row: dump(payload),
        "digest of the body": lambda _row: fingerprint(body),
        "digest of the cells": lambda _row: row_digest(bytes(16), used),
        "digest of what twins share": lambda _row: duplicate_digest(*place),
    }
    return dict(zip(works, costs([each(work) for work in works.values()], rows), strict=True))


def parts(folder: Path, rows: Sequence[SourceRow]) -> dict[str, float]:
    ways = [mapper(folder), *(mapper(folder, fields) for fields in WAYS.values()), mapper(folder, PLAIN)]
    whole, *without, bare = costs([each(way) for way in ways], rows)
    own = {name: whole - cost for name, cost in zip(WAYS, without, strict=True)}
    return own | {"all fields constant": bare} | {f"  {name}": cost for name, cost in endings(ways[0], rows).items()}


def show(console: Console, title: str, figures: dict[str, float], floors: Sequence[str]) -> None:
    table = Table(title=title)
    for heading in ("what", "us a row", "rows/s", *(f"x {name}" for name in floors)):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, cost in figures.items():
        ratios = (f"{cost / figures[floor]:.2f}" for floor in floors)
        table.add_row(name, f"{cost:.2f}", f"{1_000_000 / max(cost, 0.001):,.0f}", *ratios)
    console.print(table)


def figures(folder: Path, count: int) -> tuple[dict[str, float], list[SourceRow], float]:
    """Return the CPU of each, in us a row; the rows; how long one is in bytes."""
    written = io.StringIO()
    csv.writer(written).writerows(map(cells, range(count)))
    lines = written.getvalue().splitlines(keepends=True)
    rows = [SourceRow(RowLocation(str(n), n), dict(zip(COLUMNS, cells(n), strict=True)), (), ()) for n in range(count)]
    turns = itertools.cycle(range(0, count, BLOCK))
    write_tables(folder)
    whole, hand = mapper(folder), by_hand(folder)
    refused = [outcome for outcome in map(whole, rows) if not isinstance(outcome, MappedRow)]
    assert not refused, refused[0]
    gc.freeze()

    def read(_block: Sequence[SourceRow]) -> None:
        begin = next(turns)
        for _ in csv.reader(lines[begin : begin + BLOCK]):
            pass

    names = ("csv.reader", "by hand", "eventsync")
    found = dict(zip(names, costs([read, each(hand), each(whole)], rows), strict=True))
    return found, rows, len(written.getvalue().encode()) / count


def main() -> None:
    """Budget 3: map, validate, canonical JSON and digests, on one core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true", help="only what a row costs, as JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found, rows, size = figures(folder, chosen.rows)
        if chosen.json:
            print(json.dumps(found))
            return
        console = Console(width=120)
        title = f"Rows of {size:.0f} bytes and {len(COLUMNS)} columns to events of 12 fields"
        show(console, title, found, ("csv.reader", "by hand"))
        show(console, "Where it goes", parts(folder, rows), ())


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    main()
