"""`eventsync ui`: the webserver, the daemon and the demo as processes; a run submitted to them; their end by Ctrl-C, whenever a
block of `ui` is left.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest
from dagster._core.launcher import WorkerStatus
from documents import surprises
from integration.desk import shell_environ
from on_dagster.desk import MAPPING, Desk, ended, eventsync_ui, line, start, until
from prometheus import samples

from pipelines.before_serving import DAGSTER_YAML
from pipelines.cli.webserver import Webserver
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import HIDDEN_TAG_PREFIX
from pipelines.orchestration.workers import PID_TAG, process_tags
from pipelines.settings import PACKAGED_FEEDS
from state.opening import opened_database
from state.queries import LedgerQueries

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
RUNS = "{ runsOrError { ... on Runs { results { runId jobName status tags { key value } } } } }"


@dataclass
class Ui:
    """A running `eventsync ui`, what its children are, and what it printed until its end."""

    process: subprocess.Popen[str]
    home: Path
    url: str
    printed: str = ""

    def ask(self, query: str) -> Any:
        with httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=30) as http:
            return http.post("/graphql", json={"query": query}).json()["data"]

    def runs(self) -> dict[str, dict[str, Any]]:
        return {run["runId"]: run for run in self.ask(RUNS)["runsOrError"]["results"]}

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def ui(words: tuple[str, ...], home: Path, environ: Mapping[str, str], cwd: Path) -> Iterator[Ui]:
    """`eventsync ui` with all its children. When the block ends, Ctrl-C must stop every process that it started."""
    with eventsync_ui(environ, home, cwd, *words) as (process, url):
        running = Ui(process, home, url)
        until(lambda: len(running.children()) >= 4, what="webserver, daemon and their code server")
        yield running
        family = running.children()
        process.send_signal(signal.SIGINT)
        code, running.printed, _ = ended(process)
        assert code == 0
        left = [one for one in psutil.wait_procs(family, timeout=20)[1] if one.status() != psutil.STATUS_ZOMBIE]
        for one in left:
            one.kill()
        assert not left
        assert not (home / "eventsync-ui.json").exists()


def environ_of(demo: Ui, service: str) -> dict[str, str]:
    """What a person exports in another terminal to work on the demo's instance."""
    return {
        "EVENT_API_BASE_URL": service,
        "EVENT_API_KEY": "kept-by-the-ui",
        "EVENTSYNC_FEEDS": str(PACKAGED_FEEDS),
        "EVENTSYNC_STATE_URL": f"sqlite:///{demo.home.parent / 'state.db'}",
        "EVENTSYNC_NAMESPACE": "demo",
        "DAGSTER_HOME": str(demo.home),
    }


def service_of(demo: Ui) -> str:
    """Where the demo's sandbox listens, as its child process was told."""
    for child in demo.children():
        for connection in child.net_connections("tcp4"):
            if "sandbox" in child.cmdline() and connection.status == psutil.CONN_LISTEN:
                return f"http://127.0.0.1:{connection.laddr.port}"
    raise AssertionError("the demo runs no sandbox")


@pytest.mark.slow(about_s=40)
def test_the_demo_stays_with_its_runs_and_numbers_and_takes_a_further_run_with_its_options(tmp_path: Path) -> None:
    home, far = tmp_path / "demo" / "dagster", tmp_path / ("too-long-for-the-path-of-a-socket" * 3)
    far.mkdir()
    for name in ("pipelines", "sandbox"):  # packages of another project, in the folder in which a person works
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    settings = {"EVENTSYNC_METRICS_PORT": "0", "TMPDIR": str(far)}
    with ui(("--demo", "--folder", str(tmp_path / "demo")), home, settings, tmp_path) as demo:
        with httpx.Client(base_url=demo.url, trust_env=False, verify=False, timeout=30) as http:
            assert Webserver(http, "eventsync").is_there()
        assert groups_of(demo) == {"backfills", "krakow_culture", "lisbon_agenda", "osaka_fireworks"}
        before = demo.runs()
        assert {run["jobName"] for run in before.values()} == {"sync"}
        assert {run["status"] for run in before.values()} == {"SUCCESS"}

        ours = psutil.Process(demo.process.pid).net_connections("tcp4")
        (port,) = (one.laddr.port for one in ours if one.status == psutil.CONN_LISTEN)
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, verify=False, timeout=30).text
        for feed in ("krakow-culture", "lisbon-agenda", "osaka-fireworks"):
            assert len(samples(page, "eventsync_gate_open", feed=feed)) == 1

        words = ("run", "lisbon-agenda", "--stage-only", "--json")
        code, out, err = ended(start(words, environ_of(demo, service_of(demo)), home.parent))
        assert code == 0, out + err
        (report,) = json.loads(out)["runs"]
        (run_id,) = demo.runs().keys() - before.keys()
        run = demo.runs()[run_id]
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        assert (report["run_id"], report["outcome"], report["publish"], run["status"]) == (run_id, "staged", None, "SUCCESS")
        assert tags["eventsync/launched_by"] == "cli"
    assert "`eventsync ui` shows your own runs" in demo.printed


