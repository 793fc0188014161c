"""A state DB that is sound has no findings; each way of being unsound is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, text, update
from unit.state.books import put
from unit.state.world import World, answer, row

from mappings.delivery import Conflict, Refusal, Uncertain
from mappings.outcome import Cover
from state.database import writing
from state.opening import open_database
from state.tables import DUPLICATE_MARK, RUN
from state.verify import Examination, Finding, examine


def findings(world: World) -> list[tuple[str, str, str]]:
    return [(found.check, found.which, found.problem) for found in examine(world.engine).findings]


@pytest.fixture
def full(world: World) -> World:
    """Rows of every state, and one that has drifted."""
    world.stage([row(key) for key in "abcdef"], brakes=())
    world.publish(Refusal(answer(400)), Uncertain(answer(500)), Conflict(answer(409)))
    world.stage([row(key, "another title" if key == "f" else None) for key in "abcdefg"])
    return world


def test_a_sound_state_db_has_no_findings(full: World) -> None:
    examined = examine(full.engine)
    assert (examined.findings, examined.entries, examined.runs) == ((), 7, 3)


def test_a_key_that_is_not_its_rows_and_an_event_that_two_rows_have_are_found(full: World) -> None:
    key, event = full.known("d").key, full.known("d").event_id
    put(full, "d", idempotency_key="es2-0")
    put(full, "e", event_id=event)
    twice, other = f"event {event} is another row's too, or stands here twice", f"it is es2-0, and should be {key}"
    assert sorted(findings(full)) == [("event", "d", twice), ("event", "e", twice), ("key", "d", other)]


def test_columns_that_do_not_go_together_or_mean_nothing_are_found(full: World) -> None:
    put(full, "a", state="held", attempts=2)
    put(full, "b", state="superseded", candidate_id=full.known("d").entry_id)
    put(full, "c", state="superseded", candidate_id=999)
    put(full, "d", baseline_fingerprint="0" * 32, answer="not json", event_id=None)
    put(full, "e", state="held", attempts=0, event_id=77)
    put(full, "f", baseline_body=b"[]", baseline_fingerprint="1" * 32, drift_kind="sideways", attempts=-1)
    put(full, "g", baseline_body=b'{"title":"x"}', baseline_fingerprint="1" * 32)
    assert sorted(f"{which} {check}: {problem}" for check, which, problem in findings(full)) == [
        "a entry: it is held, and counts 2 attempts",
        "c entry: it is superseded, and no entry has its event",
        "d entry: its baseline has a body or a fingerprint, and not both",
        "d entry: the last answer cannot be read",
        "d event: it is delivered, and has no event id",
        "e entry: it is held, and has event 77",
        "f body: the baseline is no JSON object",
        "f entry: it counts -1 attempts",
        "f entry: its drift is 'sideways', which means nothing to us",
        "g body: the baseline is not the one whose fingerprint is on record",
    ]


def test_a_body_that_is_not_what_was_pinned_is_found(full: World) -> None:
    put(full, "d", body=b'{"title":"somebody else\'s"}')
    put(full, "e", body=b"\x00\x00\x00")
    put(full, "g", state="held", body=b"", fingerprint="", attempts=0, event_id=None)
    assert [(check, which) for check, which, _ in findings(full)] == [("body", "e"), ("body", "d")]
    put(full, "g", body=b"{}", fingerprint="0" * 32)
    assert ("body", "g") in [(check, which) for check, which, _ in findings(full)], "a held row may have none, or its own"


def test_entries_that_are_not_in_the_index_of_duplicates_are_counted(full: World) -> None:
    with writing(full.engine) as connection:
        connection.execute(delete(DUPLICATE_MARK).where(DUPLICATE_MARK.c.entry_id <= 2))
    said = "2 entries are not in the index of duplicates: copies of them would not be held"
    assert findings(full) == [("tables", "", said)]


def test_a_body_whose_cover_was_put_in_or_left_out_is_no_finding(world: World) -> None:
    world.stage([row(key, cover=Cover(f"https://img.example/{key}", "omit")) for key in "ab"])
    outbox = world.outbox()
    first, second = outbox.settle_and_claim([], 2)
    outbox.pin(first, b'{"coverImage":5,"title":"x"}')
    outbox.pin(second, b'{"title":"x"}')
    assert examine(world.engine).findings == ()


def test_an_account_that_does_not_balance_or_cannot_be_read_is_found(full: World) -> None:
    with writing(full.engine) as connection:
        connection.execute(update(RUN).where(RUN.c.id == "run-1").values(read_account='{"read": 5, "new": 3}'))
        connection.execute(update(RUN).where(RUN.c.id == "run-3").values(read_account="{", stage_report="{}"))
    assert findings(full) == [
        ("account", "run-1", "the rows read do not add up, by 2"),
        ("account", "run-3", "the account of rows read cannot be read"),
        ("account", "run-3", "the report of its stage cannot be read"),
    ]


def test_tables_that_are_not_ours_as_we_made_them_are_found(full: World) -> None:
    with writing(full.engine) as connection:
        connection.execute(text("DROP TABLE side_by_side"))
        connection.execute(text("CREATE TABLE somebody_elses (id INTEGER)"))
    try:
        assert findings(full) == [("tables", "", "table side_by_side is missing")]
    finally:
        with writing(full.engine) as connection:
            connection.execute(text("DROP TABLE somebody_elses"))
            if full.engine.dialect.name == "postgresql":
                connection.execute(text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
        open_database(full.url).dispose()


def test_a_database_without_our_tables_says_so(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}", upgrades=False)
    assert examine(engine) == Examination(None, 0, 0, (Finding("tables", "there are none of ours: the first run makes them"),))
    engine.dispose()
