"""What no linter asks of a module: a size that can be read at one go, packages without code, nothing heavy before `--help`."""

from __future__ import annotations

import ast
import subprocess
import sys

from architecture.places import MODULES, ROOMS, ROOT, called

LONGEST = 600
HEAVY = ("dagster", "sqlalchemy", "sqlmodel", "alembic", "gspread", "simple_salesforce", "aiohttp", "fsspec", "rich.table")
"""What takes long to import, and is not needed to answer `--help`."""


def test_every_module_can_be_read_at_one_go() -> None:
    assert [called(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > LONGEST] == []


def test_an_init_holds_nothing_but_its_caption() -> None:
    inits = {called(path): ast.parse(path.read_text("utf-8")).body for path in MODULES if path.name == "__init__.py"}
    assert len(inits) >= len(ROOMS)
    assert [name for name, body in inits.items() if [type(one) for one in body] != [ast.Expr]] == []


def test_the_command_line_answers_without_waiting_for_what_it_does_not_need() -> None:
    script = f"import sys, pipelines.cli.app; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
