"""What a code server finds when it starts: Dagster's home and storage made, no run of a predecessor at work, or what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import psutil
import pytest

from pipelines.before_serving import main
from pipelines.launcher import process_tags


@dg.job
def sync() -> None:
    """Does nothing."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path / "dagster"


def statuses(home: Path) -> list[dg.DagsterRunStatus]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return [run.status for run in instance.get_runs()]


def test_a_home_is_made_with_the_settings_of_a_sync_worker(home: Path) -> None:
    assert main() == 0
    assert "PidCheckingRunLauncher" in (home / "dagster.yaml").read_text("utf-8")
    assert statuses(home) == []


def test_a_run_of_a_predecessor_of_the_same_host_is_ended_and_one_at_work_is_left_alone(home: Path) -> None:
    assert main() == 0
    alive = process_tags()
    born_later = {**alive, "eventsync/process_started": f"{psutil.Process().create_time() - 1000:.2f}"}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for tags in (alive, born_later):
            instance.create_run_for_job(sync, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert main() == 0
    assert statuses(home) == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED]


def test_an_environment_that_cannot_serve_is_told_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENT_API_KEY_FILE", "nowhere")
    assert main() == 2
    assert "EVENT_API_KEY_FILE: cannot read" in capsys.readouterr().err
    assert not home.exists()
    assert "EVENT_API_KEY" not in os.environ
