"""A state DB as a file, and moved from one kind of database to the other: all of it, the same, or nothing."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from empty_books import lay_out
from hypothesis import given
from hypothesis import strategies as st
from postgres import Postgres
from sqlalchemy import Engine, delete, func, select, text, update
from sqlalchemy.exc import IntegrityError
from unit.state.world import DESTINATION, FEED, World, answer, rejection, row

from mappings.delivery import Conflict, Receipt, Refusal
from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey, idempotency_key
from state.archive.export import TABLES, CopyDiffersError, Sum, compare, export_to, import_from, line_of, rows_of
from state.archive.moving import MOVER, migrate
from state.archive.verify import examine
from state.database import open_database, reading, writing
from state.holders import HeldByAnotherError
from state.ledger.choices import SetAside
from state.ledger.ledger import Ledger
from state.ledger.reads import StagePolicy
from state.ledger.standing import FeedScope
from state.notes import MediaMemory
from state.queries import LedgerQueries, RowFilter
from state.tables import DUPLICATE_MARK, ENTRY, LEASE, METADATA

AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
BOOK = FeedScope(DESTINATION, FEED)


def silent(_count: int) -> None:
    """Nobody watches."""


def lived_in(world: World) -> World:
    """A ledger in which something of everything has happened, in letters that are not ASCII, ids gone."""
    drafting = StagePolicy(on_change="create_draft_again")
    long = "An evening of songs, tales & slow dances in the old mill by the river"
    world.stage(
        [row("a", title=f"{long} Ω"), row("b", title=f"{long} żółć"), row("c\\x00"), row("d"), row("é", title=""), rejection("r")]
    )
    world.publish(Receipt(1, answer(201)), Receipt(2, answer(201)), Refusal(answer(400)), Conflict(answer(409)))
    world.ledger.open_decisions("ann@desk", world.lease.token).resolve(RowKey("d"), SetAside())
    world.stage([row("a", title=f"{long} again"), row("b", title=f"{long} żółć"), row("new"), rejection("r")], policy=drafting)
    MediaMemory(world.engine, DESTINATION).remember("https://x.example/i.png", b"\x00\xff", 5, etag='"e"', seen_at=AT)
    Ledger(world.engine, "elsewhere|2", FeedName("other"), namespace="", now=world.clock).acquire_lease("somebody").release()
    with writing(world.engine) as connection:
        newest = connection.execute(select(func.max(ENTRY.c.id))).scalar_one()
        connection.execute(delete(ENTRY).where(ENTRY.c.id == newest))
    return world


def told(engine: Engine) -> dict[str, Sum]:
    """What each table comes to."""
    sums = {table.name: Sum() for table in TABLES}
    with reading(engine) as connection:
        for table in TABLES:
            for each in rows_of(connection, table):
                sums[table.name].add(line_of(each))
    return sums


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Engine]]:
    """Makes an empty state DB of the kind asked for."""
    made: list[Engine] = []

    def make(kind: str) -> Engine:
        if kind == "sqlite":
            url = f"sqlite:///{lay_out(tmp_path / 'target.db')}"
        else:
            postgres: Postgres = request.getfixturevalue("postgres")
            url = postgres.fresh_url()
        made.append(open_database(url))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_state_db_is_moved_to_either_kind_and_works_on_there(world: World, target: Callable[[str], Engine], kind: str) -> None:
    lived_in(world)
    before = LedgerQueries(world.engine).rows(BOOK, RowFilter())
    world.lease.release()
    original, there = told(world.engine), target(kind)
    done = migrate(world.engine, there, world.clock, silent, silent)
    assert done == {name: one.rows for name, one in original.items()}
    assert {name: str(one) for name, one in told(there).items() if name != "lease"} == {
        name: str(one) for name, one in original.items() if name != "lease"
    }
    assert LedgerQueries(there).rows(BOOK, RowFilter()) == before
    assert examine(there).findings == ()
    world.engine.dispose()
    world.engine = there
    world.ledger = Ledger(there, DESTINATION, FEED, namespace="tests", now=world.clock)
    with reading(there) as connection:
        token = connection.execute(select(func.max(LEASE.c.token))).scalar_one()
    world.lease = world.ledger.acquire_lease("the next run")
    assert world.lease.token > token
    newest = world.known("é").entry_id
    world.stage([row("a"), row("fresh")])
    assert world.known("fresh").entry_id > newest + 1, "an id that was given at the original is not given again"


def test_a_move_is_refused_while_a_run_is_at_work_and_keeps_runs_out_meanwhile(
    world: World, target: Callable[[str], Engine]
) -> None:
    lived_in(world)
    world.lease.release()
    there, ledger = target("sqlite"), Ledger(world.engine, DESTINATION, FEED, namespace="", now=world.clock)
    with ledger.acquire_lease("a run"), pytest.raises(HeldByAnotherError, match="held by a run"):
        migrate(world.engine, there, world.clock, silent, silent)
    assert all(one.rows == 0 for one in told(there).values())

    def try_to_run(_count: int) -> None:
        with pytest.raises(HeldByAnotherError, match=MOVER):
            ledger.acquire_lease("a run")

    migrate(world.engine, there, world.clock, silent, try_to_run)
    ledger.acquire_lease("a run").release()


def test_what_changes_in_the_original_meanwhile_leaves_no_copy(world: World, target: Callable[[str], Engine]) -> None:
    lived_in(world)
    world.lease.release()
    there, asked = target("sqlite"), []

    def change(_count: int) -> None:
        if not asked:
            asked.append(Ledger(world.engine, "new|1", FeedName("new"), namespace="", now=world.clock).acquire_lease("x"))

    with pytest.raises(CopyDiffersError, match="scope"):
        migrate(world.engine, there, world.clock, silent, change)
    assert all(one.rows == 0 for one in told(there).values())


@pytest.mark.parametrize("rows_done", [1, 20, 40])
def test_a_move_that_is_interrupted_has_changed_nothing(world: World, target: Callable[[str], Engine], rows_done: int) -> None:
    lived_in(world)
    world.lease.release()
    there, before, done = target("sqlite"), told(world.engine), [0]

    def interrupt(count: int) -> None:
        done[0] += count
        if done[0] >= rows_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(world.engine, there, world.clock, silent, interrupt)
    assert all(one.rows == 0 for one in told(there).values())
    assert {name: one for name, one in told(world.engine).items() if name != "lease"} == {
        name: one for name, one in before.items() if name != "lease"
    }
    Ledger(world.engine, DESTINATION, FEED, namespace="", now=world.clock).acquire_lease("a run").release()
    migrate(world.engine, there, world.clock, silent, silent)


def test_a_copy_that_reads_differently_is_not_kept(world: World, target: Callable[[str], Engine]) -> None:
    lived_in(world)
    world.lease.release()
    there = target("sqlite")
    spoil = "CREATE TRIGGER spoil AFTER INSERT ON ledger_entry BEGIN UPDATE ledger_entry SET attempts = 9 WHERE id = new.id; END"
    with writing(there) as connection:
        connection.execute(text(spoil))
    with pytest.raises(CopyDiffersError, match=r"ledger_entry \(5 rows, then 5\)"):
        migrate(world.engine, there, world.clock, silent, silent)
    assert all(one.rows == 0 for one in told(there).values())


def test_a_long_move_goes_on_saying_that_it_is_alive(world: World, target: Callable[[str], Engine]) -> None:
    lived_in(world)
    world.lease.release()
    migrate(world.engine, target("sqlite"), world.clock, silent, lambda _count: world.clock.turn(seconds=30))
    with reading(world.engine) as connection:
        leases = connection.execute(select(LEASE.c.acquired_at, LEASE.c.heartbeat_at)).all()
    assert len(leases) == 2
    assert all(lease.heartbeat_at > lease.acquired_at for lease in leases)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_export_fills_either_kind(world: World, target: Callable[[str], Engine], tmp_path: Path, kind: str) -> None:
    lived_in(world)
    expected: list[int] = []
    written: list[int] = []
    done = export_to(world.engine, tmp_path / "state.gz", AT, expected.append, written.append)
    assert sum(expected) == sum(written) == sum(done.values())
    there = target(kind)
    assert import_from(there, tmp_path / "state.gz", silent) == done
    assert LedgerQueries(there).rows(BOOK, RowFilter()) == LedgerQueries(world.engine).rows(BOOK, RowFilter())
    assert told(there) == told(world.engine)
    assert examine(there).findings == ()
    Ledger(there, DESTINATION, FEED, namespace="tests", now=world.clock).acquire_lease(
        "whoever held it there is not here"
    ).release()


def test_an_export_is_its_owners_and_readable_by_other_tools(world: World, tmp_path: Path) -> None:
    lived_in(world)
    file = tmp_path / "state.gz"
    export_to(world.engine, file, AT, silent, silent)
    assert file.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert (lines[0]["file"], lines[0]["at"]) == ("eventsync state", AT.isoformat())
    assert lines[-1] == {"end": "eventsync state", "rows": sum(isinstance(line, list) for line in lines)}
    assert [line["table"] for line in lines if isinstance(line, dict) and "table" in line] == [table.name for table in TABLES]
    assert [*tmp_path.glob("*.part")] == []


def test_every_table_is_carried_but_what_is_of_this_moment_or_made_anew() -> None:
    assert {*METADATA.tables} - {table.name for table in TABLES} == {DUPLICATE_MARK.name}


def test_an_export_is_never_written_over(world: World, tmp_path: Path) -> None:
    file = tmp_path / "state.gz"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        export_to(world.engine, file, AT, silent, silent)
    with pytest.raises(ConfigError, match="cannot be written"):
        export_to(world.engine, tmp_path / "no" / "such.gz", AT, silent, silent)
    assert file.read_text() == "mine"


def test_an_export_that_is_cut_short_leaves_no_file(world: World, tmp_path: Path) -> None:
    world.stage([row(f"{number}") for number in range(1_500)])
    stale = tmp_path / "state.gz.part"
    stale.write_text("of one that was killed")

    def interrupt(count: int) -> None:
        if count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_to(world.engine, tmp_path / "state.gz", AT, silent, interrupt)
    assert [path.name for path in tmp_path.iterdir() if "state.gz" in path.name] == []


def test_nothing_is_put_into_a_state_db_that_has_something(world: World, target: Callable[[str], Engine], tmp_path: Path) -> None:
    lived_in(world)
    world.lease.release()
    file, there = tmp_path / "state.gz", target("sqlite")
    export_to(world.engine, file, AT, silent, silent)
    import_from(there, file, silent)
    before = told(there)
    for fill in (lambda: import_from(there, file, silent), lambda: migrate(world.engine, there, world.clock, silent, silent)):
        with pytest.raises(ConfigError, match="not empty: there are rows in"):
            fill()
    assert told(there) == before


def exported(world: World, tmp_path: Path) -> list[bytes]:
    export_to(lived_in(world).engine, tmp_path / "state.gz", AT, silent, silent)
    return gzip.decompress((tmp_path / "state.gz").read_bytes()).splitlines(keepends=True)


def test_no_damage_goes_unnoticed(target: Callable[[str], Engine], tmp_path: Path) -> None:
    world = World(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    lines = exported(world, tmp_path)
    world.engine.dispose()
    there = target("sqlite")
    entry = next(index for index, line in enumerate(lines) if line.startswith(b"[") and b'"delivered"' in line)
    header = json.loads(lines[0])
    broken = {
        "cut short": lines[:-1],
        "cut in a line": [*lines[:-1], lines[-1][:-1]],
        "cut in a table": lines[: entry + 1],
        "a row less": lines[:entry] + lines[entry + 1 :],
        "a row twice": [*lines[: entry + 1], *lines[entry:]],
        "a row changed": [*lines[:entry], lines[entry].replace(b'"delivered"', b'"refused"', 1), *lines[entry + 1 :]],
        "a row of another kind": [*lines[:entry], b"[1,2]\n", *lines[entry + 1 :]],
        "no row at all": [*lines[:entry], b'"delivered"\n', *lines[entry + 1 :]],
        "a text for a number": [*lines[:entry], lines[entry].replace(b"[", b'["x",', 1), *lines[entry + 1 :]],
        "no header": lines[1:],
        "another version": [json.dumps({**header, "version": 2}).encode() + b"\n", *lines[1:]],
        "another file": [b"id,title\n", b"1,Jazz\n"],
        "nothing": [],
        "more than all": [*lines, b"[]\n"],
    }
    for name, content in broken.items():
        (tmp_path / "broken.gz").write_bytes(gzip.compress(b"".join(content)))
        with pytest.raises(ConfigError, match="no export of a state DB, or it is damaged"):
            import_from(there, tmp_path / "broken.gz", silent)
        assert all(one.rows == 0 for one in told(there).values()), name


def test_a_file_that_is_no_gzip_or_of_another_schema_is_told_as_such(target: Callable[[str], Engine], tmp_path: Path) -> None:
    world = World(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    lines = exported(world, tmp_path)
    world.engine.dispose()
    there, broken = target("sqlite"), tmp_path / "broken.gz"
    for content in (b"id,title\n", (tmp_path / "state.gz").read_bytes()[:-9], (tmp_path / "state.gz").read_bytes()[:200]):
        broken.write_bytes(content)
        with pytest.raises(ConfigError, match="damaged"):
            import_from(there, broken, silent)
    header = json.dumps({**json.loads(lines[0]), "schema": "9999"}).encode() + b"\n"
    broken.write_bytes(gzip.compress(b"".join([header, *lines[1:]])))
    with pytest.raises(ConfigError, match="newer version"):
        import_from(there, broken, silent)
    with pytest.raises(ConfigError, match="no file"):
        import_from(there, tmp_path / "nothing.gz", silent)


@given(st.lists(st.binary(), min_size=1))
def test_sums_do_not_ask_for_an_order_and_notice_a_line_more_or_less(lines: list[bytes]) -> None:
    one, other = Sum(), Sum()
    for line in lines:
        one.add(line)
    for line in sorted(lines):
        other.add(line)
    assert one == other
    other.add(lines[0])
    with pytest.raises(CopyDiffersError, match="entry"):
        compare({"entry": one}, {"entry": other})


def test_more_than_a_page_is_carried(world: World, target: Callable[[str], Engine]) -> None:
    world.stage([row(f"{number}") for number in range(2_300)])
    world.lease.release()
    counted: list[int] = []
    assert migrate(world.engine, target("sqlite"), world.clock, counted.append, silent)["ledger_entry"] == 2_300
    assert counted == [3 * 2_303]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_keys_longer_than_a_page_of_an_index_are_carried_found_again_and_stay_unique(
    target: Callable[[str], Engine], tmp_path: Path, kind: str
) -> None:
    world = World(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    long = RowKey(random.Random(1).randbytes(4_000).hex())  # of no use to an attacker
    world.stage([row("long"), row("short"), rejection(f"{long}r")])
    world.publish()
    key = idempotency_key("tests", FEED, long)
    with writing(world.engine) as connection:  # as version 0.1 took it in
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "long").values(row_key=long, idempotency_key=key))
    export_to(world.engine, tmp_path / "state.gz", AT, silent, silent)
    world.engine.dispose()
    there = target(kind)
    import_from(there, tmp_path / "state.gz", silent)
    assert examine(there).findings == ()
    world.engine, world.ledger = there, Ledger(there, DESTINATION, FEED, namespace="tests", now=world.clock)
    world.lease = world.ledger.acquire_lease("test")
    report = world.stage([row(long, "Title of long", twin="long"), row("short"), rejection(f"{long}r"), row("new")])
    assert (report.account.unchanged, report.account.new) == (2, 1)
    with pytest.raises(IntegrityError), there.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "short").values(row_key=long))
