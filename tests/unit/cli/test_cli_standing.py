"""What waits for a person, as runs, `status`, `rows`, `diff`, `report` and `metrics` show it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from prometheus import samples
from sqlalchemy import Connection, insert, select, update
from unit.cli.conftest import FEED, GOOD, HEADER, MAPPING, Decider

from pipelines.notices import Cause, concerns_of
from state.database import writing
from state.enums import Waiting
from state.opening import open_database
from state.queries import LedgerQueries
from state.tables import EARLIER, ENTRY

NOW = datetime(2026, 11, 1, tzinfo=UTC)
CANCELLED = {"drift_kind": "cancelled", "drift_fingerprint": "cancelled"}


@contextmanager
def books(decider: Decider) -> Iterator[Connection]:
    engine = open_database(f"sqlite:///{decider.desk.state}")
    with writing(engine) as connection:
        yield connection
    engine.dispose()


def change(decider: Decider, key: str, **columns: object) -> None:
    """Set columns of an entry, as a decision or a read does."""
    with books(decider) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


def replaced(decider: Decider, key: str, event_id: int) -> None:
    """Record an earlier event of a row, as a change that is drafted again leaves it."""
    with books(decider) as connection:
        entry = connection.execute(select(ENTRY).where(ENTRY.c.row_key == key)).one()
        kept = ("body", "fingerprint", "row_digest", "twin_digest", "channel_id", "attempts", "sent_run")
        values = {name: getattr(entry, name) for name in kept} | {"entry_id": entry.id, "event_id": event_id, "revision": 7}
        connection.execute(insert(EARLIER).values(**values, idempotency_key="k", replaced_at=NOW, is_let_out=True))


def waiting(decider: Decider) -> dict[str, int]:
    """What `status` counts; the list of each kind has as many rows, and so has the last run's record."""
    (feed,) = decider.told("status")["feeds"]
    counts: dict[str, int] = feed["waiting"]
    for kind in Waiting:
        assert len(decider.listed("--state", kind.value)) == counts.get(kind, 0)
    return counts


def page(decider: Decider) -> str:
    decider.say("report", "--html", "page.html", code=0)
    return (decider.desk.folder / "page.html").read_text("utf-8")


def test_rows_that_the_service_has_refused_redden_every_run_until_a_person_decides(decider: Decider) -> None:
    decider.desk.source([f"{n},Evening {n},2030-05-01,19:30,,concert" for n in range(24)])
    decider.service.switch(max_title_chars=5)
    for _ in range(4):
        decider.publish()
    run = decider.publish(code=1)
    assert (run["outcome"], run["standing"]) == ("needs attention", {"refused": {"count": 24, "first": ["0", "1", "2"]}})
    assert (run["read"]["still_refused"], run["read"]["unchanged"], run["read"]["read"]) == (24, 0, 24)
    assert "24 (0, 1, 2, …) refused by the service, more than the feed allows" in run["message"]
    decider.publish("--publish-only", code=1)
    decider.publish("--stage-only", code=1)
    assert decider.publish("--full")["read"]["still_refused"] == 24
    decider.desk.run("runs", "--limit", "1").assert_told(0, "read 24 = still refused 24")
    assert decider.desk.told("runs", "--limit", "1")["runs"][0]["standing"] == run["standing"]
    decider.say("resolve", *map(str, range(16)), "--ignore")
    decider.publish(code=0)  # 8 of 24 are within the half that the feed allows
    decider.service.switch(max_title_chars=300)
    decider.say("retry")
    assert waiting(decider).get("refused", 0) == 0


def test_a_warning_is_listed_in_every_later_run_with_its_raw_cells(decider: Decider) -> None:
    rule = "  - assert: {not: {column: TITLE, equals: Jazz}}\n    message: jazz is played elsewhere\n    severity: warn\n"
    decider.desk.mapping(MAPPING.replace("    because: online only\n", "    because: online only\n" + rule))
    for _ in range(2):
        run = decider.publish(code=0)
        assert (run["standing"], waiting(decider)) == ({"warning": {"count": 1, "first": ["1"]}}, {"warning": 1})
        assert "1 (1) used with a warning" in run["message"]
        (row,) = decider.told("rows", "--state", "warning")["rows"]
        assert (row["row_key"], row["cells"]["TITLE"]) == ("1", "Jazz")
    change(decider, "1", decision="ignore")
    assert (decider.publish()["standing"], waiting(decider)) == ({}, {})


def test_a_row_that_is_unusable_now_says_that_its_event_is_online(decider: Decider) -> None:
    decider.publish()
    event_id = int(decider.event_id("Jazz"))
    decider.desk.source(("1,,2030-05-01,19:30,,concert", *GOOD[1:]))
    decider.publish()
    (row,) = decider.told("rows", "--state", "rejected")["rows"]
    assert (row["event_id"], f"online as event {event_id}, row now unusable" in row["problem"]) == (event_id, True)
    decider.say("rows", "--state", "rejected", "--csv", "out.csv")
    (line,) = csv.DictReader((decider.desk.folder / "out.csv").read_text("utf-8-sig").splitlines(keepends=True))
    assert "An earlier version of this row is online." in line["problem"]
    assert "An earlier version of this row is online" in page(decider)


