"""A kind of source from an installed package, in every command that reads a source."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.desk import FEED, HEADER, Desk, evenings, lines
from integration.service import Service
from wheels import unpacked_wheel

PLUGIN = Path(__file__).parents[1] / "lookalikes" / "plugin"
pytestmark = pytest.mark.slow


def test_a_kind_from_a_package_works_in_every_command(desk: Desk, service: Service, tmp_path: Path) -> None:
    cells = [cell for line in (HEADER, *lines(3)) for cell in line.split(",")]
    path = desk.folder / "events.netstrings"
    path.write_text("".join(f"{len(cell)}:{cell}," for cell in ("6", *cells)) + ".", "ascii")
    desk.mapping()
    desk.edit("kind: csv\n  path: ../events.csv", f"kind: netstrings\n  file: {path}")
    desk.env["PYTHONPATH"] = str(unpacked_wheel(tmp_path / "plugin", PLUGIN))
    for words, expected in (
        (("check", FEED), "correct"),
        (("check", FEED, "--live"), "netstrings events.netstrings: 6 columns"),
        (("preview", FEED), "Evening 2"),
        (("explain", FEED, "2"), "events.netstrings:3"),
        (("schema",), '"netstrings"'),
        (("run", FEED, "--no-dagster"), "3"),
    ):
        out, err = desk.installed(*words).communicate()
        assert expected in " ".join(f"{out} {err}".split()), (words, out, err)
    assert service.titles() == evenings(3)
