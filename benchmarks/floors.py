"""The floors: what the same rows cost where nothing else is done. One of them in a process of its own, its seconds as JSON.

`digest FILE`, `reader FILE`, `lookup FILE`, `stage FILE`; which budget each belongs to is told in `measures/`.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
from peers.job import mapping as mapping_by_hand

BATCH = 500


def digest(path: Path) -> None:
    """One pass of blake2b over the bytes."""
    found = hashlib.blake2b()
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            found.update(piece)


def reader(path: Path) -> None:
    """`csv.reader` alone."""
    with path.open(newline="", encoding="utf-8") as source:
        for _ in csv.reader(source):
            pass


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(newline="", encoding="utf-8") as source:
        yield from itertools.islice(csv.reader(source), 1, None)


def _digest(cells: list[str]) -> bytes:
    return hashlib.blake2b("\x1f".join(cells).encode(), digest_size=16).digest()


def lookup(path: Path) -> float:
    """`csv.reader`, a digest of the cells, and what is known of the row, asked for in batches of 500."""
    with tempfile.TemporaryDirectory() as scratch, sqlite3.connect(Path(scratch) / "known.db") as database:
        database.execute("CREATE TABLE known (id TEXT PRIMARY KEY, digest BLOB)")
        database.executemany("INSERT INTO known VALUES (?, ?)", ((cells[0], _digest(cells)) for cells in _rows(path)))
        database.commit()
        began, source = time.process_time(), _rows(path)
        while some := {cells[0]: _digest(cells) for cells in itertools.islice(source, BATCH)}:
            places = ",".join("?" * len(some))
            known = dict(database.execute(f"SELECT id, digest FROM known WHERE id IN ({places})", list(some)))
            assert known == some
        return time.process_time() - began


def stage(path: Path) -> None:
    """`csv.reader`, the mapping by hand, JSON, and an insert in batches of 500 of what a ledger needs."""
    to_event = mapping_by_hand(path.parent)
    with tempfile.TemporaryDirectory() as scratch, sqlite3.connect(Path(scratch) / "staged.db") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE staged (id TEXT PRIMARY KEY, key TEXT, body BLOB, digest BLOB)")
        with path.open(newline="", encoding="utf-8") as text:
            source = csv.DictReader(text)
            while some := list(itertools.islice(source, BATCH)):
                bodies = [(row["id"], orjson.dumps(to_event(row), option=orjson.OPT_SORT_KEYS)) for row in some]
                database.executemany(
                    "INSERT INTO staged VALUES (?, ?, ?, ?)",
                    [(name, f"bench-{name}", body, hashlib.blake2b(body, digest_size=16).digest()) for name, body in bodies],
                )
                database.commit()


FLOORS: dict[str, Callable[[Path], float | None]] = {"digest": digest, "reader": reader, "lookup": lookup, "stage": stage}


def main(name: str, path: Path) -> None:
    began = time.process_time()
    inner_s = FLOORS[name](path)
    print(json.dumps({"cpu_s": time.process_time() - began if inner_s is None else inner_s}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
