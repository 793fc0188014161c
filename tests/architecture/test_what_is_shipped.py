"""What no linter asks of modules and the files beside them, pinned versions (`make audit`), and the bench's own promises."""

from __future__ import annotations

import ast
import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from architecture.places import ROOT

from pipelines.settings import read_settings

ROOMS = ("eventsync", "pipelines", "connectors", "mappings", "state", "sandbox")
MODULES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
LOCKS = ("requirements.lock", "requirements-test.lock")
IMAGE = "deploy/requirements.lock"
CELERY = "deploy/celery/requirements.lock"
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
    assert place["python_module"]["location_name"] == read_settings({}, Path.cwd()).location
    assert place["python_module"]["module_name"] == "pipelines.definitions"


@pytest.mark.parametrize("name", [*LOCKS, IMAGE, CELERY])
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
    locked, tested, image, celery = map(_pins, (*LOCKS, IMAGE, CELERY))
    asked = [*project["dependencies"], *extras["sheets"], *extras["salesforce"]]
    assert {_called(one) for one in asked} <= locked.keys()
    assert {_called(one) for one in (*extras["test"], *extras["docs"])} <= tested.keys()
    assert locked.items() <= tested.items()
    assert locked.items() <= image.items()
    assert {name: celery[name] for name in celery.keys() & image.keys()}.items() <= image.items()
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
    assert [name for name, text in MODULES.items() if len(text.splitlines()) > LONGEST] == []


def test_an_init_holds_nothing_but_its_caption() -> None:
    door = "eventsync/__init__.py"
    inits = {name: ast.parse(text).body for name, text in MODULES.items() if name.endswith("__init__.py") and name != door}
    assert len(inits) >= len(ROOMS) - 1
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


_BENCH = ROOT / "benchmarks"
_README = (_BENCH / "README.md").read_text("utf-8")


def _python(code: str, *words: str) -> str:
    """What a piece of code prints that imports the bench's modules, which are on no path of ours."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=_BENCH, check=True, capture_output=True, text=True).stdout


def test_the_readme_names_each_measurement_and_modules_that_exist() -> None:
    known = sorted(_python("import bench; print(*bench.MEASURES)").split())
    assert known == sorted(_python("import bench; print(*bench.READ)").split())
    assert known == sorted(path.stem for path in (_BENCH / "measures").glob("*.py") if path.stem != "memory")
    assert [name for name in known if f"`measures/{name}.py`" not in _README] == []
    listed = "\n".join(line for line in _README.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`((?:measures/|peers/)?\w+\.py)`", listed))
    assert len(named) > 15
    assert sorted(name for name in named if not any((_BENCH / folder / name).exists() for folder in ("", "peers"))) == []


def test_rows_are_written_as_their_cells_say(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    code = """
import json, sys
from pathlib import Path
import rows
rows.write_rows(Path(sys.argv[1]), 3000, edition=7, edited=20, is_shuffled=True)
print(json.dumps([rows.cells(number) for number in range(3000)]))
"""
    plain = {cells[0]: cells for cells in ast.literal_eval(_python(code, str(target)))}
    with target.open(newline="", encoding="utf-8") as source:
        _, *written = csv.reader(source)
    edited = [cells for cells in written if cells != plain[cells[0]]]
    assert sorted(cells[0] for cells in written) == sorted(plain)
    assert len(edited) == 20
    assert all(cells[1].endswith(", edition 7") for cells in edited)


def test_a_page_names_first_what_is_missed_and_draws_what_it_shows(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from xml.etree import ElementTree as ET
import page
from outcome import Bar, Line, Plot, Result, Standing, unjudged

lines = [Line(n, f"what {n}", "", "9 us", "", "8 us", s) for n, s in (("10", Standing.MET), ("5", Standing.MISSED))]
result = Result(tuple(lines), (), (Plot("small", "A <title>", "us", (Bar("ours", 9, is_ours=True), Bar("theirs", 20)), 8),))
page.write(Path(sys.argv[1]) / "judged", [result], ["A machine."])
page.write(Path(sys.argv[1]) / "few", [unjudged(result)], ["A machine."])
"""
    _python(code, str(tmp_path))
    judged, few = ((tmp_path / name / "performance.md").read_text("utf-8") for name in ("judged", "few"))
    assert "**1 of 2 budgets are met.**" in judged
    assert "* Missed: 5, what 5: 9 us; the budget is 8 us." in judged
    assert judged.index("| 5 |") < judged.index("| 10 |")
    assert "Missed" not in few
    assert "budgets are met" not in few
    drawn = ET.parse(tmp_path / "judged" / "plots" / "small.svg").getroot()
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A <title> (us)", "ours", "theirs", "budget 8 us", "eventsync"} <= set(texts)
    assert "![A <title>](plots/small.svg)" in judged


def test_each_part_of_the_bench_finds_what_it_imports_of_the_rooms() -> None:
    """Nothing else would notice before the next bench that a name has moved."""
    _python("import bench, client, floors, mapping, pace, publish, server, unchanged")
