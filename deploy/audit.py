"""Compare the versions in the lock files with known advisories: with the list beside this file, and by pip-audit.

Exit codes: 0 nothing found, 1 a pinned version is affected.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).resolve().parent
NAMES = ("requirements.lock", "requirements-test.lock", "deploy/requirements.lock", "deploy/celery/requirements.lock")
LOCKS = tuple(FOLDER.parent / name for name in NAMES)
Row = tuple[str, str, str, str, str]
"""Lock file, package, version, id of the advisory, summary."""


def pinned(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield the packages that a lock file pins, with their versions."""
    for line in re.findall(r"^[A-Za-z0-9].*==[^\\\n]*", lock.read_text("utf-8"), re.MULTILINE):
        requirement = Requirement(line)
        (pin,) = requirement.specifier
        yield canonicalize_name(requirement.name), pin.version


def listed(advisories: list[dict[str, str]], locks: list[Path]) -> Iterator[Row]:
    """Yield the pinned versions that a listed advisory names."""
    for lock in locks:
        for name, version in pinned(lock):
            for one in advisories:
                if canonicalize_name(one["package"]) == name and SpecifierSet(one["affected"]).contains(
                    version, prereleases=True
                ):
                    yield lock.name, name, version, one["id"], one["summary"]


def by_service(lock: Path) -> Iterator[Row]:
    """Yield what pip-audit finds.

    Raises:
        OSError: its advisory service was not reached.
    """
    command = ["pip-audit", "--requirement", str(lock), "--require-hashes", "--disable-pip", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    if not done.stdout.startswith("{"):
        raise OSError(done.stderr.strip().rpartition("\n")[2])
    for package in json.loads(done.stdout)["dependencies"]:
        for found in package.get("vulns", ()):
            yield lock.name, package["name"], package["version"], found["id"], found["description"].partition("\n")[0][:80]


def main() -> int:
    """Print a table of what is affected, and which sources were used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="*", type=Path, default=list(LOCKS))
    parser.add_argument("--advisories", type=Path, default=FOLDER / "advisories.toml")
    parser.add_argument("--offline", action="store_true", help="use the list alone")
    parser.add_argument("--today", type=date.fromisoformat, default=datetime.now(UTC).date())
    asked = parser.parse_args()
    known = tomllib.loads(asked.advisories.read_text("utf-8"))
    age = (asked.today - known["as_of"]).days
    print(
        f"{asked.advisories.name}: {len(known['advisories'])} advisories of {known['as_of']}, {age} days old; {known['source']}"
    )
    rows = set(listed(known["advisories"], asked.locks))
    if asked.offline or not shutil.which("pip-audit"):
        print("pip-audit: not used" if asked.offline else "pip-audit: not installed, so no newer advisory is known")
    else:
        try:
            rows.update(row for lock in asked.locks for row in by_service(lock))
            print("pip-audit: asked its advisory service")
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"pip-audit: its advisory service was not reached, so no newer advisory is known: {error}")
    for lock, name, version, advisory, summary in sorted(rows):
        print(f"{lock:24} {name:20} {version:12} {advisory:22} {summary}")
    print(f"{len(rows)} affected" if rows else "no pinned version is affected")
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())
