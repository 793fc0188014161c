"""Pinned versions against known advisories: `make audit`, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = """
as_of = 2026-11-01
source = "a test"
advisories = [{ package = "Python_Multipart", affected = "<0.0.22", id = "GHSA-wp53-j4wj-2cfg", summary = "files anywhere" }]
"""


def audit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "deploy" / "audit.py", "--offline", "--today", "2026-11-22", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("version", "is_affected"), [("0.0.9", True), ("0.0.21", True), ("0.0.22", False)])
def test_a_pinned_version_that_an_advisory_names_ends_the_audit_with_1(tmp_path: Path, version: str, is_affected: bool) -> None:
    (tmp_path / "list.toml").write_text(LIST, "utf-8")
    lock = tmp_path / "some.lock"
    lock.write_text(
        f"idna==3.20 \\\n    --hash=sha256:00\npython-multipart=={version} ; sys_platform == 'linux' \\\n    --hash=sha256:01\n"
    )
    done = audit("--advisories", tmp_path / "list.toml", lock)
    assert done.returncode == int(is_affected), done.stdout + done.stderr
    assert "list.toml: 1 advisories of 2026-11-01, 21 days old; a test" in done.stdout
    assert ("GHSA-wp53-j4wj-2cfg" in done.stdout) == is_affected


def test_no_version_of_the_lock_files_is_named_by_a_known_advisory() -> None:
    done = audit()
    assert done.returncode == 0, done.stdout + done.stderr
