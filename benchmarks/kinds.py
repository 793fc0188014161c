"""Own time of a profile, gathered by the kind of work that it went into.

Which runs are profiled, and what to make of it, is told in `measures/profiled.py`.
"""

from __future__ import annotations

import pstats
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

WAITING = "waiting"
OTHER = "other"
IMPORTING, CLASSES, PATTERNS = "importing", "classes and models made at import", "patterns compiled"
BUILT_IN = "~"
ONCE = (IMPORTING, CLASSES, PATTERNS)
"""What no row takes, but every start."""
MODULES = (
    ("connectors/sources/", "reading"),
    ("csv.py", "reading"),
    ("mappings/", "mapping, checking, canonical JSON"),
    ("state/", "ledger: our own code"),
    ("sqlalchemy/", "ledger: SQLAlchemy"),
    ("sqlmodel/", "ledger: SQLAlchemy"),
    ("alembic/", "ledger: SQLAlchemy"),
    ("connectors/event_api/", "client: our own code"),
    ("connectors/", "pace, retries"),
    ("aiohttp/", "client: HTTP libraries"),
    ("httpx", "client: HTTP libraries"),
    ("yarl/", "client: HTTP libraries"),
    ("multidict/", "client: HTTP libraries"),
    ("propcache/", "client: HTTP libraries"),
    ("asyncio/", "event loop"),
    ("selectors.py", "event loop"),
    ("concurrent/", "event loop"),
    ("threading.py", "event loop"),
    ("pipelines/", "the run's own steps"),
    ("<frozen importlib", IMPORTING),
    ("<frozen zipimport", IMPORTING),
    ("dataclasses.py", CLASSES),
    ("pydantic", CLASSES),
    ("typing", CLASSES),
    ("enum.py", CLASSES),
    ("inspect.py", CLASSES),
    ("re/", PATTERNS),
    ("yaml/", "mapping files read"),
    ("ruamel", "mapping files read"),
    ("rich/", "progress and reports"),
    ("structlog/", "progress and reports"),
    ("logging/", "progress and reports"),
    ("typer/", "command line"),
    ("click/", "command line"),
)
"""Beginnings of modules' places, and what is done there; the first that fits."""
BUILT_INS = (
    ("'commit' of 'sqlite3", "ledger: commits"),
    ("sqlite3", "ledger: SQLite"),
    ("select.epoll", WAITING),
    ("select.kqueue", WAITING),
    ("_thread.lock", WAITING),
    ("time.sleep", WAITING),
    ("_socket", "client: sockets"),
    ("marshal", IMPORTING),
    ("_imp.", IMPORTING),
    ("posix.stat", IMPORTING),
    ("_blake2", "digests"),
    ("orjson", "mapping, checking, canonical JSON"),
)
"""Pieces of built-in functions' names; all others are their callers' work."""
Place = tuple[str, int, str]


def own_s(path: Path) -> Counter[str]:
    """Return the seconds of a profile by kind of work, without what was waited."""
    found: Counter[str] = Counter()
    statistics: Mapping[Place, tuple[int, int, float, float, Mapping[Place, tuple[int, int, float, float]]]]
    statistics = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]  # not in its stubs, but in its documentation
    for place, (_, _, own, _, callers) in statistics.items():
        kind = _kind(place)
        if kind is not None or not callers:
            found[kind or OTHER] += own
            continue
        for caller, (_, _, share, _) in callers.items():
            found[_kind(caller) or OTHER] += share
    del found[WAITING]
    return found


def _kind(place: Place) -> str | None:
    """Return what is done there; nothing for a built-in function that anybody calls."""
    file, _, name = place
    if file == BUILT_IN:
        return next((kind for piece, kind in BUILT_INS if piece in name), None)
    if name == "<module>":
        return IMPORTING
    known = re.sub(r"^.*/(?:site-packages|python3\.\d+)/", "", file)
    known = re.sub(r"^.*/(?=(?:connectors|mappings|pipelines|state)/)", "", known)
    return next((kind for begin, kind in MODULES if known.startswith(begin)), OTHER)
