"""Pressing Tab: feeds, runs, brakes, states and waiting rows complete; whatever is wrong, the shell is told nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit.cli.conftest import ROWS, Desk

IN_BASH = """\
eval "$(_EVENTSYNC_COMPLETE=source_bash eventsync)"
COMP_WORDS=(eventsync run ""); COMP_CWORD=2
_eventsync_completion eventsync
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _offered(desk: Desk, *words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    with desk.monkeypatch.context() as patch:
        patch.setenv("_EVENTSYNC_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", " ".join(["eventsync", *words]))
        patch.setenv("COMP_CWORD", str(len(words)))
        said = desk.run()
    assert (said.code, said.err) == (0, "")
    return said.out.split()


def _told(desk: Desk, words: str) -> str:
    """What zsh is told, meanings included."""
    with desk.monkeypatch.context() as patch:
        patch.setenv("_EVENTSYNC_COMPLETE", "complete_zsh")
        patch.setenv("_TYPER_COMPLETE_ARGS", f"eventsync {words}")
        return desk.run().out


def test_feeds_complete_wherever_one_is_meant_also_a_broken_file_by_its_name(desk: Desk) -> None:
    (desk.folder / "feeds" / "_shared.yaml").write_text("zones: {}\n", "utf-8")
    desk.mapping("feed: 'kept-name'\nsource: [", "odd.yaml")
    desk.mapping(": : :", "worse.yaml")
    for verb in ("run", "check", "preview", "explain", "status", "rows", "diff", "retry", "reconcile"):
        assert _offered(desk, verb, "") == ["kept-name", "town-hall", "worse"]
        assert _offered(desk, verb, "to") == ["town-hall"]


def test_runs_complete_by_their_ids_and_tell_how_they_ended(desk: Desk) -> None:
    with desk.service():
        run_id = desk.sync()["run_id"]
        assert _offered(desk, "runs", "") == [run_id]
        assert _offered(desk, "runs", run_id[:6]) == [run_id]
        assert _offered(desk, "runs", "--feed", "town-hall", "") == [run_id]
        assert _offered(desk, "runs", "--feed", "town-") == ["town-hall"]
        assert "town-hall, " in _told(desk, "runs ")


def test_rows_that_somebody_may_decide_about_complete_by_their_keys(desk: Desk) -> None:
    with desk.service():
        desk.sync()
        assert _offered(desk, "resolve", "town-hall", "") == [], "rejected rows are mended in their source"
        desk.source(ROWS[:-1])
        desk.sync()
        assert _offered(desk, "resolve", "town-hall", "") == ["6"]
        assert _offered(desk, "diff", "town-hall", "6") == ["6"]
        assert "vanished" in _told(desk, "resolve town-hall ")


def test_brakes_and_states_complete_brakes_one_after_the_other(desk: Desk) -> None:
    brakes = ["rejected", "shrink", "left_out", "new", "copies", "scope", "keys"]
    assert _offered(desk, "run", "town-hall", "--accept", "") == brakes
    assert _offered(desk, "run", "town-hall", "--accept", "rejected,s") == ["rejected,shrink", "rejected,scope"]
    assert "Not more rejected rows" in _told(desk, "run town-hall --accept re")
    assert _offered(desk, "rows", "town-hall", "--state", "re") == ["refused", "rejected", "resent"]
    assert "waits for a person" in _told(desk, "rows town-hall --state refu")


def test_nothing_at_hand_is_nothing_to_offer_and_nothing_is_made(desk: Desk) -> None:
    shutil.rmtree(desk.folder / "feeds")
    for words in (["runs"], ["run"], ["resolve", "town-hall"]):
        assert _offered(desk, *words, "") == []
    assert list(desk.folder.iterdir()) == [desk.folder / "events.csv"]


def test_what_cannot_be_opened_is_told_when_the_command_is_run_not_while_it_is_typed(desk: Desk) -> None:
    desk.state.parent.mkdir()
    desk.state.write_bytes(b"no database at all, whatever its name says" * 100)
    assert _offered(desk, "runs", "") == []
    desk.monkeypatch.setenv("EVENTSYNC_LOG", "loud")
    assert _offered(desk, "run", "") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.usefixtures("desk")
def test_a_real_bash_completes_the_installed_command() -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = subprocess.run(["bash", "--norc", "-c", IN_BASH], env=env, capture_output=True, text=True, check=False)
    assert (shell.stdout.split(), shell.stderr) == (["town-hall"], "")


@pytest.mark.usefixtures("desk")
def test_the_command_has_one_name_however_python_was_started() -> None:
    module = [sys.executable, "-m", "pipelines.cli"]
    asked = {**os.environ, "_EVENTSYNC_COMPLETE": "complete_bash", "COMP_WORDS": "eventsync run ", "COMP_CWORD": "2"}
    completed = subprocess.run(module, env=asked, capture_output=True, text=True, check=False)
    assert (completed.stdout.split(), completed.stderr) == (["town-hall"], "")
    usage = subprocess.run([*module, "run", "--help"], env=dict(os.environ), capture_output=True, text=True, check=True)
    assert "Usage: eventsync run" in usage.stdout
