"""Ctrl-C in the first moments of a command, while its modules are still imported: nothing is said, and the exit code is 130."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPT_WHILE_IMPORTING = """\
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
COMMANDS = {"script": [str(Path(sys.executable).with_name("eventsync"))], "module": [sys.executable, "-m", "pipelines.cli"]}


def _interrupted(words: list[str], module: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that gets SIGINT in the moment in which it asks for `module`."""
    (folder / "sitecustomize.py").write_text(INTERRUPT_WHILE_IMPORTING, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(folder), "INTERRUPTED_AT": module}
    return subprocess.run(words, capture_output=True, text=True, env=env, cwd=folder, timeout=60, check=False)


@pytest.mark.parametrize(
    ("command", "words", "module"),
    [
        ("script", ["--help"], "pipelines.cli.app"),
        ("script", ["run", "town-hall"], "typer"),
        ("module", ["run", "--help"], "typer"),
        ("module", ["run", "town-hall"], "pipelines.cli.app"),
    ],
)
def test_a_command_that_is_still_imported_ends_silently(command: str, words: list[str], module: str, tmp_path: Path) -> None:
    ended = _interrupted([*COMMANDS[command], *words], module, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_help_that_is_just_being_laid_out_ends_silently(tmp_path: Path) -> None:
    ended = _interrupted([*COMMANDS["module"], "run", "--help"], "rich.markdown", tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.parametrize("module", ["pipelines.cli.run", "sqlalchemy.orm.interfaces", "yaml.cyaml", "asyncio.events"])
def test_a_verb_that_has_begun_says_that_nothing_is_lost_whatever_it_was_importing(module: str, tmp_path: Path) -> None:
    ended = _interrupted([*COMMANDS["module"], "run", "town-hall", "--json"], module, tmp_path)
    assert ended.returncode == 130, ended.stderr
    assert "the state is intact" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stdout)["error"]["type"] == "InterruptedRunError"
