"""Where the project's own files lie, and what its modules are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("pipelines", "connectors", "mappings", "state", "sandbox")
MODULES = tuple(sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")))


def called(path: Path) -> str:
    """A module's name in a test's id."""
    return str(path.relative_to(ROOT))
