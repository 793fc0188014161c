"""The names of our packages are common: another project's may hide them or overwrite their files, and every command says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from integration.desk import shell_environ
from wheels import ROOT, unpacked_wheel

pytestmark = pytest.mark.slow
DEFINITIONS = "import dagster as dg\n\n\n@dg.asset\ndef warehouse_events(): ...\n\n\ndefs = dg.Definitions([warehouse_events])\n"
FOREIGN = {"pipelines/__init__.py": '"""A package of Acme."""\n', "pipelines/definitions.py": DEFINITIONS}
METADATA = "Metadata-Version: 2.1\nName: acme-data\nVersion: 1.0\n"
IMPORTING = [sys.executable, "-c", "from eventsync import feeds_definitions"]
MODULE = [sys.executable, "-m", "eventsync"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return unpacked_wheel(tmp_path)


def foreign(folder: Path) -> Path:
    """A folder with a package `pipelines` of another project; return the package."""
    for name, text in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder / "pipelines"


def installed(site: Path) -> None:
    """Install a foreign package over ours, as pip does: with no word about files that are replaced."""
    foreign(site)
    info = site / "acme_data-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA, "utf-8")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in FOREIGN), "utf-8")


def uninstalled(site: Path) -> None:
    shutil.rmtree(site / "acme_data-1.0.dist-info")
    for name in FOREIGN:
        (site / name).unlink()


def ended(words: list[str], site: Path, cwd: Path, *before: Path) -> subprocess.CompletedProcess[str]:
    env = shell_environ({"PYTHONPATH": ":".join(map(str, (*before, site)))})
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=60)


def assert_says(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    said = " ".join(ended.stderr.split())
    assert [word for word in words if word not in said] == [], said


def test_a_package_in_the_working_folder_or_on_the_path_hides_ours(site: Path, tmp_path: Path) -> None:
    team = tmp_path / "team"
    hiding = foreign(team)
    for said in (ended([*MODULE, "feeds"], site, team), ended([*MODULE, "--help"], site, tmp_path, team)):
        assert (said.returncode, said.stdout, "Traceback" in said.stderr) == (2, "", False)
        assert_says(said, "error: another project's package `pipelines`", str(hiding), str(site / "pipelines"), "executable_path")
    importing = ended(IMPORTING, site, team)
    assert importing.returncode == 1
    assert_says(importing, "ForeignPackageError", "package `pipelines`", str(hiding), "executable_path")
    assert ended([*MODULE, "--help"], site, tmp_path).returncode == 0


def test_another_project_has_overwritten_our_files_or_has_taken_them_away(site: Path, tmp_path: Path) -> None:
    installed(site)
    said = ended([*MODULE, "feeds"], site, tmp_path)
    assert (said.returncode, said.stdout, "Traceback" in said.stderr) == (2, "", False)
    assert_says(
        said,
        "error: another project (acme-data) has overwritten our package `pipelines`",
        str(site / "pipelines"),
        "executable_path",
    )
    assert_says(ended(IMPORTING, site, tmp_path), "acme-data", "executable_path")
    uninstalled(site)
    assert_says(ended([sys.executable, "-S", *MODULE[1:], "feeds"], site, tmp_path), "is missing", "install eventsync again")


def test_a_file_that_an_operator_has_mended_is_no_foreign_one(site: Path, tmp_path: Path) -> None:
    with (site / "pipelines" / "clock.py").open("a", encoding="utf-8") as file:
        file.write("# mended in place\n")
    assert ended([*MODULE, "--help"], site, tmp_path).returncode == 0


def test_the_door_opens_without_dagster() -> None:
    code = "import eventsync, sys; print(eventsync.__version__, *dir(eventsync), 'dagster' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert said == [version, "FeedTranslator", "FeedsComponent", "__version__", "feeds_definitions", "False"]
