"""The processes that the demo and the UI start: a sandbox service; Dagster's code server, webserver and daemon."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import NamedTuple

import httpx

from mappings.errors import ConfigError, TransientError
from pipelines.before_serving import prepare_dagster_home
from pipelines.cli.output.console import Output
from pipelines.cli.reload import in_thread, watching
from pipelines.cli.reloader import read_folder_version
from pipelines.cli.webserver import Report, Webserver, note_path
from pipelines.logs import configure_logs
from pipelines.metrics import serving_metrics
from pipelines.run.signals import wait_to_be_stopped
from pipelines.settings import PACKAGED_FEEDS, Settings, read_settings
from state.private_files import make_private_folder

SANDBOX = "sandbox"


@contextmanager
def demo_service(folder: Path, feeds: Path | None = None) -> Iterator[tuple[RunningSandbox, Mapping[str, str]]]:
    """Empty the demo's folder and run a sandbox there; yield it with an environment that points to it and to `feeds`.

    Raises:
        ConfigError: the folder has other contents than a demo, or cannot be created.
    """
    home = folder.resolve()
    try:
        if home.exists() and any(home.iterdir()) and not (home / SANDBOX).is_dir():
            raise ConfigError(f"{home} is not empty and holds no demo", hint="choose an empty or new folder with --folder")
        shutil.rmtree(home, ignore_errors=True)
        make_private_folder(home)
    except OSError as error:
        raise ConfigError(f"{home} cannot be created: {error.strerror}", hint="choose another folder with --folder") from error
    with running_sandbox(home / SANDBOX) as sandbox:
        environ = {
            **os.environ,
            "EVENT_API_BASE_URL": sandbox.base_url,
            "EVENT_API_KEY": sandbox.api_key,
            "EVENTSYNC_FEEDS": str(feeds or PACKAGED_FEEDS),
            "EVENTSYNC_STATE_URL": f"sqlite:///{home / 'state.db'}",
            "EVENTSYNC_NAMESPACE": "demo",
            "DAGSTER_HOME": str(home / "dagster"),
        }
        prepare_dagster_home(home / "dagster")
        configure_logs(read_settings(environ, Path.cwd()))
        yield sandbox, environ


def leave_running(settings: Settings, environ: Mapping[str, str], wanted_port: int, lines: list[str]) -> int:
    """Run the Dagster UI until Ctrl-C, and reload it when mapping files change; print its address and further `lines`.

    Also serve the metrics if a port is configured for them.
    """
    output = Output()
    seen = read_folder_version(settings.feeds, settings.files)
    with ExitStack() as running:
        with output.progress("starting the Dagster UI", is_counted=False):
            url = running.enter_context(running_dagster(settings, environ, free_port(wanted_port), output.aside))
        output.note(f"\nThe Dagster UI:       {url}/", *lines)
        if settings.metrics_port is not None:
            configure_logs(settings)
            page = running.enter_context(serving_metrics(settings, "127.0.0.1", settings.metrics_port))
            output.note(f"For Prometheus:       {page}")
        note_path(settings).write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
        output.note(f"Feeds, watched:       {settings.feeds}", *map(str, seen.folder.broken), "Stop with Ctrl-C.")
        try:
            with watching(url, settings, seen.digest, output.note):
                wait_to_be_stopped()
        except KeyboardInterrupt:
            output.note("stopping")
        finally:
            note_path(settings).unlink(missing_ok=True)
    return 0


_STOP_S = 10.0
_LOOK_EVERY_S = 1.0
_CRASH_S = 10.0
"""A process that ends sooner after its start would do so again."""
SAY_S = 15.0
_WORKSPACE = """\
load_from:
  - grpc_server: {{socket: {socket}, location_name: "{location}"}}
"""
LONGEST_TEMPORARY = 60
"""Bytes of the temporary folder's path: that of a socket may have 103 on some systems, and ours lie in a folder of it."""


class RunningSandbox(NamedTuple):
    """The address of a running sandbox, and the secret of its default key."""

    base_url: str
    api_key: str


