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
from ledger_tables import rename_row, spoil_copies
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from unit.state.books import BOOK, resolve
from unit.state.world import DESTINATION, FEED, KINDS, World, answer, rejection, row, skipped

from mappings.delivery import Conflict, Receipt, Refusal
from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state.database import reading
from state.errors import HeldByAnotherError
from state.export import TABLES, CopyDiffersError, Sum, count_rows, export_to, import_from, sums_of
from state.ledger.choices import Instruction, Option
from state.ledger.ledger import Ledger
from state.moving import MOVER, migrate
from state.notes import MediaMemory
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter
from state.verify import examine

AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


def silent(_count: int) -> None:
    """Count nothing."""


def lived_in(world: World) -> World:
    """A ledger in which something of everything has happened, in letters that are not ASCII, ids gone."""
    long = "An evening of songs, tales & slow dances in the old mill by the river"
    world.stage([row("a", title=f"{long} Ω"), row("b", title=f"{long} żółć"), row("c\\x00"), row("d"), row("é"), rejection("r")])
    world.publish(Receipt(1, answer(201)), Receipt(2, answer(201)), Refusal(answer(400)), Conflict(answer(409)))
    resolve(world, "d", Instruction(Option.IGNORE))
    world.stage([row("a", title=f"{long} again"), row("b", title=f"{long} żółć"), row("new"), rejection("r")])
    MediaMemory(world.engine, DESTINATION).remember("https://x.example/i.png", b"\x00\xff", 5, etag='"e"', seen_at=AT)
    Ledger(world.engine, "elsewhere|2", FeedName("other"), namespace="", now=world.clock).acquire_lease("a run").release()
    world.stage([skipped("new")], is_whole=False)
    return world


@pytest.fixture
def old(world: World) -> World:
    lived_in(world).lease.release()
    return world


def content(engine: Engine) -> dict[str, Sum]:
    """Return what tells one content of the tables from another; the leases are of the moment."""
    with reading(engine) as connection:
        return sums_of(connection, silent)


