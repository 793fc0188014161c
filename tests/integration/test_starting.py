"""A command's first moments: what it imports, what a terminal shows meanwhile, and Ctrl-C then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from integration.desk import FEED, Desk, line, lines
from integration.service import Service
from terminal import CTRL_C, at_a_terminal

from pipelines.clock import now

IMPORTED = """\
import sys
from pipelines.cli.entry import main
try:
    main()
except SystemExit as left:
    print("left with", left.code, file=sys.stderr)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""
ELSEWHERE = {"dagster", "alembic", "gspread", "google.auth", "simple_salesforce", "fsspec", "paramiko"}
ELSEWHERE |= {"psycopg", "sandbox"}
"""What most feeds never need."""
SELDOM = {"markdown_it", "charset_normalizer", "pipelines.definitions", "uvicorn"}
NETWORK = {"aiohttp", "connectors.event_api.delivery"}
BOOKS = {"sqlalchemy", "sqlmodel", "state.database"}
NOT_NEEDED = {
    "check": ELSEWHERE | SELDOM | NETWORK | BOOKS | {"structlog", "pipelines.run.context"},
    "preview": ELSEWHERE | SELDOM | {"pipelines.run.stage"},
    "status": ELSEWHERE | SELDOM | NETWORK | {"pipelines.run.context"},
    "rows": ELSEWHERE | SELDOM | NETWORK | {"pipelines.run.context"},
    "run": ELSEWHERE | SELDOM,
}
MORE = {"rows": ("--state", "delivered"), "run": ("--no-dagster",)}


def test_a_command_imports_only_what_it_needs(desk: Desk) -> None:
    desk.run_with(lines(3), code=0)
    for verb, not_needed in NOT_NEEDED.items():
        words = [verb, FEED, "--json", *MORE.get(verb, ())]
        ended = subprocess.run(
            [sys.executable, "-c", IMPORTED, *words], cwd=desk.folder, env=desk.env, capture_output=True, text=True, check=False
        )
        assert "left with 0" in ended.stderr, (verb, ended.stderr)
        assert set(ended.stderr.splitlines()) & not_needed == set(), verb


INTERRUPT_WHILE_IMPORTING = """\
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
SCRIPT, MODULE = [str(Path(sys.executable).with_name("eventsync"))], [sys.executable, "-m", "pipelines.cli"]


def _interrupted(words: list[str], module: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that gets SIGINT in the moment in which it asks for `module`."""
    (folder / "sitecustomize.py").write_text(INTERRUPT_WHILE_IMPORTING, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(folder), "INTERRUPTED_AT": module}
    return subprocess.run(words, capture_output=True, text=True, env=env, cwd=folder, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "module"),
    [
        ([*SCRIPT, "--help"], "pipelines.cli.app"),
        ([*SCRIPT, "run", "town-hall"], "typer"),
        ([*MODULE, "run", "--help"], "typer"),
        ([*MODULE, "run", "--help"], "rich.markdown"),
        ([*MODULE, "run", "town-hall"], "pipelines.cli.app"),
    ],
)
def test_a_command_that_is_still_imported_or_just_lays_out_its_help_ends_silently(
    words: list[str], module: str, tmp_path: Path
) -> None:
    ended = _interrupted(words, module, tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert ended.stdout == "" or module == "rich.markdown"


@pytest.mark.parametrize("module", ["pipelines.cli.run", "sqlalchemy.orm.interfaces", "yaml.cyaml", "asyncio.events"])
def test_a_verb_that_has_begun_says_that_nothing_is_lost_whatever_it_was_importing(module: str, tmp_path: Path) -> None:
    ended = _interrupted([*MODULE, "run", "town-hall", "--json"], module, tmp_path)
    assert ended.returncode == 130, ended.stderr
    assert ("the state is intact" in ended.stderr, "Traceback" in ended.stderr) == (True, False)
    assert json.loads(ended.stdout)["error"]["type"] == "InterruptedRunError"


def _interrupted_at_the_start(desk: Desk, *words: str) -> str:
    """Start a command as a person does, press Ctrl-C where it says what it waits for; return what the terminal showed."""
    env = {**desk.env, "TERM": "xterm", "COLUMNS": "100"}
    code, seen = at_a_terminal(words, desk.folder, env, [("starting Dagster", CTRL_C)])
    assert code == 130, seen
    return seen


@pytest.mark.slow
def test_a_run_says_that_it_waits_for_dagster_and_ctrl_c_ends_it_then(desk: Desk, service: Service) -> None:
    desk.source(lines(3))
    said = _interrupted_at_the_start(desk, "run", FEED)
    assert "running" not in said, "it is heard at once"
    assert "the state is intact" in said
    assert "Traceback" not in said
    assert service.titles() == []


@pytest.mark.slow
def test_a_backfill_that_is_interrupted_so_early_leaves_its_slice_to_the_next(desk: Desk, service: Service) -> None:
    days = [str(now().date() + timedelta(days=number)) for number in (40, 41, 42)]
    desk.source(line(number, day=day) for number, day in enumerate(days))
    _interrupted_at_the_start(desk, "backfill", FEED, "--from", days[0], "--to", days[-1], "--by", "event")
    assert service.titles() == []
    (backfill,) = desk.command("backfill", FEED, "--list", "--json").document["backfills"]
    assert backfill["left"] == len(backfill["slices"])
    assert {one["state"] for one in backfill["slices"]} == {"left"}
    desk.command("backfill", FEED, "--resume", "--no-dagster", code=0)
    assert len(service.titles()) == 3


def test_a_run_works_whatever_standard_streams_its_caller_has_closed(desk: Desk, service: Service) -> None:
    desk.source(lines(60))
    desk.mapping(name="other.yaml", feed="other", title='{join: [{from: TITLE}, " again"]}', zone="Europe/London")
    run = f"{Path(sys.executable).with_name('eventsync')} run --all --no-dagster --json --jobs 2 <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", run], cwd=desk.folder, env=desk.env, check=False).returncode == 0
    assert service.outcomes() == {"created": 120}
