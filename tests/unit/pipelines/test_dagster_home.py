"""Dagster's home: made once, brought up to date while it is ours alone, and never taken from whoever has written into it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipelines.before_serving import DAGSTER_YAML, FORMER, missing_settings, prepare_dagster_home

WRITTEN = "b7fc8f093d2eadd2299797cb171947d7494c083f94a5adf50c9be73a6dbc8d20"
ADDED = ("schedules:", "sensors:", "freshness:")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")  # is put back after each test


def former() -> str:
    """What the first version wrote."""
    lines = (line for line in DAGSTER_YAML.splitlines(keepends=True) if not line.startswith(ADDED))
    return "".join(lines).replace("  # only runs that ask for it by a tag: dagster/max_retries", "")


def settings(home: Path, text: str) -> Path:
    home.mkdir()
    (home / "dagster.yaml").write_text(text, "utf-8")
    return home / "dagster.yaml"


def test_a_text_that_is_changed_leaves_its_digest_behind() -> None:
    ours = hashlib.sha256(DAGSTER_YAML.encode()).hexdigest()
    assert (ours, ours in FORMER) == (WRITTEN, False), f"put {WRITTEN} into FORMER: homes that have it are brought up to date"


def test_a_home_is_made_with_all_settings(tmp_path: Path) -> None:
    prepare_dagster_home(tmp_path / "home")
    assert (tmp_path / "home" / "dagster.yaml").read_text("utf-8") == DAGSTER_YAML
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["dagster.yaml"]
    assert missing_settings(tmp_path / "home") == ()


def test_what_an_earlier_version_wrote_is_brought_up_to_date(tmp_path: Path) -> None:
    file = settings(tmp_path / "home", former())
    assert missing_settings(file.parent) == ("schedules", "sensors", "freshness")
    prepare_dagster_home(file.parent)
    assert file.read_text("utf-8") == DAGSTER_YAML


@pytest.mark.parametrize("text", [former() + "\n# ours\n", "telemetry: {enabled: true}\n", ""])
def test_what_somebody_has_written_is_theirs_and_what_it_lacks_is_named(tmp_path: Path, text: str) -> None:
    file = settings(tmp_path / "home", text)
    prepare_dagster_home(file.parent)
    assert file.read_text("utf-8") == text
    assert {"schedules", "sensors", "freshness"} <= set(missing_settings(file.parent))


def test_without_a_home_nothing_is_lacking(tmp_path: Path) -> None:
    assert missing_settings(tmp_path / "home") == ()
