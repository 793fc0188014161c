"""What a code server finds when it starts: Dagster's home and storage made, no dead run of a predecessor, or what is wrong."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import dagster as dg
import psutil
import pytest

from pipelines.before_serving import DAGSTER_YAML, FORMER, main, missing_settings, prepare_dagster_home
from pipelines.orchestration.workers import process_tags

WRITTEN = "b7fc8f093d2eadd2299797cb171947d7494c083f94a5adf50c9be73a6dbc8d20"
ADDED = ("schedules:", "sensors:", "freshness:")
FIRST = "".join(one for one in DAGSTER_YAML.splitlines(keepends=True) if not one.startswith(ADDED)).replace(
    "  # only runs that ask for it by a tag: dagster/max_retries", ""
)
"""What the first version wrote."""


@dg.job
def sync() -> None:
    """Does nothing."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path / "dagster"


def test_a_text_that_is_changed_leaves_its_digest_behind() -> None:
    ours = hashlib.sha256(DAGSTER_YAML.encode()).hexdigest()
    assert (ours, ours in FORMER) == (WRITTEN, False), f"put {WRITTEN} into FORMER: homes that have it are brought up to date"


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [(None, True), (FIRST, True), (FIRST + "\n# ours\n", False), ("telemetry: {enabled: true}\n", False), ("", False)],
    ids=["none", "of an earlier version", "changed by a person", "written by a person", "empty"],
)
def test_settings_are_made_or_brought_up_to_date_unless_a_person_has_written_them(
    home: Path, text: str | None, is_ours: bool
) -> None:
    assert missing_settings(home) == ()
    if text is not None:
        home.mkdir()
        (home / "dagster.yaml").write_text(text, "utf-8")
        assert {"schedules", "sensors", "freshness"} <= set(missing_settings(home))
    prepare_dagster_home(home)
    assert (home / "dagster.yaml").read_text("utf-8") == (DAGSTER_YAML if is_ours else text)
    assert [path.name for path in home.iterdir()] == ["dagster.yaml"]
    assert (missing_settings(home) == ()) is is_ours


def test_a_run_of_a_predecessor_of_the_same_host_is_ended_and_one_at_work_is_left_alone(home: Path) -> None:
    assert main() == 0
    alive = process_tags()
    born_later = {**alive, "eventsync/process_started": f"{psutil.Process().create_time() - 1000:.2f}"}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for tags in (alive, born_later):
            instance.create_run_for_job(sync, tags={"eventsync/feed": "town-hall", **tags}, status=dg.DagsterRunStatus.STARTED)
        assert main() == 0
        ended = [run.status for run in instance.get_runs()]
    assert ended == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED]


def test_an_environment_that_cannot_serve_is_told_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENT_API_KEY_FILE", "nowhere")
    assert main() == 2
    assert "EVENT_API_KEY_FILE: cannot read" in capsys.readouterr().err
    assert not home.exists()
    assert "EVENT_API_KEY" not in os.environ
