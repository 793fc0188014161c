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
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import pytest
import yaml
from integration.desk import shell_environ
from lookalikes.notices import closed_port
from on_dagster.desk import FEED, SECRET, Desk, desk_in, ended, line, until
from postgres import Postgres

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


@dataclass(frozen=True)
class Deployment:
    """A host: where the wheel is unpacked, what the processes hear, which ports they listen at."""

    desk: Desk
    environ: Mapping[str, str]
    code_port: int
    web_port: int

    def start(self, part: str) -> subprocess.Popen[bytes]:
        """Start a part as its container would, in a process group of its own, with what it prints in a file of its name.

        What works on no feed knows neither the service nor the state DB.
        """
        compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
        here = {"4266": str(self.code_port), "3000": str(self.web_port), "0.0.0.0": "127.0.0.1"}
        home = self.environ["DAGSTER_HOME"]
        words = [word.replace("/srv/eventsync/dagster", home) for word in compose["services"][part]["command"]]
        env = {name: value for name, value in self.environ.items() if part == "code" or not name.startswith("EVENT")}
        command, cwd = [DEPLOY / "entrypoint.sh", *(here.get(word, word) for word in words)], self.desk.folder
        with (cwd / f"{part}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=cwd, env=env, stdout=log, stderr=log, process_group=0)

    def is_healthy(self, part: subprocess.Popen[bytes]) -> bool:
        assert part.poll() is None, self.words()
        command = [DEPLOY / "healthy.sh", str(part.pid)]
        return subprocess.run(command, env=dict(self.environ), capture_output=True, check=False).returncode == 0

    def wait_for(self, part: subprocess.Popen[bytes], port: int = 0) -> None:
        """Wait until a part listens, if it does so at all, and its health check says that it is well."""
        until(lambda: not port or listens(port) or part.poll() is not None, within_s=120, what="a part that listens")
        until(lambda: self.is_healthy(part), within_s=120, what="a part that is healthy")

    def words(self) -> str:
        return "\n".join(path.read_text("utf-8") for path in self.desk.folder.glob("*.log"))

    def runs(self) -> dict[str, str]:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.web_port}", trust_env=False, verify=False, timeout=30) as http:
            data: Any = http.post("/graphql", json={"query": RUNS}).json()["data"]
        return {run["runId"]: run["status"] for run in data["runsOrError"]["results"]}

    def cli(self, *words: str) -> subprocess.Popen[str]:
        env = {**self.environ, "EVENTSYNC_DAGSTER_URL": f"http://127.0.0.1:{self.web_port}"}
        command, pipe = [DEPLOY / "entrypoint.sh", *words], subprocess.PIPE
        return subprocess.Popen(command, cwd=self.desk.folder, env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The folder that a wheel of the project installs as."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheel"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (packed,) = (tmp_path / "wheel").glob("*.whl")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture
def deployment(tmp_path: Path, wheel: Path, postgres: Postgres) -> Iterator[Deployment]:
    code_port, web_port, home = closed_port(), closed_port(), tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text("utf-8"), "utf-8")
    (home / "workspace.yaml").write_text((DEPLOY / "workspace.yaml").read_text("utf-8").replace("4266", str(code_port)), "utf-8")
    (tmp_path / "password").write_text("kept by a file\n", "utf-8")
    with dg.DagsterInstance.ephemeral() as instance, desk_in(tmp_path, instance) as desk:
        environ = {
            **desk.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(wheel),
            "EVENTSYNC_STATE_URL": postgres.fresh_url(),
            "DAGSTER_HOME": str(home),
            "DAGSTER_POSTGRES_URL": postgres.fresh_url().replace("+psycopg:", "+psycopg2:"),
            "DAGSTER_CODE_HOST": "127.0.0.1",
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "PGPASSWORD_FILE": str(tmp_path / "password"),
            "CODE_PORT": str(code_port),
            "WEB_PORT": str(web_port),
        }
        desk.mapping()
        desk.source(line(number) for number in range(40))
        yield Deployment(desk, shell_environ(environ), code_port, web_port)


@contextmanager
def at_work(deployment: Deployment) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """All parts, in the order that the file asks for; the daemon is given time to get to its work."""
    parts: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        stack.callback(lambda: [stop(part) for part in parts.values()])
        parts["code"] = deployment.start("code")
        deployment.wait_for(parts["code"], deployment.code_port)
        parts |= {name: deployment.start(name) for name in ("webserver", "daemon")}
        deployment.wait_for(parts["webserver"], deployment.web_port)
        yield parts


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(part: subprocess.Popen[bytes]) -> int:
    """Tell a part's whole group to stop, as `docker stop` does; return its exit code."""
    if part.poll() is None:
        os.killpg(part.pid, signal.SIGTERM)
    return part.wait(timeout=60)


@pytest.mark.slow(about_s=35)
def test_a_run_is_submitted_worked_on_beside_the_code_and_ends_in_good_order_with_its_container(deployment: Deployment) -> None:
    desk = deployment.desk
    with at_work(deployment) as parts:
        written = {path.name for path in Path(deployment.environ["DAGSTER_HOME"]).iterdir()}
        assert written <= {"dagster.yaml", "workspace.yaml", "storage"}, "a container may write nothing else there"
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
