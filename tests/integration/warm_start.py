"""A process that imports the command line once, and forks a real process for every command that it is told of: what a
test waits for is the command, not Python's imports. `desk` gives the orders, one JSON line each on stdin.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pipelines.cli
from connectors.notify import require_library
from pipelines.cli.app import main
from state.opening import open_database

_WITH_DAGSTER = ("pipelines.definitions", "pipelines.launcher")


def serve() -> None:
    """Announces itself with a line on stdout, then forks until stdin ends."""
    for module in walk_packages(pipelines.cli.__path__, "pipelines.cli."):
        import_module(module.name)
    for driver in ("sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg", "psycopg"):
        import_module(driver)
    with tempfile.TemporaryDirectory() as folder:  # what makes its tables is imported by then
        open_database(f"sqlite:///{folder}/state.db").dispose()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a command would look at all this, and copy the pages on which it stands
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        if order["words"][0] in {"run", "demo", "backfill"} and "--no-dagster" not in order["words"]:
            for module in _WITH_DAGSTER:  # seconds, of which only the first such command has to wait
                import_module(module)
        if "EVENTSYNC_NOTIFY" in order["env"]:
            require_library()  # likewise
        if os.fork() == 0:
            _shepherd(order)


def _shepherd(order: dict[str, Any]) -> None:
    """Start the command, write down its process id, wait for it, write down how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        _become_the_command(order)
    _write(Path(order["pid"]), pid)
    _, status = os.waitpid(pid, 0)
    _write(Path(order["code"]), os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become_the_command(order: dict[str, Any]) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a terminal's commands hear it; a background job was born without
    for number, name, how in ((0, os.devnull, os.O_RDONLY), (1, order["out"], os.O_WRONLY), (2, order["err"], os.O_WRONLY)):
        os.dup2(os.open(name, how | os.O_CREAT, 0o600), number)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["eventsync", *order["words"]]
    code = 0
    try:
        main()
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException:  # noqa: BLE001  # what Python itself would do: tell, and end with 1
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _write(path: Path, number: int) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(str(number), "ascii")
    beside.rename(path)


if __name__ == "__main__":
    serve()
