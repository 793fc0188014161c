"""Where a state DB lies: from EVENTSYNC_STATE_URL to a database, and how a connection to it is made.

What happens over a connection is `database`'s.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from mappings.errors import ConfigError

LOCK_WAIT_S = 30.0
"""How long a statement waits for another process's lock, unless the URL says otherwise."""
_CONNECT_WAIT_S = 10
_ONE_AT_REST = {"pool_size": 1}
"""So many connections wait for their next transaction: handed out in turns, each would come to hold 32 MB of SQLite's pages."""
_EXAMPLES = "for example sqlite:///.eventsync/state.db or postgresql://user@host/name"
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_SETTINGS = (
    ("synchronous_commit", "on"),  # a role or a database may be set to lose the last moments in a power cut
    ("lock_timeout", f"{LOCK_WAIT_S:.0f}s"),
    ("idle_in_transaction_session_timeout", "60s"),  # a process that was stopped in mid-transaction holds up nobody
)


def parse(url: str) -> URL:
    """Read a SQLAlchemy URL of one of the databases that we know; PostgreSQL may be spelt as its own tools spell it.

    Raises `ConfigError` for any other, without repeating it: it may hold a password.
    """
    try:
        address = make_url(url)
        if address.drivername in _POSTGRES:
            address = address.set(drivername="postgresql+psycopg")
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError("EVENTSYNC_STATE_URL is not an address of a database that we know", hint=_EXAMPLES) from error
    except ImportError as error:
        raise missing_driver(error) from error
    if "@" in (address.host or ""):
        raise ConfigError(
            "EVENTSYNC_STATE_URL holds more than one @, so that a part of its password would be taken for the host",
            hint="write each @, : and / of a user name or password as %40, %3A and %2F",
        )
    if address.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
        raise ConfigError(f"EVENTSYNC_STATE_URL asks for {address.drivername}, which we do not know", hint=_EXAMPLES)
    return address


def missing_driver(error: ImportError) -> ConfigError:
    """Say how to get PostgreSQL's driver; SQLite's is Python's own."""
    return ConfigError(
        f"PostgreSQL's driver is not installed: {error}",
        hint='run `pip install "eventsync[postgres]"`, or use SQLite: EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db',
    )


def shown(url: URL) -> str:
    """Name a database for people: the path of a file, else its URL without the password."""
    return url.database or ":memory:" if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


def shown_url(url: str) -> str:
    """Name the database of a URL for people. Raises `ConfigError` as `parse`."""
    return shown(parse(url))


def without_secret(text: str, url: URL) -> str:
    """Return a driver's words on one line, with the password of the URL masked wherever they repeat it."""
    words = " ".join(text.split())
    return words.replace(str(url.password), "***") if url.password else words


def is_file(url: URL) -> bool:
    """Whether it is a plain SQLite file: neither in memory nor a `file:` URI with a mind of its own."""
    return bool(url.get_backend_name() == "sqlite" and url.database) and not str(url.database).startswith((":memory:", "file:"))


def is_read_only(file: str) -> bool:
    """Whether a SQLite file is there and we may not write to it, or not make the files beside it that writing takes."""
    beside = [f"{file}-wal", f"{file}-shm"]
    may_write = os.access(Path(file).parent, os.W_OK) or all(os.access(each, os.W_OK) for each in beside)
    return Path(file).exists() and not (os.access(file, os.W_OK) and may_write)


def read_only_address(file: str) -> str:
    """Return the URI that opens a SQLite file for reading only.

    Where nobody has it open and no change waits in its write-ahead log, SQLite has to be told so: it cannot make the shared
    memory in which it would see that for itself. A log without shared memory stays unreadable: what it holds would be missed.
    """
    log, shared = Path(f"{file}-wal"), Path(f"{file}-shm")
    is_at_rest = not shared.exists() and not (log.exists() and log.stat().st_size)
    return f"{Path(file).absolute().as_uri()}?mode=ro{'&immutable=1' * is_at_rest}"


def lock_wait_s(url: URL) -> float:
    """Return how long SQLite waits for another process: `?timeout=5` in the URL says it in seconds."""
    asked = url.query.get("timeout", "")
    try:
        return float(str(asked)) if asked else LOCK_WAIT_S
    except ValueError as error:
        raise ConfigError("EVENTSYNC_STATE_URL: timeout is not a number of seconds", hint="for example ?timeout=30") from error


def engine_options(url: URL) -> dict[str, Any]:
    """Return what SQLAlchemy's engine is told beside the URL. Whatever the URL itself says about a connection rules."""
    common: dict[str, Any] = {"hide_parameters": True}  # they are the partner's, and no message's
    if url.get_backend_name() == "sqlite":
        return common | (_ONE_AT_REST if is_file(url) else {})
    ours = {
        "application_name": "eventsync",
        "client_encoding": "UTF8",
        "connect_timeout": _CONNECT_WAIT_S,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "options": " ".join(f"-c {name}={value}" for name, value in _SETTINGS),
    }
    return common | {
        "isolation_level": "READ COMMITTED",
        "pool_size": 2,  # the drain's thread and the one that waits for it
        "max_overflow": 3,
        "pool_timeout": LOCK_WAIT_S,
        "pool_pre_ping": True,
        "connect_args": {name: value for name, value in ours.items() if name not in url.query},
    }
