"""What a command imports before it does anything: nothing heavy that it does not need. No times are asserted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from integration.desk import FEED, Desk, lines

IMPORTED = """\
import sys
from pipelines.cli.entry import main
try:
    main()
except SystemExit as left:
    print("left with", left.code, file=sys.stderr)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""
ELSEWHERE = {"dagster", "alembic", "opentelemetry", "gspread", "google.auth", "simple_salesforce", "fsspec", "paramiko"}
ELSEWHERE |= {"psycopg", "sandbox"}
"""What most feeds never need."""
SELDOM = {"markdown_it", "charset_normalizer", "pipelines.definitions", "uvicorn"}
NETWORK = {"aiohttp", "httpx_aiohttp", "connectors.event_api.delivery"}
BOOKS = {"sqlalchemy", "sqlmodel", "state.database"}
NOT_NEEDED = {
    "check": ELSEWHERE | SELDOM | NETWORK | BOOKS | {"structlog", "pipelines.run.context"},
    "preview": ELSEWHERE | SELDOM | {"pipelines.run.stage"},
    "status": ELSEWHERE | SELDOM | NETWORK | {"pipelines.run.context"},
    "rows": ELSEWHERE | SELDOM | NETWORK | {"pipelines.run.context"},
    "run": ELSEWHERE | SELDOM,
}
MORE = {"rows": ("--state", "delivered"), "run": ("--no-dagster",)}


@pytest.mark.parametrize("verb", NOT_NEEDED)
def test_a_command_imports_only_what_it_needs(verb: str, desk: Desk) -> None:
    desk.source(lines(3))
    desk.run(code=0)
    words = [verb, FEED, "--json", *MORE.get(verb, ())]
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words], cwd=desk.folder, env=desk.env, capture_output=True, text=True, check=False
    )
    assert "left with 0" in ended.stderr, ended.stderr
    assert set(ended.stderr.splitlines()) & NOT_NEEDED[verb] == set()