@pytest.mark.slow(about_s=60)
def test_runs_go_on_after_killed_workers_a_dead_ui_a_killed_daemon_and_changed_files_and_a_killed_ui_leaves_no_process(
    desk: Desk,
) -> None:
    home, text = desk.folder / "dagster", MAPPING.replace("schedule", "# schedule")  # so no tick ends a run
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        with subprocess.Popen([sys.executable, "-c", ""]) as dying:
            tags = {**process_tags(), f"{HIDDEN_TAG_PREFIX}{PID_TAG}": str(dying.pid), names.FEED_TAG: "town-hall"}
        left = instance.create_run_for_job(nothing, tags=tags, status=dg.DagsterRunStatus.STARTED)
    desk.mapping(text=text)
    desk.source(line(number) for number in range(200))
    desk.switch(latency_ms=200)
    with eventsync_ui(desk.environ, home, desk.folder) as (process, url):
        running = Ui(process, home, url)
        assert [run["status"] for run in running.runs().values()] == ["FAILURE"]
        assert "the state is intact" in last_words_of(running, left.run_id), "the UI ended it, not the monitoring of Dagster"
        submitted = desk.start("run", "town-hall", "--json")
        until(lambda: desk.posts() > 8, what="the first requests")
        assert health_of_the_run(running) is WorkerStatus.RUNNING
        psutil.Process(holder_of_the_feed(desk)).kill()
        until(lambda: health_of_the_run(running) is WorkerStatus.NOT_FOUND, what="the launcher to notice")
        assert ended(submitted)[0] != 0
        sent = desk.posts()
        followed = desk.start("run", "town-hall")
        until(lambda: desk.posts() > sent + 8, what="the requests of the next run")
        (run_id,) = [run_id for run_id, run in running.runs().items() if run["status"] == "STARTED"]
        followed.signal(signal.SIGINT)
        code, out, _ = ended(followed)
        assert (code, f"{running.url}/runs/{run_id}" in out) == (130, True)
        desk.switch(latency_ms=2_000)
        desk.mapping("night-walks", text=text)
        until(lambda: "night_walks" in groups_of(running), every_s=0.5, what="the new feed")
        assert desk.posts() < 200, "the run was at work when its definitions were loaded anew"
        desk.switch(latency_ms=0)
        until(lambda: running.runs()[run_id]["status"] == "SUCCESS", every_s=0.5, what="the end of a run that no command follows")
        desk.mapping("night-walks", text="feed: [")
        code, out, err = ended(desk.start("reload", "--json"))
        assert (code, json.loads(out)["feeds"], len(json.loads(out)["broken"])) == (2, ["town-hall"], 1), out + err
        assert surprises(("reload",), json.loads(out)) == []
        assert "broken_feeds" in groups_of(running)
        daemon_of(running).kill()
        code, out, err = ended(desk.start("run", "town-hall"))
        assert code == 0, out + err
        family = running.children()
        process.kill()
        process.communicate()
        assert psutil.wait_procs(family, timeout=60)[1] == []
    assert desk.titles() == sorted(f"Evening {number}" for number in range(200))


@dg.job
def nothing() -> None:
    """Does nothing."""


def groups_of(running: Ui) -> set[str]:
    return {node["groupName"] for node in running.ask("{ assetNodes { groupName } }")["assetNodes"]}


def test_the_workspace_file_at_the_top_loads(tmp_path: Path) -> None:
    words = [Path(sys.executable).with_name("dagster"), "definitions", "validate", "-w", "workspace.yaml"]
    env = shell_environ({"DAGSTER_HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "yes"})
    checked = subprocess.run(words, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert (checked.returncode, "eventsync" in checked.stdout + checked.stderr) == (0, True), checked.stdout + checked.stderr


def daemon_of(running: Ui) -> psutil.Process:
    words = {one: one.as_dict(["cmdline"])["cmdline"] or [] for one in running.children()}  # a zombie has none
    (daemon,) = (one for one, said in words.items() if any(word.endswith("dagster-daemon") for word in said))
    return daemon


def last_words_of(running: Ui, run_id: str) -> str:
    """What the run's end is said to be."""
    with dg.DagsterInstance.from_config(str(running.home)) as instance:
        (event,) = instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        return event.message


def health_of_the_run(running: Ui) -> WorkerStatus:
    """Of the newest one."""
    with dg.DagsterInstance.from_config(str(running.home)) as instance:
        (run,) = instance.get_runs(limit=1)
        return instance.run_launcher.check_run_worker_health(run).status


def holder_of_the_feed(desk: Desk) -> int:
    with opened_database(f"sqlite:///{desk.folder / 'state' / 'state.db'}") as engine:
        (holder,) = (feed.lease for feed in LedgerQueries(engine).status() if feed.lease)
    return holder.pid
