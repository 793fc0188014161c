"""`eventsync run` where no webserver is: the job in this very process, on the instance of the UI. But for one, the commands
are forked from a process that has imported Dagster already.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import dagster as dg
import pytest
from integration.desk import Command, Said, WarmStart
from on_dagster.desk import FEED, Desk, ended, line, shell_environ, until

from pipelines.before_serving import DAGSTER_YAML

pytestmark = pytest.mark.slow
SLOW_MS = 150
ROWS = 120


@contextmanager
def instance_of(desk: Desk) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(desk.folder / "dagster")) as instance:
        yield instance


def statuses(desk: Desk) -> list[str]:
    """How the runs ended that the UI lists, the youngest first."""
    with instance_of(desk) as instance:
        return [run.status.value for run in instance.get_runs()]


def is_quiet(err: str) -> bool:
    """Whether Dagster kept its own words to its own log."""
    return "Traceback" not in err and "Stack Trace" not in err and "- dagster -" not in err


def row_states(desk: Desk) -> dict[str, int]:
    with closing(sqlite3.connect(desk.folder / "state" / "state.db")) as database:
        return dict(database.execute("SELECT state, count(*) FROM ledger_entry GROUP BY state").fetchall())


@dataclass
class Shell:
    """Starts commands at a desk. What they print lies there too."""

    desk: Desk
    warm: WarmStart
    started: list[Command] = field(default_factory=list)

    def start(self, *words: str) -> Command:
        base = self.desk.folder / "said" / f"{len(self.started)}.command"
        base.parent.mkdir(exist_ok=True)
        self.started.append(self.warm.start(words, shell_environ(self.desk.environ), self.desk.folder, base))
        return self.started[-1]

    def run(self, *words: str) -> Said:
        return self.start("run", *words).ended()

    def begin_long_run(self) -> Command:
        """A run that has sent some of its rows and is at it."""
        self.desk.switch(latency_ms=SLOW_MS)
        self.desk.source(line(number) for number in range(ROWS))
        running = self.start("run", FEED)
        until(lambda: self.desk.posts() > 8, what="the first requests")
        return running


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmStart]:
    with closing(WarmStart()) as started:
        yield started


@pytest.fixture
def shell(desk: Desk, warm: WarmStart) -> Iterator[Shell]:
    made = Shell(desk, warm)
    yield made
    for command in made.started:
        if not command.has_ended:
            command.kill()


def test_a_run_is_in_the_uis_list_and_leaves_nothing_beside_its_home(desk: Desk) -> None:
    code, out, err = ended(desk.start("run", FEED))
    assert code == 0
    assert is_quiet(err)
    assert "new 10 = delivered 10" in out
    assert statuses(desk) == ["SUCCESS"]
    assert sorted(path.name for path in desk.folder.iterdir() if not path.name.startswith(("home", "pytest"))) == [
        "dagster",
        "events.csv",
        "feeds",
        "state",
    ]
    with instance_of(desk) as instance:
        assert not instance.telemetry_enabled


def test_a_braked_run_says_so_in_our_words_and_keeps_dagsters_for_the_ui(desk: Desk, shell: Shell) -> None:
    desk.source([*(line(number) for number in range(6)), *(line(number, day="soon") for number in range(6, 10))])
    said = shell.run(FEED)
    assert said.code == 5
    assert is_quiet(said.err)
    assert "4 of 10 rows rejected" in said.out
    assert "what would help: mend the source or the mapping and run again; or send the good rows in spite of that:" in said.out
    assert f"eventsync run {FEED} --accept rejected" in " ".join(said.out.split())
    with instance_of(desk) as instance:
        (run,) = instance.get_runs()
        failed = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert "rejected" in str(failed[0].get_dagster_event().step_failure_data.error)


def test_ctrl_c_settles_what_is_in_flight_and_the_next_run_sends_the_rest_once(desk: Desk, shell: Shell) -> None:
    running = shell.begin_long_run()
    running.signal(signal.SIGINT)
    said = running.ended()
    assert said.code == 130
    assert is_quiet(said.err)
    assert "interrupted while publishing" in said.out
    delivered = row_states(desk)["delivered"]
    assert f"delivered {delivered} + still pending {ROWS - delivered}" in said.out
    assert delivered == len(desk.events())
    assert statuses(desk) == ["FAILURE"]
    desk.switch(latency_ms=0)
    said = shell.run(FEED)
    assert (said.code, len(desk.events()), desk.posts()) == (0, ROWS, ROWS)
    assert statuses(desk) == ["SUCCESS", "FAILURE"]


def test_ctrl_c_before_anything_is_begun_leaves_no_run_that_seems_to_go_on(desk: Desk, shell: Shell) -> None:
    running = shell.start("run", FEED)
    until((desk.folder / "dagster" / "history" / "runs.db").exists, what="Dagster's books")
    running.signal(signal.SIGINT)
    said = running.ended()
    assert said.code in {0, 130}
    assert is_quiet(said.err)
    assert set(statuses(desk)) <= {"SUCCESS", "FAILURE", "CANCELED"}


def test_a_killed_run_holds_nothing_up_and_nothing_is_sent_twice(desk: Desk, shell: Shell) -> None:
    home = desk.folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML.replace("default_limit: 4", "default_limit: 1"), "utf-8")
    shell.begin_long_run().kill()
    assert statuses(desk) == ["STARTED"]
    desk.switch(latency_ms=0)
    said = shell.run(FEED)
    assert said.code == 0, said.out
    assert sorted(desk.titles()) == sorted(f"Evening {number}" for number in range(ROWS))
    assert statuses(desk) == ["SUCCESS", "FAILURE"]
