"""Cells of strangers that a terminal, a log or a spreadsheet would obey, or that no encoding can hold."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import structlog

from pipelines.cli.output.console import Output
from pipelines.cli.rows import CsvRow, write_csv
from pipelines.settings import read_settings
from pipelines.telemetry.logs import configure_logs

HOSTILE = "a\x1b[2J\x07\x9b31m\r\u202eevil\u2066\x7f\udc80\ud800z"
OBEYED = set(HOSTILE) - set("a[2J31mevilz")


def test_a_document_escapes_what_a_terminal_obeys_and_loses_nothing() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Output(json=True, stdout=out).document({"cell": HOSTILE, "name": "Kraków"})
    out.seek(0)
    text = out.read()
    assert not OBEYED & set(text)
    assert "Kraków" in text
    assert json.loads(text)["cell"] == HOSTILE


def test_a_table_and_a_sentence_show_nothing_that_a_terminal_obeys() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    output = Output(stdout=out)
    output.table(HOSTILE, ["cell"], [[HOSTILE]])
    output.note(HOSTILE)
    out.seek(0)
    text = out.read()
    assert not OBEYED & set(text)
    assert "evil" in text


@pytest.mark.parametrize("log_format", ["pretty", "json"])
def test_a_log_line_holds_nothing_that_a_terminal_obeys(
    log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(read_settings({"EVENTSYNC_LOG": log_format}, tmp_path))
    structlog.get_logger().error(HOSTILE, cell=HOSTILE)
    said = capsys.readouterr().err
    assert not OBEYED & set(said)
    assert "evil" in said


def test_a_csv_keeps_line_ends_and_tabs_and_no_other_control_character(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    write_csv(file, [CsvRow("x.csv:2", HOSTILE, "", {"A": HOSTILE, "B": "two\r\nlines\tand", HOSTILE: "=\x1b1"})])
    text = file.read_bytes().decode("utf-8")
    assert not OBEYED & set(text.replace("\r\n", "\n"))
    assert '"two\nlines\tand"' in text
    assert '"\'=\u241b1"' in text
