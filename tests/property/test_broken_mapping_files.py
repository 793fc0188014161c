"""Whatever stands in a mapping file, loading ends in problems with positions, and a file that is accepted can map any row.

The suite makes 250 mutants of the real mapping files, the same in every run. `EVENTSYNC_TEST_MUTANTS=20000` makes so many,
`EVENTSYNC_TEST_MUTANTS_SEED=7` makes others; `make hunt` makes 20,000 others. A failure names the file, the seed and the
number. An exception that the loader turns into a problem of the file, because no check foresaw it, is a failure here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from property.mutants import FEEDS, FOLDERS, mutant, neighbour

from mappings.compiler.explain import explain_row
from mappings.compiler.mapper import compile_feed
from mappings.errors import ConfigError, FileProblem, MappingFileError
from mappings.event import Directory
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import FAULT, load_feed, load_folder
from pipelines.cli.findings import find
from pipelines.definitions import application
from pipelines.notices import broken_files
from pipelines.settings import read_settings

MUTANTS = int(os.environ.get("EVENTSYNC_TEST_MUTANTS", "250"))
SEED = os.environ.get("EVENTSYNC_TEST_MUTANTS_SEED", "1")
AS_OF = datetime(2026, 3, 1, tzinfo=UTC)
KNOWN = Directory({"city-agenda": 1}, frozenset({"music", "talk"}))
MOST_LINES = 12
CELLS = (
    *("", " ", "7", "-1,5", "2026-03-01", "02.03.2026", "19:30", "a, b; c/d|e", '[{"a": 1}, 2]', "<p>x</p>"),
    "https://a.example/é",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Copies of the folders of feeds, with their lookups, what they include and the first lines of their sources."""
    made = {}
    for number, folder in enumerate(FOLDERS):
        copy = tmp_path_factory.mktemp(f"feeds{number}") / "feeds"
        shutil.copytree(folder, copy, ignore=lambda _, names: [name for name in names if name.endswith((".yaml", ".md"))])
        for path in folder.glob("_*.yaml"):
            shutil.copy(path, copy)
        if (folder.parent / "lookups").is_dir():
            shutil.copytree(folder.parent / "lookups", copy.parent / "lookups")
        for path in (*copy.glob("data/*.csv"), *copy.glob("samples/*.csv")):
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:MOST_LINES]))
        made[folder] = copy
    return made


@pytest.mark.slow(about_s=15)
@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_a_mapping_file_made_wrong_ends_in_problems_with_positions(path: Path, folders: dict[Path, Path]) -> None:
    folder = folders[path.parent]
    for number in range(FEEDS.index(path), MUTANTS, len(FEEDS)):
        file = folder / path.name
        with noted(path, number, file):
            hold_to_the_promise(file, mutant(path, Random(f"{SEED}-{number}")))
        file.unlink()


@pytest.mark.slow(about_s=5)
def test_a_lookup_or_an_included_file_made_wrong_ends_in_problems_with_positions(folders: dict[Path, Path]) -> None:
    """In a tenth as many examples."""
    beside = [(path, name) for path in FEEDS for name in named_files(path)]
    for number in range(MUTANTS // 10):
        random = Random(f"{SEED}-beside-{number}")
        path, name = random.choice(beside)
        other = folders[path.parent] / name
        right = other.read_bytes()
        other.write_bytes(neighbour(other, random))
        with noted(path, number, other):
            hold_to_the_promise(folders[path.parent] / path.name, path.read_bytes())
        other.write_bytes(right)


def named_files(path: Path) -> list[str]:
    mapping = load_feed(path)
    return [name for name in (*mapping.tables, *mapping.include) if (path.parent / name).is_file()]


@contextmanager
def noted(path: Path, number: int, file: Path) -> Iterator[None]:
    """Say of a failure how to have it again, and keep the file."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{path.name}, seed {SEED}, number {number}; the file: {file.read_bytes()[:20_000]!r}")
        raise


def hold_to_the_promise(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    folder = load_folder(path.parent, [path.stem])
    for error in folder.broken:
        check_error(error)
    for feed in folder.feeds:
        use(feed)
    list(broken_files(folder.broken, ()))
    application(read_settings({"EVENTSYNC_FEEDS": str(path.parent)}, path.parent), no_workshop, wanted=[path.stem])


def no_workshop() -> NoReturn:
    pytest.fail("the state DB is opened where feeds are only loaded")


def check_error(error: MappingFileError) -> None:
    findings = find(error)
    assert findings["problems"]
    for problem in (*error.problems, *error.warnings):
        check_problem(problem)


def check_problem(problem: FileProblem) -> None:
    assert FAULT not in problem.message, problem.message
    assert problem.message.strip()
    str(problem).encode()
    lines = problem.path.read_bytes().decode("utf-8", "replace").splitlines() or [""]
    assert 1 <= problem.line <= len(lines) + 1, problem
    assert 1 <= problem.column <= len(lines[problem.line - 1] if problem.line <= len(lines) else "") + 2, problem


def use(mapping: FeedMapping) -> None:
    findings = find(mapping)
    for problem in (*mapping.warnings, *findings["problems"], *findings["warnings"]):
        check_problem(problem)
    mapper = compile_feed(mapping, Directory(), AS_OF)
    for row in rows(mapper.columns):
        mapper.outcomes(row)
    explain_row(mapping, Directory(), row, AS_OF)
    list(mapper.over(rows(mapper.columns)))
    with suppress(ConfigError):  # a channel that the key does not have
        compile_feed(mapping, KNOWN, AS_OF)


def rows(columns: frozenset[str]) -> Iterator[SourceRow]:
    names = sorted(columns)
    for number in range(len(CELLS)):
        cells = {name: CELLS[(number + place) % len(CELLS)] for place, name in enumerate(names)}
        yield SourceRow(RowLocation(f"events.csv:{number + 2}", number + 2), cells)
    yield SourceRow(RowLocation("events.csv:99", 99), dict.fromkeys(names, "2026-03-02T19:30:00Z"))
