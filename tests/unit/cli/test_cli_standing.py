"""What waits for a person, as runs, `status`, `rows`, `diff`, `report` and `metrics` show it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prometheus import samples
from sqlalchemy import insert, select
from unit.cli.conftest import FEED, HEADER, MAPPING, Decider
from unit.cli.stories import follow, told_in

from pipelines.notices import Cause, concerns_of
from state.database import writing
from state.opening import open_database
from state.queries import LedgerQueries
from state.tables import EARLIER, ENTRY

NOW = datetime(2026, 11, 1, tzinfo=UTC)
STORIES = told_in(
    """
# rows that the service has refused redden every run until a person decides
source EVENINGS
switch max_title_chars: 5
run
run
run
run
run => 1 | {runs: [{outcome: needs attention, message: "…24 (0, 1, 2, …) refused by the service, more than the feed allows"}]}
run => 1 | {runs: [{standing: {refused: {count: 24, first: ['0', '1', '2']}}, read: {still_refused: 24, unchanged: 0, read: 24}}]}
run --publish-only => 1
run --stage-only => 1
waiting => refused 24
run --full => {runs: [{read: {still_refused: 24}}]}
runs --limit 1 => 0 | read 24 = still refused 24
runs --limit 1 => {runs: [{standing: {refused: {count: 24, first: ['0', '1', '2']}}}]}
resolve 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 --ignore
run => 0
switch max_title_chars: 300
retry
waiting => none
# a warning is listed in every later run with its raw cells
mapping online only -> online only\\n  - {assert: {not: {column: TITLE, equals: Jazz}}, message: no jazz, severity: warn}
run => 0 | {runs: [{standing: {warning: {count: 1, first: ['1']}}, message: …1 (1) used with a warning}]}
run => 0 | {runs: [{standing: {warning: {count: 1, first: ['1']}}, message: …1 (1) used with a warning}]}
waiting => warning 1
rows --state warning => {rows: [{row_key: '1', cells: {TITLE: Jazz}}]}
set 1 decision = 'ignore'
run => {runs: [{standing: {}}]}
waiting => none
# a row that is unusable now says that its event is online
run
source 1,,2030-05-01,19:30,,concert / 5 / 6
run
rows --state rejected => {rows: [{event_id: <Jazz>, problem: "…online as event <Jazz>, row now unusable"}]}
rows --state rejected --csv out.csv => 0 | An earlier version of this row is online.
report --html page.html => 0 | An earlier version of this row is online
# a row that a rule leaves out is vanished by that rule everywhere
run
set 1 vanished_at = NOW, vanished_by = 'rule 1: online only'
waiting => vanished 1
rows --state vanished => {rows: [{vanished_by: 'rule 1: online only', problem: …left out since 2026-11-01 by rule 1}]}
diff => 0 | vanished by rule 1: online only
report --html page.html => 0 | Left out of what is put online
# a removed event whose row is back is listed with the command that creates it again
run
set 1 removed_at = NOW, drift_kind = 'returned', drift_fingerprint = 'x', drift_body = '{"title": "Jazz"}'
waiting => drift 1
rows => {rows: [{problem: '…was removed by hand, and the row is back in the source', hint: …resolve town-hall 1 --resend}]}
diff => {counts: {'removed by hand, back in the source': 1}}
status => 0 | 1 removed by hand and back in the source
report => {sections: {online: {rows: 2}}}
# a superseded key names the key that has the event and waits for nothing
run
set 1 state = 'superseded', event_id = NULL, candidate_id = (SELECT id FROM ledger_entry WHERE row_key = '5'), vanished_at = NOW
waiting => none
rows --state superseded => {rows: [{problem: its event belongs to 5 now, candidate: {row_key: '5'}}]}
# an event that is over drops out of every list
run
set 1 drift_kind = 'cancelled', drift_fingerprint = 'cancelled', vanished_at = NOW
waiting => drift 1, vanished 1
rows --state drift => {rows: [{problem: cancelled at the source since it was sent, hint: …withdraw event}]}
set 1 ends_at = NOW
waiting => none
diff => {rows: []}
# a run that a brake stops still counts what waits
run
set 5 drift_kind = 'cancelled', drift_fingerprint = 'cancelled'
source 10,,,,, / 11,,,,, / 12,,,,, / 13,,,,, / 14,,,,, / 15,,,,,
run => 5 | {runs: [{standing: {drift: {first: ['5']}}}]}
run => 5 | waits for a person: drift 1 (5)
""".replace("EVENINGS", " / ".join(f"{n},Evening {n},2030-05-01,19:30,,concert" for n in range(24)))
)
STORY_OF_AN_EARLIER_EVENT = """\
waiting => earlier 1
rows => {rows: [{earlier_event_ids: [4711], problem: …4711, hint: …--removed}]}
diff => 0 | earlier event 4711: remove by hand
diff => {rows: {0: {earlier_event_ids: [4711]}}}
run => {runs: [{standing: {earlier: {count: 1, first: ['1']}}}]}
report => {sections: {earlier: {rows: 1}}}"""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_waits_is_shown_everywhere_until_a_person_decides(decider: Decider, story: str) -> None:
    follow(decider, story)


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


def replaced(decider: Decider, key: str, event_id: int) -> None:
    """Record an earlier event of a row, as a change that is drafted again leaves it."""
    engine = open_database(f"sqlite:///{decider.desk.state}")
    with writing(engine) as connection:
        entry = connection.execute(select(ENTRY).where(ENTRY.c.row_key == key)).one()
        kept = ("body", "fingerprint", "row_digest", "twin_digest", "channel_id", "attempts", "sent_run")
        values = {name: getattr(entry, name) for name in kept} | {"entry_id": entry.id, "event_id": event_id, "revision": 7}
        connection.execute(insert(EARLIER).values(**values, idempotency_key="k", replaced_at=NOW, is_let_out=True))
    engine.dispose()


def test_an_earlier_event_to_remove_is_named_by_its_id_everywhere(decider: Decider) -> None:
    decider.publish()
    replaced(decider, "1", 4711)
    follow(decider, STORY_OF_AN_EARLIER_EVENT)
    assert samples(decider.desk.run("metrics").out, "eventsync_rows_waiting", state="earlier") == [1]
    follow(decider, "set 5 state = 'held', event_id = NULL")
    engine = open_database(f"sqlite:///{decider.desk.state}")
    (status,) = LedgerQueries(engine, lambda: NOW).status()
    engine.dispose()
    assert {concern.cause: concern.text for concern in concerns_of(status, (), NOW)} == {
        Cause.HELD: "1 row held back as likely copies of known events",
        Cause.EARLIER: "1 row with earlier events to be removed by hand",
    }, "the owner is notified of both"
