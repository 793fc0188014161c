"""Checks that the packages of eventsync are its own: their names are common, and another project may use them, too.

Imports none of them, and takes a few milliseconds at the start of each command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pipelines", "connectors", "mappings", "state", "sandbox")
HINT = (
    "give eventsync an environment of its own (python -m venv, pipx, its container), and start it in a folder without such a "
    "package; Dagster loads it from there if the code location in workspace.yaml has `executable_path`"
)
_HOME = Path(__file__).parents[1]


class ForeignPackageError(ImportError):
    """A package of another project stands where one of ours should."""


def check_packages() -> None:
    """Check that each of our packages is found beside this one, with the files that were installed.

    Raises:
        ForeignPackageError: names each package that is another project's, where it lies, and what to do.
    """
    changed = _changed_files()
    problems = [problem for name in PACKAGES for problem in _problems_of(name, changed.get(name))]
    if problems:
        raise ForeignPackageError("\n".join(problems) + f"\n hint: {HINT}")


def _problems_of(name: str, changed: Path | None) -> Iterator[str]:
    spec, own = find_spec(name), _HOME / name
    found = Path(next(iter((spec.submodule_search_locations if spec else None) or ()), (spec and spec.origin) or own))
    if found.resolve() != own.resolve():
        yield f"another project's package `{name}` in {found}{_owners_of(name)} hides ours in {own}"
    elif spec is None or (changed is not None and not changed.exists()):
        yield f"our package `{name}` in {_HOME} is incomplete: {changed or own} is missing; install eventsync again"
    elif changed is not None and (owners := _owners_of(name)):
        yield f"another project{owners} has overwritten our package `{name}` in {_HOME}: {changed} is not ours"


def _changed_files() -> Mapping[str, Path]:
    """Return for each package a file that has another size than the one installed, or is missing; empty in a source tree."""
    record = next(_HOME.glob("eventsync-*.dist-info/RECORD"), None)
    files = [line.split(",") for line in record.read_text("utf-8").splitlines()] if record else []
    sizes = {name: int(size) for name, _, size in files if size and name.partition("/")[0] in PACKAGES}
    return {name.partition("/")[0]: _HOME / name for name, size in sizes.items() if _size_of(_HOME / name) != size}


def _size_of(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _owners_of(name: str) -> str:
    """Return which other distributions hold a package of this name, in parentheses; "" if there is none."""
    from importlib.metadata import packages_distributions  # noqa: PLC0415  # reads the metadata of all packages

    owners = sorted({*packages_distributions().get(name, ())} - {"eventsync"})
    return f" ({', '.join(owners)})" if owners else ""
