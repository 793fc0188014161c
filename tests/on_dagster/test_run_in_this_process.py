"""`eventsync run` where no webserver is: the job in this very process, on the instance of the UI."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest
from integration.desk import Command
from on_dagster.desk import FEED, Desk, ended, line, until

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


def begun(desk: Desk) -> Command:
    """A run that has sent some of its rows and is at it."""
    sent, running = desk.posts(), desk.start("run", FEED)
    until(lambda: desk.posts() > sent + 8, what="the first requests")
    return running


def test_a_run_is_in_the_uis_list_and_leaves_nothing_beside_its_home(desk: Desk) -> None:
    code, out, err = ended(desk.start("run", FEED))
    assert (code, is_quiet(err), "new 10 = delivered 10" in out) == (0, True, True)
    assert statuses(desk) == ["SUCCESS"]
    assert {path.name for path in desk.folder.iterdir()} == {"dagster", "events.csv", "feeds", "state"}
    with instance_of(desk) as instance:
        assert not instance.telemetry_enabled


def test_a_braked_run_says_so_in_our_words_and_keeps_dagsters_for_the_ui(desk: Desk) -> None:
    desk.source([*(line(number) for number in range(6)), *(line(number, day="soon") for number in range(6, 10))])
    code, out, err = ended(desk.start("run", FEED))
    assert (code, is_quiet(err)) == (5, True)
    assert "4 of 10 rows rejected" in out
    assert "what to do: correct the source or the mapping and run again; or send the good rows anyway:" in out
    assert f"eventsync run {FEED} --accept rejected" in " ".join(out.split())
    with instance_of(desk) as instance:
        (run,) = instance.get_runs()
        failed = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert "rejected" in str(failed[0].get_dagster_event().step_failure_data.error)


def test_runs_that_are_interrupted_or_killed_hold_nothing_up_and_every_row_is_sent_once(desk: Desk) -> None:
    home = desk.folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML.replace("default_limit: 4", "default_limit: 1"), "utf-8")
    desk.switch(latency_ms=SLOW_MS)
    desk.source(line(number) for number in range(ROWS))
    interrupted = begun(desk)
    interrupted.signal(signal.SIGINT)
    code, out, err = ended(interrupted)
    assert (code, is_quiet(err), "interrupted while publishing" in out) == (130, True, True)
    sent = len(desk.events())
    assert f"delivered {sent} + still pending {ROWS - sent}" in out
    assert desk.posts() == sent, "what was in flight was waited for"
    killed = begun(desk)
    killed.kill()
    ended(killed)
    assert statuses(desk) == ["STARTED", "FAILURE"]
    desk.switch(latency_ms=0)
    code, out, err = ended(desk.start("run", FEED))
    assert code == 0, out + err
    assert desk.titles() == sorted(f"Evening {number}" for number in range(ROWS))
    assert statuses(desk) == ["SUCCESS", "FAILURE", "FAILURE"]
