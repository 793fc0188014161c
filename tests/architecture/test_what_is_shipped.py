"""What no linter asks of modules and the files beside them, and pinned versions against known advisories (`make audit`)."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from architecture.places import MODULES, ROOMS, ROOT, called

from pipelines.orchestration.names import LOCATION

LOCKS = ("requirements.lock", "requirements-test.lock")
IMAGE = "deploy/requirements.lock"
LONGEST = 600
PYPROJECT: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TOOLS = PYPROJECT["tool"]


def _requirements(name: str) -> list[str]:
    """Each requirement of a lock file on one line."""
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def _called(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_nothing_in_pyproject_shadows_the_workspace_file() -> None:
    assert not {"dagster", "dg"} & TOOLS.keys()


def test_the_workspace_file_names_the_location_that_launches_ask_for() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))
    (place,) = workspace["load_from"]
    assert place["python_module"]["location_name"] == LOCATION
    assert place["python_module"]["module_name"] == "pipelines.definitions"


@pytest.mark.parametrize("name", [*LOCKS, IMAGE])
def test_every_locked_requirement_is_pinned_and_hashed_and_none_names_an_address_or_a_path(name: str) -> None:
    pinned = r"[a-z0-9._-]+(\[[a-z0-9,._-]+\])?==[^\s;]+( ;.*?)?\s+--hash=sha256:[0-9a-f]{64}"
    requirements = _requirements(name)
    assert len(requirements) > 30
    assert [one for one in requirements if not re.match(pinned, one)] == []
    elsewhere = r"://|file:|\s@\s|^\s*-(e|i|f|r)\b|--(index|extra-index|find-links|trusted)|(^|\s)[./~]+/"
    assert not re.search(elsewhere, (ROOT / name).read_text("utf-8"), re.MULTILINE)


def _pins(name: str) -> dict[str, str]:
    return {_called(one): re.sub(r"\[.*?\]", "", one.split()[0]) for one in _requirements(name)}


def test_the_locks_hold_what_the_project_asks_for_in_the_versions_that_are_tried() -> None:
    project = PYPROJECT["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    locked, tested, image = map(_pins, (*LOCKS, IMAGE))
    asked = [*project["dependencies"], *extras["sheets"], *extras["salesforce"]]
    assert {_called(one) for one in asked} <= locked.keys()
    assert {_called(one) for one in (*extras["test"], *extras["docs"])} <= tested.keys()
    assert locked.items() <= tested.items()
    assert locked.items() <= image.items()
    assert {_called(one) for name, some in extras.items() if name not in {"test", "docs"} for one in some} <= image.keys()


def test_continuous_integration_runs_what_people_run_and_no_test_without_a_browser() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    for line in ("^make test$", r"apt-get install .*\\\n.* chromium ", "^export EVENTSYNC_TEST_BROWSER=required$"):
        assert re.search(line, path.read_text("utf-8"), re.MULTILINE), line


def test_every_room_is_installed() -> None:
    assert set(TOOLS["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(ROOMS)


def test_no_secret_and_no_state_is_kept_in_the_repository() -> None:
    ignored = {name.strip("/") for name in (ROOT / ".gitignore").read_text("utf-8").split()}
    assert {".env", ".eventsync", ".venv"} <= ignored


def test_every_module_can_be_read_at_one_go() -> None:
    assert [called(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > LONGEST] == []


def test_an_init_holds_nothing_but_its_caption() -> None:
    inits = {called(path): ast.parse(path.read_text("utf-8")).body for path in MODULES if path.name == "__init__.py"}
    assert len(inits) >= len(ROOMS)
    assert [name for name, body in inits.items() if [type(one) for one in body] != [ast.Expr]] == []


ADVISORIES = """
as_of = 2026-11-01
source = "a test"
advisories = [{ package = "Python_Multipart", affected = "<0.0.22", id = "GHSA-wp53-j4wj-2cfg", summary = "files anywhere" }]
"""
LOCK = "idna==3.20 \\\n    --hash=sha256:00\npython-multipart=={} ; sys_platform == 'linux' \\\n    --hash=sha256:01\n"


def audited(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, ROOT / "deploy" / "audit.py", "--offline", "--today", "2026-11-22", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("version", "is_affected"), [("0.0.9", True), ("0.0.21", True), ("0.0.22", False)])
def test_a_pinned_version_that_an_advisory_names_ends_the_audit_with_1(tmp_path: Path, version: str, is_affected: bool) -> None:
    (tmp_path / "list.toml").write_text(ADVISORIES, "utf-8")
    (tmp_path / "some.lock").write_text(LOCK.format(version), "utf-8")
    code, said = audited("--advisories", tmp_path / "list.toml", tmp_path / "some.lock")
    assert (code, "GHSA-wp53-j4wj-2cfg" in said) == (int(is_affected), is_affected), said
    assert "list.toml: 1 advisories of 2026-11-01, 21 days old; a test" in said


def test_no_version_of_the_lock_files_is_named_by_a_known_advisory() -> None:
    assert audited()[0] == 0, audited()
