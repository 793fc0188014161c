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