def is_empty(engine: Engine) -> bool:
    with reading(engine) as connection:
        return count_rows(connection) == 0


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty state DB, of the kind that a test asks for."""
    if getattr(request, "param", "sqlite") == "sqlite":
        url = f"sqlite:///{lay_out(tmp_path / 'target.db')}"
    else:
        url = request.getfixturevalue("postgres").fresh_url()
    engine = open_database(url)
    yield engine
    engine.dispose()


either_kind = pytest.mark.parametrize("there", KINDS, indirect=True)


def moved(old: World, there: Engine, step: Callable[[int], None] = silent) -> dict[str, int]:
    return migrate(old.engine, there, old.clock, silent, step)


def ledger_of(world: World, engine: Engine) -> Ledger:
    return Ledger(engine, DESTINATION, FEED, namespace="tests", now=world.clock)


@either_kind
def test_a_state_db_is_moved_to_either_kind_and_works_on_there(old: World, there: Engine) -> None:
    before, original = LedgerQueries(old.engine).rows(BOOK, RowFilter()), content(old.engine)
    assert moved(old, there) == {name: one.rows for name, one in original.items()} | {"lease": 2}
    assert content(there) == original
    assert LedgerQueries(there).rows(BOOK, RowFilter()) == before
    assert examine(there).findings == ()
    newest = old.known("é").entry_id
    token = old.lease.token
    old.engine.dispose()
    old.engine, old.ledger = there, ledger_of(old, there)
    old.lease = old.ledger.acquire_lease("the next run")
    assert old.lease.token > token
    old.stage([row("a"), row("fresh")])
    assert old.known("fresh").entry_id > newest + 1, "an id that was given at the original is not given again"


def test_a_move_is_refused_while_a_run_holds_a_feed_and_keeps_runs_out(old: World, there: Engine) -> None:
    ledger = ledger_of(old, old.engine)
    with ledger.acquire_lease("a run"), pytest.raises(HeldByAnotherError, match="held by a run"):
        moved(old, there)
    assert is_empty(there)

    def try_to_run(_count: int) -> None:
        old.clock.turn(seconds=30)  # a lease lasts 60 without a word
        with pytest.raises(HeldByAnotherError, match=MOVER):
            ledger.acquire_lease("a run")

    moved(old, there, try_to_run)
    ledger.acquire_lease("a run").release()


def test_what_changes_in_the_original_meanwhile_leaves_no_copy(old: World, there: Engine) -> None:
    new = Ledger(old.engine, "new|1", FeedName("new"), namespace="", now=old.clock)
    with pytest.raises(CopyDiffersError, match="scope"):
        moved(old, there, lambda _count: new.begin_run("x", launched_by="x"))
    assert is_empty(there)


@pytest.mark.parametrize("rows_done", [1, 20, 40])
def test_a_move_that_is_interrupted_has_changed_nothing(old: World, there: Engine, rows_done: int) -> None:
    before, done = content(old.engine), [0]

    def interrupt(count: int) -> None:
        done[0] += count
        if done[0] >= rows_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moved(old, there, interrupt)
    assert is_empty(there)
    assert content(old.engine) == before
    ledger_of(old, old.engine).acquire_lease("a run").release()
    moved(old, there)


def test_a_copy_that_reads_differently_is_not_kept(old: World, there: Engine) -> None:
    with pytest.raises(CopyDiffersError, match=spoil_copies(there)):
        moved(old, there)
    assert is_empty(there)


@either_kind
def test_an_export_is_readable_by_other_tools_and_fills_either_kind(world: World, there: Engine, tmp_path: Path) -> None:
    lived_in(world)
    file, expected, written = tmp_path / "state.gz", list[int](), list[int]()
    done = export_to(world.engine, file, AT, expected.append, written.append)
    assert sum(expected) == sum(written) == sum(done.values())
    assert [*tmp_path.glob("*.part")] == []
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert (lines[0]["file"], lines[0]["at"]) == ("eventsync state", AT.isoformat())
    assert lines[-1] == {"end": "eventsync state", "rows": sum(isinstance(line, list) for line in lines)}
    assert [line["table"] for line in lines if isinstance(line, dict) and "table" in line] == [table.name for table in TABLES]
    assert import_from(there, file, silent) == done
    assert LedgerQueries(there).rows(BOOK, RowFilter()) == LedgerQueries(world.engine).rows(BOOK, RowFilter())
    assert content(there) == content(world.engine)
    assert examine(there).findings == ()
    ledger_of(world, there).acquire_lease("no holder comes along").release()


def test_an_export_needs_a_folder_that_is_there(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        export_to(world.engine, tmp_path / "no" / "such.gz", AT, silent, silent)


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


@pytest.fixture
def exported(tmp_path: Path) -> bytes:
    world = World(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    export_to(lived_in(world).engine, tmp_path / "state.gz", AT, silent, silent)
    world.engine.dispose()
    return (tmp_path / "state.gz").read_bytes()


def test_no_damage_goes_unnoticed(exported: bytes, there: Engine, tmp_path: Path) -> None:
    file = tmp_path / "broken.gz"
    lines = gzip.decompress(exported).splitlines(keepends=True)
    media = next(index for index, line in enumerate(lines) if b'"table":"media"' in line)
    entry = media + 1
    header = json.loads(lines[0])
    broken = {
        "a table of another name": [*lines[:media], lines[media].replace(b'"media"', b'"medium"'), *lines[media + 1 :]],
        "a column less": [*lines[:media], lines[media].replace(b',"media_id"', b""), *lines[media + 1 :]],
        "no base64": [*lines[:entry], lines[entry].replace(b'"AP8="', b'"?"'), *lines[entry + 1 :]],
        "cut short": lines[:-1],
        "cut in a line": [*lines[:-1], lines[-1][:-2]],
        "cut in a table": lines[: entry + 1],
        "a row less": lines[:entry] + lines[entry + 1 :],
        "a row twice": [*lines[: entry + 1], *lines[entry:]],
        "a row changed": [*lines[:entry], lines[entry].replace(b",5,", b",6,"), *lines[entry + 1 :]],
        "a row of another kind": [*lines[:entry], b"[1,2]\n", *lines[entry + 1 :]],
        "no row at all": [*lines[:entry], b'"AP8="\n', *lines[entry + 1 :]],
        "a text for a number": [*lines[:entry], lines[entry].replace(b"[", b'["x",', 1), *lines[entry + 1 :]],
        "no header": lines[1:],
        "another version": [json.dumps({**header, "version": 2}).encode() + b"\n", *lines[1:]],
        "another file": [b"id,title\n", b"1,Jazz\n"],
        "nothing": [],
        "more than all": [*lines, b"[]\n"],
    }
    packed = {name: gzip.compress(b"".join(content)) for name, content in broken.items()}
    packed |= {"no gzip": b"id,title\n", "cut at its end": exported[:-9], "cut early": exported[:200]}
    for name, content in packed.items():
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="no export of a state DB, or it is damaged"):
            import_from(there, file, silent)
        assert is_empty(there), name
    file.write_bytes(gzip.compress(json.dumps({**header, "schema": "9999"}).encode() + b"\n" + b"".join(lines[1:])))
    with pytest.raises(ConfigError, match="newer version"):
        import_from(there, file, silent)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        import_from(there, tmp_path / "nothing.gz", silent)


def test_more_than_a_page_is_carried(world: World, there: Engine) -> None:
    world.stage([row(f"{number}") for number in range(2_300)])
    world.lease.release()
    counted: list[int] = []
    done = migrate(world.engine, there, world.clock, counted.append, silent)
    assert (2_300 in done.values(), counted) == (True, [3 * sum(done.values())])


@either_kind
def test_keys_longer_than_a_page_of_an_index_are_carried_found_again_and_stay_unique(there: Engine, tmp_path: Path) -> None:
    world = World(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    long = RowKey(random.Random(1).randbytes(4_000).hex())  # of no use to an attacker
    world.stage([row("long"), row("short"), rejection(f"{long}r")])
    world.publish()
    names = long, row("long").fingerprint
    rename_row(world.engine, "long", *names)
    export_to(world.engine, tmp_path / "state.gz", AT, silent, silent)
    world.engine.dispose()
    import_from(there, tmp_path / "state.gz", silent)
    assert examine(there).findings == ()
    world.engine, world.ledger = there, ledger_of(world, there)
    world.lease = world.ledger.acquire_lease("test")
    report = world.stage([row(long, "Title of long", twin="long"), row("short"), rejection(f"{long}r"), row("new")])
    assert (report.account.unchanged, report.account.new) == (2, 1)
    with pytest.raises(IntegrityError):
        rename_row(there, "short", *names)
