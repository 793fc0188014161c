"""Databases as kinds of source: tables and queries of a SQLite file and of a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from contract.source_kinds import Grid, Kind, Stand
from postgres import shared_server
from pydantic import SecretStr

from connectors.masking import Mask
from connectors.sources.contract import Access
from mappings.spec.source import SourceSpec, SqlSource

PASSWORD = "made-up-pass-4711"


@dataclass
class DatabaseStand:
    """A table with a row for each of the grid: known by its first cell, and stamped when it is edited."""

    base: Path
    url: str
    words: Mapping[str, Any]
    place: str = "HOUSE"
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = (PASSWORD,)
    edits: int = 0
    known: dict[str, tuple[Sequence[str], int]] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        return Access(secrets={"SQL_HOUSE": SecretStr(self.url)}, mask=Mask([self.url]))

    @property
    def file(self) -> Path | None:
        return Path(self.url.removeprefix("sqlite:///")) if self.url.startswith("sqlite") else None

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            yield connection

    def put(self, grid: Grid) -> SourceSpec:
        if not grid:
            return self._put_nothing()
        self.edits += 1
        names = [f"c{place}" if "query" in self.words else name for place, name in enumerate(grid[0])]
        columns = ", ".join(f'"{name}" text' for name in names)
        every = [*names, "changed", "deleted_at"]
        with self.writing() as connection:
            connection.exec_driver_sql("drop table if exists events")
            connection.exec_driver_sql(f"create table events ({columns}, changed timestamp, deleted_at text)")
            if rows := [dict(zip(every, row, strict=True)) for row in self._stamped(grid[1:])]:
                connection.execute(sa.table("events", *map(sa.column, every)).insert(), rows)
        if "query" not in self.words:
            return _spec(table="events", **self.words)
        shown = ", ".join(f'{name} as "{text}"' for name, text in zip(names, grid[0], strict=True))
        return _spec(query=f"select {shown} from events")

    def _stamped(self, rows: Grid) -> Iterator[Sequence[object]]:
        """The rows with the moment of their last edit; those that the grid has no more are marked as deleted."""
        before, self.known = self.known, {}
        for cells in rows:
            same, edit = before.get(cells[0], ((), 0))
            self.known[cells[0]] = cells, edit if same == cells else self.edits
            yield *(cell or None for cell in cells), _moment(self.known[cells[0]][1]), None
        gone = [cells for first, (cells, _) in before.items() if first not in self.known and "incremental" in self.words]
        for cells in gone if rows else ():
            yield *cells[: len(rows[0])], *[None] * (len(rows[0]) - len(cells)), _moment(self.edits), "gone"

    def _put_nothing(self) -> SourceSpec:
        if self.file:
            self.file.write_text("no database at all, but text" * 100)
        else:
            with self.writing() as connection:
                connection.exec_driver_sql("drop table if exists events")
                connection.exec_driver_sql("create table events ()")
        return _spec(table="events")

    def take_away(self) -> None:
        with self.writing() as connection:
            connection.exec_driver_sql("drop table events")

    def break_off(self) -> None:
        if self.file:
            content = self.file.read_bytes()
            self.file.write_bytes(content[: max(len(content) // 2 // 4096, 1) * 4096])
            return
        with self.writing() as connection:
            names = [one["name"] for one in sa.inspect(connection).get_columns("events")]
            fails = f'case when length("{names[1]}") < 1000 then "{names[1]}" else (1 / (length("{names[1]}") * 0))::text end'
            columns = ", ".join(f'{fails} as "{name}"' if name == names[1] else f'"{name}"' for name in names)
            connection.exec_driver_sql("alter table events rename to earlier")
            connection.exec_driver_sql(f"create view events as select {columns} from earlier")


def _spec(**words: Any) -> SqlSource:
    return SqlSource.model_validate({"kind": "sql", "connection": "HOUSE", **words})


def _moment(edit: int) -> str:
    return f"2026-05-03 17:{edit:02}:00"


def _on_sqlite(**words: Any) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        yield DatabaseStand(base, f"sqlite:///{base / 'house.db'}", words)

    return stand


def _on_postgres(**words: Any) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        url = sa.make_url(shared_server().fresh_url()).set(password=PASSWORD)
        yield DatabaseStand(base, url.render_as_string(hide_password=False), words)

    return stand


_CHANGES = {"by": "Changed", "overlap": timedelta(), "deleted": "deleted_at"}
SQL_KINDS = [
    Kind("sql table in sqlite", _on_sqlite(), first=1, is_grid=False),
    Kind("sql query in sqlite", _on_sqlite(query=True), first=1),
    Kind("sql in sqlite by what changed", _on_sqlite(incremental=_CHANGES), first=1, is_grid=False, is_incremental=True),
    Kind("sql table in postgresql", _on_postgres(), first=1, is_grid=False, is_measured=False),
    Kind("sql query in postgresql", _on_postgres(query=True), first=1, is_measured=False),
    Kind(
        "sql in postgresql by what changed",
        _on_postgres(incremental=_CHANGES),
        first=1,
        is_grid=False,
        is_incremental=True,
        is_measured=False,
    ),
]