@contextmanager
def running_sandbox(folder: Path, port: int = 0) -> Iterator[RunningSandbox]:
    """Run a sandbox with its state in `folder` during the block; yield its address and key.

    Raises:
        TransientError: it did not start; its output is on stderr.
    """
    command = ["-m", "sandbox", "--port", str(port), "--state", str(folder)]
    with _running(command, {**os.environ, "PYTHONSAFEPATH": "1"}, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise TransientError("the sandbox did not start", hint="its error is printed above; is the port taken?")
        announced = json.loads(line)
        yield RunningSandbox(announced["base_url"], announced["api_key"])


@contextmanager
def running_dagster(settings: Settings, environ: Mapping[str, str], port: int, report: Report) -> Iterator[str]:
    """Run a Dagster code server, webserver and daemon during the block; yield the UI's address.

    Webserver and daemon share one code server: the feeds are loaded once, and both see a reload. It loads and runs what it is
    asked to, so it listens on a socket that only this user reaches, as does the server that it starts beside its other temporary
    files. None of them imports packages of the working folder, which may have the names of ours. However long they take to start
    is waited for, and reported every 15 s. Later one that ends, as if it was killed, is started again.

    Raises:
        TransientError: one of them ended before all had started.
    """
    home, location = settings.dagster_home, settings.location
    log_path, workspace, url = home / "dagster.log", home / "workspace.yaml", f"http://127.0.0.1:{port}"
    with _private_folder() as private, log_path.open("ab") as log, ExitStack() as children:
        code_socket = private / "code"
        workspace.write_text(_WORKSPACE.format(socket=json.dumps(str(code_socket)), location=location), encoding="utf-8")

        at_work = dict[tuple[str, ...], tuple[subprocess.Popen[bytes], float]]()
        safe = {"PYTHONSAFEPATH": "1", **environ, "TMPDIR": str(private)}

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = children.enter_context(_running([*command, "--log-level", "warning"], safe, stdout=log, stderr=log))
            at_work[command] = process, time.monotonic()
            return process

        def revive(is_over: Event) -> None:
            while not is_over.wait(_LOOK_EVERY_S):
                ended = {command: made for command, made in at_work.items() if made[0].poll() is not None}
                for command, (process, since) in ended.items():
                    del at_work[command]
                    is_crash = process.returncode > 0 and time.monotonic() - since < _CRASH_S
                    then = f"; see {log_path}, and start the UI again" if is_crash else ", and is started again"
                    report(f"a process of the Dagster UI has ended{then}: {' '.join(command)}")
                    if not is_crash:
                        start(*command)

        # One after another: two processes that create the storage of a new home at once fail. The code server is the first.
        module = ("-m", "pipelines.definitions", "--working-directory", str(Path(__file__).parents[2]))
        code = ("code-server", "start", *module, "--socket", str(code_socket), "--location-name", location)
        _wait_for(lambda: _is_open(code_socket), start(_program("dagster"), *code), log_path, report)
        # Ends the runs whose processes died with an earlier UI, before the daemon's ticks do so too.
        ending = children.enter_context(_running(["-m", "pipelines.before_serving"], safe, stdout=log, stderr=log))
        with httpx.Client(base_url=url, timeout=5.0, trust_env=False) as http:
            served = ("-h", "127.0.0.1", "-p", str(port), "-w", str(workspace))
            web, answers = start("-m", "pipelines.dagster_ui", *served), Webserver(http, location).is_there
            _wait_for(lambda: ending.poll() is not None and answers(), web, log_path, report)
        start(_program("dagster-daemon"), "run", "-w", str(workspace))
        with in_thread("dagster-processes", revive):
            yield url


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a folder that only this user can enter, with a path short enough for sockets in it; remove it after the block."""
    is_short = len(os.fsencode(tempfile.gettempdir())) < LONGEST_TEMPORARY
    with tempfile.TemporaryDirectory(prefix="eventsync-", dir=None if is_short else "/tmp", ignore_cleanup_errors=True) as folder:  # noqa: S108  # a new one
        yield Path(folder)


def _is_open(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def free_port(preferred: int) -> int:
    """Return the preferred loopback port, or a free one if it is taken."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise TransientError("no loopback port is free")


def _wait_for(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, report: Report) -> None:
    started, reports = time.monotonic(), 0
    while not is_there():
        if process.poll() is not None:
            raise TransientError(f"the Dagster UI did not start; its log is {log}")
        if time.monotonic() - started > (reports + 1) * SAY_S:
            reports += 1
            report(f"Dagster is still starting after {reports * SAY_S:.0f} s; its log is {log}")
        time.sleep(0.2)  # noqa: TID251  # another process: only polling shows its state


@contextmanager
def _running(words: list[str], environ: Mapping[str, str], **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Python program in its own session, so that Ctrl-C reaches only us; stop it when the block ends, or when we die."""
    command = [sys.executable, "-m", "pipelines.cli.with_parent", *words]
    with subprocess.Popen(command, env=dict(environ), start_new_session=True, stdin=subprocess.PIPE, **streams) as process:  # type: ignore[call-overload]  # noqa: S603  # our own programs
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
