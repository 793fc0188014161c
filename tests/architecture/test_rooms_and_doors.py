"""What every module owes its reader: a door sign, a size that can be read at one go, no net under its feet."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from architecture.places import MODULES, ROOMS, ROOT, called

LONGEST = 600
HEAVY = ("dagster", "sqlalchemy", "sqlmodel", "alembic", "gspread", "simple_salesforce", "aiohttp", "fsspec", "rich.table")
"""What takes long to import, and is not needed to answer `--help`."""


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _first_sentences(path: Path) -> str:
    return (ast.get_docstring(_tree(path)) or "").partition("\n\n")[0]


def _names_of(handler: ast.ExceptHandler) -> Iterator[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for kind in kinds:
        yield "" if kind is None else ast.unparse(kind).rpartition(".")[2]


def _caught(path: Path) -> set[str]:
    handlers = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.ExceptHandler)]
    return {name for handler in handlers for name in _names_of(handler)}


def _imports(path: Path) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, ast.ImportFrom)]


def test_every_module_opens_with_its_door_sign() -> None:
    assert [called(path) for path in MODULES if not re.search(r"[.:?]$", _first_sentences(path))] == []


def test_every_module_can_be_read_at_one_go() -> None:
    assert [called(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > LONGEST] == []


def test_an_init_holds_nothing_but_its_caption() -> None:
    inits = [path for path in MODULES if path.name == "__init__.py"]
    assert len(inits) >= len(ROOMS)
    assert [called(path) for path in inits if [type(one) for one in _tree(path).body] != [ast.Expr]] == []


def test_two_places_alone_catch_every_exception() -> None:
    """A fault of ours in one mapping file, or in one run, must harm no other feed."""
    assert [called(path) for path in MODULES if _caught(path) & {"", "Exception"}] == [
        "mappings/yaml/loader.py",
        "pipelines/run/outcome.py",
    ]


def test_modules_import_by_full_names_and_never_everything() -> None:
    loose = [path for path in MODULES for one in _imports(path) if one.level or [name.name for name in one.names] == ["*"]]
    assert [called(path) for path in loose] == []


def test_the_command_line_answers_without_waiting_for_what_it_does_not_need() -> None:
    script = f"import sys, pipelines.cli.app; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