def test_a_held_row_names_the_other_key_with_its_feed_and_the_commands(decider: Decider) -> None:
    decider.publish()
    decider.desk.mapping(MAPPING.replace("feed: town-hall", "feed: opera").replace("events.csv", "opera.csv"), "opera.yaml")
    more = [f"x{n},Aria {n},2030-06-0{n},19:30,,concert" for n in range(1, 6)]
    (decider.desk.folder / "opera.csv").write_text("\n".join([HEADER, "o1,Jazz,2030-05-01,19:30,,concert", *more]), "utf-8")
    run = decider.desk.run("run", "opera", "--no-dagster", "--json").run
    assert run["standing"] == {"held": {"count": 1, "first": ["o1"]}}
    (row,) = decider.desk.told("rows", "opera", "--state", "held")["rows"]
    assert row["candidate"] == {"row_key": "1", "feed": FEED, "namespace": ""}
    assert (row["problem"], row["cells"]["TITLE"]) == ("it looks like the event of 1 of town-hall", "Jazz")
    assert all(f"eventsync resolve opera o1 --{option}" in row["hint"] for option in ("same-as", "release", "ignore"))
    assert "superseded" not in decider.desk.run("status", "opera").out


def test_a_row_that_a_rule_leaves_out_is_vanished_by_that_rule_everywhere(decider: Decider) -> None:
    decider.publish()
    change(decider, "1", vanished_at=NOW, vanished_by="rule 1: online only")
    assert waiting(decider) == {"vanished": 1}
    (row,) = decider.told("rows", "--state", "vanished")["rows"]
    assert (row["vanished_by"], row["problem"]) == ("rule 1: online only", "left out since 2026-11-01 by rule 1: online only")
    decider.say("diff").assert_told(0, "vanished by rule 1: online only")
    assert "Left out of what is put online" in page(decider)


def test_a_removed_event_whose_row_is_back_is_listed_with_the_command_that_creates_it_again(decider: Decider) -> None:
    decider.publish()
    change(decider, "1", removed_at=NOW, drift_kind="returned", drift_fingerprint="x", drift_body=b'{"title": "Jazz"}')
    assert waiting(decider) == {"drift": 1}
    (row,) = decider.told("rows")["rows"]
    assert "was removed by hand, and the row is back in the source" in row["problem"]
    assert "eventsync resolve town-hall 1 --resend" in row["hint"]
    assert decider.told("diff")["counts"]["removed by hand, back in the source"] == 1
    decider.say("status").assert_told(0, "1 removed by hand and back in the source")
    assert decider.told("report")["sections"]["online"]["rows"] == 2


def test_an_earlier_event_to_remove_is_named_by_its_id_everywhere(decider: Decider) -> None:
    decider.publish()
    replaced(decider, "1", 4711)
    assert waiting(decider) == {"earlier": 1}
    (row,) = decider.told("rows")["rows"]
    assert (row["earlier_event_ids"], "4711" in row["problem"], "--removed" in row["hint"]) == ([4711], True, True)
    decider.say("diff").assert_told(0, "earlier event 4711: remove by hand")
    assert decider.told("diff")["rows"][0]["earlier_event_ids"] == [4711]
    assert decider.publish()["standing"] == {"earlier": {"count": 1, "first": ["1"]}}
    assert decider.told("report")["sections"]["earlier"]["rows"] == 1
    assert samples(decider.desk.run("metrics").out, "eventsync_rows_waiting", state="earlier") == [1]
    change(decider, "5", state="held", event_id=None)
    engine = open_database(f"sqlite:///{decider.desk.state}")
    (status,) = LedgerQueries(engine, lambda: NOW).status()
    engine.dispose()
    assert {concern.cause: concern.text for concern in concerns_of(status, (), NOW)} == {
        Cause.HELD: "1 row held back as likely copies of known events",
        Cause.EARLIER: "1 row with earlier events to be removed by hand",
    }, "the owner is notified of both"


def test_a_superseded_key_names_the_key_that_has_the_event_and_waits_for_nothing(decider: Decider) -> None:
    decider.publish()
    other = select(ENTRY.c.id).where(ENTRY.c.row_key == "5").scalar_subquery()
    change(decider, "1", state="superseded", event_id=None, candidate_id=other, vanished_at=NOW)
    assert waiting(decider) == {}
    (row,) = decider.told("rows", "--state", "superseded")["rows"]
    assert (row["problem"], row["candidate"]["row_key"]) == ("its event belongs to 5 now", "5")


def test_an_event_that_is_over_drops_out_of_every_list(decider: Decider) -> None:
    decider.publish()
    change(decider, "1", **CANCELLED, vanished_at=NOW)
    assert waiting(decider) == {"drift": 1, "vanished": 1}
    change(decider, "1", ends_at=NOW)
    assert (waiting(decider), decider.told("diff")["rows"]) == ({}, [])


def test_a_run_that_a_brake_stops_still_counts_what_waits(decider: Decider) -> None:
    decider.publish()
    change(decider, "5", **CANCELLED)
    decider.desk.source([f"{n},,2030-05-01,19:30,,concert" for n in range(10, 20)])
    assert decider.publish(code=5)["standing"]["drift"]["first"] == ["5"]
    decider.desk.run("run", FEED, "--no-dagster").assert_told(5, "waits for a person: drift 1 (5)")
