"""The sandbox as a process and as a thread: starting, stopping, surviving, and breaking connections on purpose."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from unit.sandbox.bench import EVENTS, Event, Open

from sandbox.server import Address, running, serve
from sandbox.store import StateInUseError
from sandbox.switches import Switches, parse_switches

Spawn = Callable[..., tuple[subprocess.Popen[str], httpx.Client]]


def opened(base_url: str, headers: dict[str, str] | None = None) -> httpx.Client:
    return httpx.Client(base_url=base_url, headers=headers, trust_env=False, verify=False, timeout=60)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    processes = []

    def spawned(*arguments: object) -> tuple[subprocess.Popen[str], httpx.Client]:
        process = subprocess.Popen([sys.executable, "-m", "sandbox", *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        said = json.loads(process.stdout.readline())
        assert said["pid"] == process.pid
        return process, opened(said["base_url"], {"Authorization": f"Bearer {said['api_key']}"})

    yield spawned
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_no_acknowledged_event_is_lost_to_a_kill(spawn: Spawn, tmp_path: Path, event: Event) -> None:
    options = ("--state", tmp_path / "state", "--key", "one-key", "--rate", "1000/s", "--set", "rate_burst=1000")
    process, http = spawn(*options)
    with http, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: http.post(EVENTS, json=event, headers={"Idempotency-Key": f"k{n}"}), range(60)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, http = spawn(*options)
    with http:
        stored = http.get("/_sandbox/events").json()["events"]
        again = http.post(EVENTS, json=event, headers={"Idempotency-Key": "k7"})
    assert {answer.json()["doc"]["id"] for answer in answers} == {one["id"] for one in stored}
    assert again.content == answers[7].content


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_good_order(spawn: Spawn, number: signal.Signals) -> None:
    process, http = spawn()
    with http:
        assert http.get("/api/public/v1/channels").status_code == 200
        process.send_signal(number)
        assert process.wait(timeout=60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("--set", "latency=5"), "did you mean `latency_ms`?"), (("--rate", "fast"), "rate such as"), (("--host", "192.0.2.1"), "")],
)
def test_what_cannot_be_started_says_why_and_exits_with_2(arguments: tuple[str, ...], says: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "sandbox", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_was_created_switched_off_and_used_survives_a_restart(open_bench: Open, tmp_path: Path, event: Event) -> None:
    before = open_bench(state=tmp_path)
    first = before.create(event, key="k1")
    before.admin("keys/reader/state", {"state": "revoked"})
    before.allow("members-only", allowed=True)
    before.close()
    after = open_bench(state=tmp_path)
    assert after.create(event, key="k1").content == first.content
    assert after.create(event | {"channelId": 105}).json()["doc"]["id"] > first.json()["doc"]["id"]
    assert after.get("channels", "sandbox-key-reader").status_code == 401


def test_another_secret_for_the_default_key_replaces_the_old_one(open_bench: Open, tmp_path: Path) -> None:
    open_bench(state=tmp_path, secret="old-secret").close()
    bench = open_bench(state=tmp_path, secret="new-secret")
    assert [bench.get("channels", key).status_code for key in ("old-secret", "new-secret")] == [401, 200]


def test_two_sandboxes_cannot_share_a_state_folder(open_bench: Open, tmp_path: Path) -> None:
    open_bench(state=tmp_path)
    with pytest.raises(StateInUseError, match="in use by another sandbox"):
        open_bench(state=tmp_path)


def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(Address("127.0.0.1", taken.getsockname()[1]), tmp_path, Switches())


def test_an_announcement_does_not_show_the_key_by_accident() -> None:
    with running(None, Switches(), "do-not-show-this") as announced:
        assert "do-not-show-this" not in repr(announced)
        with opened(announced.base_url) as http:
            assert http.get("/").status_code == 200


def test_faults_are_the_same_in_every_run_and_a_retry_gets_past_them(event: Event) -> None:
    switches = parse_switches(["fault_per_mille=600", "faults=error_500+error_503+html+empty", "fault_seed=5"])
    headers, runs = {"Authorization": "Bearer k", "Idempotency-Key": "k1"}, []
    for _ in range(2):
        with running(None, switches, "k") as announced, opened(announced.base_url) as http:
            runs.append([http.post(EVENTS, json=event, headers=headers).status_code for _ in range(12)])
    assert runs[0] == runs[1]
    assert {201, 500} <= set(runs[0])


def test_a_client_that_leaves_before_its_body_is_whole_does_no_harm(event: Event) -> None:
    lines = ("POST /api/public/v1/events HTTP/1.1", "Host: x", "Authorization: Bearer k", "Content-Type: application/json")
    head = "\r\n".join((*lines, "Content-Length: 99", "", "{")).encode()
    with running(None, Switches(), "k") as announced, opened(announced.base_url) as http:
        host, port = announced.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head)
        assert http.post(EVENTS, json=event, headers={"Authorization": "Bearer k"}).status_code == 201
        outcomes = [one["outcome"] for one in http.get("/_sandbox/requests").json()["requests"]]
    assert outcomes.count("created") == 1
    assert set(outcomes) <= {"created", "refused"}
