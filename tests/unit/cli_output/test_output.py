"""What commands print, read back from the streams it went to, and the file that an editor opens in a spreadsheet program."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from connectors.rate_limit import RateReport
from mappings.errors import ConfigError, SyncError, TransientError
from pipelines.cli.output.console import Output, publish_line, read_line
from pipelines.cli.rows import CsvRow, safe_cell, write_csv
from pipelines.cli.run_report import pace_line
from pipelines.logs import configure_logs
from pipelines.run.publish import pace_numbers
from pipelines.settings import read_settings

ESCAPE = "\x1b"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")


def piped(*, is_json: bool = False) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(is_json=is_json, stdout=out, stderr=err), out, err


class Colour(StrEnum):
    RED = "red"


class Model(BaseModel):
    limit: float = 2.5


@dataclass
class Row:
    z: int
    a: Path


def test_a_document_is_json_whatever_it_is_made_of() -> None:
    output, out, _ = piped(is_json=True)
    rows = iter([Colour.RED, b"\xff", None, True])
    made = {
        "when": datetime(2025, 3, 1, 20, 0, tzinfo=UTC),
        "day": date(2025, 3, 1),
        "row": Row(1, Path("a/b")),
        "model": Model(),
    }
    output.document({**made, "set": {"b", "a"}, "rows": rows, Colour.RED: "上海"})
    read = {"when": "2025-03-01T20:00:00+00:00", "day": "2025-03-01", "row": {"z": 1, "a": "a/b"}, "model": {"limit": 2.5}}
    assert json.loads(out.getvalue()) == {**read, "set": ["a", "b"], "rows": ["red", "\\xff", None, True], "red": "上海"}
    assert "上海" in out.getvalue()
    assert out.getvalue().index('"z"') < out.getvalue().index('"a":')


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_document_is_json_in_any_encoding_of_the_terminal(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Output(is_json=True, stdout=stream, stderr=io.StringIO()).document({"city": "Łódź é \udce9"})
    stream.seek(0)
    assert json.loads(stream.read()) == {"city": "Łódź é \udce9"}


def test_with_json_nothing_but_the_one_document_is_on_stdout() -> None:
    output, out, err = piped(is_json=True)
    output.note("reading")
    output.table("Rows", [{"a": "x"}])
    with output.progress("sending", 3) as bar:
        bar.advance()
    output.document([1])
    output.error(ConfigError("too late for a second document"))
    assert json.loads(out.getvalue()) == [1]
    assert "reading" in err.getvalue()
    assert "too late" in err.getvalue()


def test_an_error_is_a_document_with_all_that_it_knows() -> None:
    output, out, _ = piped(is_json=True)
    output.error(TransientError("busy", hint="later", retry_after_s=30))
    error = {"type": "TransientError", "message": "busy", "hint": "later", "retry_after_s": 30}
    assert json.loads(out.getvalue()) == {"error": error}


def tabled(head: list[str], rows: list[list[object]]) -> str:
    output, out, _ = piped()
    output.table("Rows", [dict(zip(head, row, strict=True)) for row in rows])
    return out.getvalue()


def test_long_cells_are_folded_between_their_words_and_never_cut() -> None:
    shown = tabled(["place", "title"], [["events.csv:42", "the harbour " * 6]])
    assert shown.count("harbour") == 6
    assert max(map(len, shown.splitlines())) <= 60
    rows = [["fair", "csv ../samples/fair.csv", "2026-11-21 07:48:09+00:00", "delivered 25", "pending"] for _ in range(2)]
    shown = tabled(["feed", "source", "last run", "rows", "others"], [*rows])
    assert shown.count(" fair  csv ../samples/fair.csv  ") == 2, "one word that is too long for its column is not broken"
    assert tabled(["place"], []) == "Rows: none\n"


def test_where_a_table_would_break_words_or_a_command_each_row_is_a_paragraph() -> None:
    command = "eventsync resolve fair A-1 --event-id 100001"
    address = "https://example.org/" + "a" * 200
    rows: list[list[object]] = [["conflict", "fair.csv:2", f"it may be there: `{command}` says so"], ["refused", "x:3", address]]
    paragraph = ["Rows", "", " conflict  fair.csv:2", f"   what to do: it may be there: `{command}` says so"]
    for count in (2, 1):
        shown = tabled(["state", "place", "what to do"], rows[:count])
        assert (shown.splitlines()[:4], address in shown) == (paragraph, count == 2)


def test_numbers_stand_to_the_right_and_flags_are_words() -> None:
    rows: list[list[object]] = [["a", 1234567, True, datetime(2025, 3, 1, 20, tzinfo=UTC)], ["b", 5, False, None]]
    shown = tabled(["feed", "rows", "due", "last"], rows).splitlines()
    first, second = (line for line in shown if line.strip().startswith(("a ", "b ")))
    assert (first.split()[:3], "2025-03-01 20:00:00+00:00" in first) == (["a", "1,234,567", "yes"], True)
    assert second.index("5") == first.index("7  ")


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202etxt", "\x00", "\x7f", "\udce9", "[bold]x[/bold]", ":smile:"]
)
def test_text_of_partners_can_only_be_shown(hostile: str) -> None:
    out = Terminal()
    output = Output(stdout=out, stderr=out)
    output.table("T", [{"c": f"<{hostile}>"}])
    output.note(f"<{hostile}>")
    output.error(SyncError(f"<{hostile}>"))
    shown = out.getvalue()
    assert hostile in shown if hostile.isprintable() else hostile not in shown
    assert shown.encode("utf-8", "strict")


def test_there_is_colour_on_a_terminal_and_none_elsewhere_or_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, (elsewhere, _, pipe) = Terminal(), piped()
    Output(stdout=terminal, stderr=terminal).error(SyncError("x"))
    elsewhere.error(SyncError("x"))
    assert f"{ESCAPE}[1;31m" in terminal.getvalue()
    assert ESCAPE not in pipe.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    Output(stdout=plain, stderr=plain).error(SyncError("x"))
    assert "31m" not in plain.getvalue()


def test_bars_and_waits_are_shown_on_a_terminal_and_wiped_away() -> None:
    out, err = Terminal(), Terminal()
    output = Output(stdout=out, stderr=err)
    with output.progress("sending", None) as bar:
        bar.advance(50)
        bar.expect(150)
        bar.advance(150)
        output.note("above the bar")
    with output.progress("rows read", None) as bar:
        bar.advance(50)
        bar.restart("rows sent", 7)
        bar.advance(7)
    with output.progress("starting Dagster", is_counted=False):
        assert "starting Dagster" in err.getvalue(), "at once"
        output.aside("beside it")
    assert [
        shown for shown in ("sending", "200/200", "above the bar", "rows sent", "7/7", "beside it") if shown not in err.getvalue()
    ] == []
    assert out.getvalue() == ""
    output.note("after it")
    assert "after it" in out.getvalue()


@pytest.mark.parametrize("is_json", [False, True])
def test_neither_a_wait_nor_a_bar_is_shown_off_a_terminal_or_with_json(is_json: bool) -> None:
    out, err = io.StringIO(), Terminal() if is_json else io.StringIO()
    output = Output(is_json=is_json, stdout=out, stderr=err)
    with output.progress("starting Dagster", is_counted=False):
        pass
    if not is_json:
        with output.progress("sending", 10) as bar:
            bar.expect(20)
            bar.restart("rows sent", 20)
            bar.advance(3)
    assert out.getvalue() + err.getvalue() == ""


@pytest.mark.parametrize("log_format", ["pretty", "json"])
def test_a_log_line_holds_nothing_that_a_terminal_obeys(
    log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "a\x1b[2J\x07\x9b31m\r\u202eevil\u2066\x7f\udc80\ud800z"
    configure_logs(read_settings({"EVENTSYNC_LOG": log_format}, tmp_path))
    structlog.get_logger().error(hostile, cell=hostile)
    said = capsys.readouterr().err
    assert not (set(hostile) - set("a[2J31mevilz")) & set(said)
    assert "evil" in said


def test_a_terminal_that_lacks_a_character_shows_its_escape() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    output = Output(stdout=stream, stderr=stream)
    output.note("Łódź")
    output.table("Städte", [{"n": "Łódź"}])
    stream.seek(0)
    assert "\\u0141" in stream.read()


def test_output_is_ready_before_rich_is_loaded() -> None:
    document = "from pipelines.cli.output.console import Output; Output(is_json=True).document({})"
    code = f"import sys; {document}; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_a_read_and_a_publish_are_equations_and_one_that_does_not_hold_says_so() -> None:
    counts = {"read": 1200, "filtered": 0, "rejected": 2, "unchanged": 1188, "new": 10}
    assert read_line(counts) == "read 1,200 = rejected 2 + unchanged 1,188 + new 10"
    assert read_line({}) == "read 0"
    assert read_line({"read": 5, "new": 3}) == "read 5 ≠ new 3: 2 rows unaccounted for"
    assert read_line({"read": 1, "new": 3}) == "read 1 ≠ new 3: 2 rows too many"
    assert read_line({"read": 4}) == "read 4 ≠ filtered 0: 4 rows unaccounted for"
    counts = {"new": 10, "carried_over": 3, "delivered": 9, "delivered_unconfirmed": 1, "pending": 3}
    assert publish_line(counts) == "new 10 + carried over 3 = delivered 9 + delivered unconfirmed 1 + still pending 3"
    assert publish_line({"carried_over": 1, "refused": 1}) == "carried over 1 = refused 1"
    assert publish_line({}) == "new 0"


def test_the_pace_of_a_run_names_the_limit_that_it_met() -> None:
    pace = RateReport(20.0, limited=3, pauses=2, paused_s=2.04, requests=1203, seconds=60.0, workers=2, most_in_flight=8)
    numbers = pace_numbers(pace, 1200, 61.0)
    assert numbers["used_share"] == 1.0
    assert pace_line(numbers) == (
        "pace: 19.7 rows/s, up to 8 at a time, 100% of the 20/s that the service allows, "
        "answered 429: 3, paused 2 s, shared by 2 workers"
    )
    unlimited = RateReport(None, limited=0, pauses=0, paused_s=0.0, requests=10, seconds=1.0, most_in_flight=4)
    assert pace_line(pace_numbers(unlimited, 10, 1.0)) == "pace: 10 rows/s, up to 4 at a time"
    assert "rate_per_s" not in pace_numbers(unlimited, 10, 1.0)
    assert not pace_line(pace_numbers(unlimited, 10, 1.0) | {"rows_per_s": 0.0, "most_under_way": 0})
    assert pace_line({}) == ""


def rejected(number: int, **cells: str) -> CsvRow:
    return CsvRow(f"events.csv:{number}", "INICIO: This is not a date.", "INICIO: like 24.12.2025", cells)


def test_the_partners_own_columns_come_first_keep_their_names_and_ours_are_added(tmp_path: Path) -> None:
    path = tmp_path / "rejected.csv"
    assert write_csv(path, [rejected(2, REF="1", NOME="Łódź"), rejected(3, REF="2\r\nlines\tand", place="caf\udce9")]) == 2
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    header, first, second = csv.reader(path.read_text("utf-8-sig").splitlines())
    assert header == ["REF", "NOME", "place", "eventsync place", "problem", "hint"]
    assert first == ["1", "Łódź", "", "events.csv:2", "INICIO: This is not a date.", "INICIO: like 24.12.2025"]
    assert (second[2][:3], second[3]) == ("caf", "events.csv:3")
    assert '"2\nlines and"' in path.read_text("utf-8-sig")


FORMULAS = ("=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-2+3", "+48 123-456", "=", "-5", "＝1+1", '"=1', " =1")
PARTS = (*FORMULAS, *("x\n", "x;", "x,", "x\t", "x\u2028", '"', '""', " ", "\r\n", ";;", "\t", "Jazz"))


def readings(path: Path) -> Iterator[str]:
    """Yield every cell of a file for readers that split at a comma, a semicolon or a tab, and know of quotes or do not."""
    text = path.read_text("utf-8-sig")
    for delimiter in ",;\t":
        for lines in (io.StringIO(text, newline=""), text.splitlines()):
            for row in csv.reader(lines, delimiter=delimiter):
                yield from row
        for row in csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True):
            yield from row
        for line in re.split("[\r\n\u2028]", text):
            yield from (cell.strip('"') for cell in line.split(delimiter))
            yield from line.split(delimiter)


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(formula: str, tmp_path: Path) -> None:
    texts = [formula, f"x\n{formula}", f"x;{formula};y", f"x,{formula}", f"x\t{formula}", f'x; "{formula}"', f"x;\n\n;{formula}"]
    write_csv(tmp_path / "x.csv", [rejected(2, **{text: text for text in texts})])
    cells = list(readings(tmp_path / "x.csv"))
    assert [cell for cell in cells if cell.startswith(tuple("=+-@\t\r＝＋－＠"))] == []
    assert formula.strip('\t\r\n "') in "".join(cells).replace("'", "")


@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join) | st.text())
def test_no_cell_of_any_reading_begins_a_formula(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        write_csv(path, [rejected(2, A="1", B=text, C=text), rejected(3, A=text)])
        assert [cell for cell in readings(path) if cell.startswith(tuple("=+-@\t\r＝＋－＠"))] == []


@pytest.mark.parametrize(
    "text", ["5", "", "a=b", "'quoted", "02134", "2025-01-01", "12-14 h; 5 €, 3 - 4", "Jazz, Rock\nFolk; Soul"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert safe_cell(text) == text


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_file(tmp_path: Path) -> None:
    row = rejected(2, REF="1", NOME="An evening of songs, tales & slow dances " * 8)

    def peak_of(count: int) -> int:
        tracemalloc.start()
        assert write_csv(tmp_path / "rows.csv", itertools.repeat(row, count)) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_of(24_000) < peak_of(12_000) * 1.1
