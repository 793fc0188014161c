"""Programs that fail in every way that a program can: their rows are never taken for all, and none outlives its read."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from contract.command_kinds import CONFIG, PROGRAMS, TOKEN
from integration.waiting import has_ended, until
from pydantic import SecretStr
from unit.connectors_sources.reading import SPEC, column

from connectors.masking import Mask
from connectors.sources.catalogue import open_source
from connectors.sources.command.messages import Output
from connectors.sources.command.program import Program
from connectors.sources.contract import (
    NO_ACCESS,
    REAL_CLOCK,
    Access,
    BadSourceError,
    Clock,
    CutOffError,
    EmptySourceError,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
)
from mappings.compiler.mapper import compile_feed
from mappings.errors import ConfigError, SyncError
from mappings.event import Directory
from mappings.outcome import MappedRow, SourceRow
from mappings.spec.source import CommandSource
from mappings.yaml.loader import parse_feed
from pipelines.settings import read_settings

RECORD = '{"type": "RECORD", "stream": "events", "record": {"ref": "1"}}'
ROW = '{"ref": "1"}'
ACCESS = Access(secrets={"TAP_OURS": SecretStr(CONFIG)}, programs=PROGRAMS, mask=Mask([CONFIG]))
SINGER = {"speaks": "singer", "stream": "events"}


def spec_of(folder: Path, code: str, **more: Any) -> dict[str, Any]:
    """Write a program of Python, and return what a mapping file says of it."""
    (folder / "program.py").write_text(f"import json, os, signal, sys, time\n{code}\n", "utf-8")
    config = ("{config}",) if "config" in more else ()
    return {"kind": "command", "run": (sys.executable, "program.py", *config), **more}


def read(
    folder: Path, code: str, *wanted: str, access: Access = ACCESS, clock: Clock = REAL_CLOCK, since: str = "", **more: Any
) -> tuple[list[SourceRow], Reading, str]:
    spec = SPEC.validate_python(spec_of(folder, code, **more))
    with open_source(spec, folder, frozenset(wanted), access=access, clock=clock, since=since).read() as reading:
        return list(reading.rows), reading, reading.ending().cursor


def _said(line: str, then: str = "") -> str:
    return f"print({line!r}, flush=True)\n{then}"


FAULTS: Mapping[str, tuple[str, dict[str, str], type[SyncError], list[str]]] = {
    "an exit code": (_said(ROW, "sys.exit('no such\\naccount')"), {}, SourceUnavailableError, ["exit code 1: no such | account"]),
    "an exit code without a word": (_said(ROW, "sys.exit(7)"), {}, SourceUnavailableError, ["exit code 7: it wrote nothing"]),
    "a signal": (_said(ROW, "os.kill(os.getpid(), 9)"), {}, SourceUnavailableError, ["was ended by signal 9 (Killed)"]),
    "a guard that is killed": (_said(ROW, "os.kill(os.getppid(), 9)\ntime.sleep(600)"), {}, SourceUnavailableError, ["killed"]),
    "a cut line": ("sys.stdout.write('{\"ref\": \"1\"}\\n{\"ref\": ')", {}, CutOffError, ["in the middle of a line"]),
    "no output": ("", {}, EmptySourceError, ["printed nothing", "one empty line"]),
    "no line of JSON": (_said("Fetching 12 events"), {}, BadSourceError, ["program.py:1", "no JSON object", "on stderr"]),
    "a stream that does not come": (_said(RECORD), {**SINGER, "stream": "venues"}, BadSourceError, ['"venues" did', "events"]),
    "a tap without a word": ("", SINGER, BadSourceError, ['"events" did not come; it sent none']),
    "a line that is no message": (_said(f"{RECORD}\nFetching page 2"), SINGER, BadSourceError, ["line 2", "Fetching page 2"]),
    "a list": (_said("[1]"), SINGER, BadSourceError, ["line 1", "no singer"]),
    "a message in halves": (f"sys.stdout.write({RECORD + chr(10) + RECORD[:20]!r})", SINGER, CutOffError, ["in the middle"]),
    "rows in other files": (_said('{"type": "BATCH", "stream": "events"}'), SINGER, BadSourceError, ["line 1", "BATCH"]),
    "a record that is none": (_said(RECORD.replace('{"ref": "1"}', "7")), SINGER, BadSourceError, ["line 1", "no singer"]),
    "a STATE beyond all bounds": (
        "print('{\"type\": \"STATE\", \"value\": \"' + 'x' * 2_000_000 + '\"}')", SINGER, BadSourceError, ["no singer"]
    ),
    "an error of a connector": (
        _said('{"type": "TRACE", "trace": {"type": "ERROR", "error": {"message": "401 for our key"}}}'),
        {**SINGER, "speaks": "airbyte"}, SourceUnavailableError, ["401 for our key"],
    ),
    "an incomplete stream": (
        _said('{"type": "TRACE", "trace": {"type": "STREAM_STATUS", "stream_status": {"status": "INCOMPLETE"}}}'),
        {**SINGER, "speaks": "airbyte"}, SourceUnavailableError, ["INCOMPLETE"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "more", "kind", "words"), FAULTS.values(), ids=FAULTS)
def test_a_program_that_fails_gives_no_row_at_all(
    tmp_path: Path, code: str, more: dict[str, str], kind: type[SyncError], words: list[str]
) -> None:
    spec = SPEC.validate_python(spec_of(tmp_path, code, **more))
    with pytest.raises(kind) as caught, open_source(spec, tmp_path, frozenset({"ref"}), access=ACCESS).read():
        pytest.fail("the block was entered")
    said = f"{caught.value} ({caught.value.hint})"
    assert [word for word in words if word not in said] == [], said
    assert caught.value.hint


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("bin/tap", "no-such-program-anywhere"):
        source = open_source(SPEC.validate_python({"kind": "command", "run": [name]}), tmp_path, frozenset(), access=ACCESS)
        with pytest.raises(SourceRefusedError, match="there is no program"), source.read():
            pytest.fail("the block was entered")
    (tmp_path / "text").write_text("no program", "utf-8")
    (tmp_path / "text").chmod(0o755)
    source = open_source(SPEC.validate_python({"kind": "command", "run": ["./text"]}), tmp_path, frozenset(), access=ACCESS)
    with pytest.raises(SourceUnavailableError, match="cannot be started: Exec format error"), source.read():
        pytest.fail("the block was entered")


FORKED = "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
LASTING = "    open(f'{os.getpid()}.pid', 'w').close()\n    time.sleep(600)\n"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif True:\n"


@pytest.mark.parametrize(
    ("code", "count", "leap_s", "words"),
    [
        (f"{_said(ROW)}if True:\n{LASTING}", 1, 10_000.0, "had not ended after 3600 s"),
        (f"{_said(ROW)}{STUBBORN}{LASTING}", 1, 10_000.0, "had not ended after 3600 s"),
        (f"{_said(ROW)}{FORKED}{LASTING}\nif True:\n{LASTING}", 2, 10_000.0, "had not ended"),
        (f"{_said(ROW)}{FORKED}{LASTING}", 1, 20.0, "still holds its output open"),
    ],
    ids=["it hangs", "it ignores SIGTERM", "with a child", "its child holds its output"],
)
def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(
    tmp_path: Path, code: str, count: int, leap_s: float, words: str
) -> None:
    leaps = iter(range(1, 1000))

    def look() -> float:
        """The clock stands until the processes are there, then leaps."""
        return 0.0 if len(list(tmp_path.glob("*.pid"))) < count else leap_s * next(leaps)

    with pytest.raises(SourceUnavailableError, match=words):
        read(tmp_path, code, clock=Clock(clock_s=look))
    for path in tmp_path.glob("*.pid"):
        until(lambda pid=int(path.stem): has_ended(pid), what="the end of a process")


def test_output_without_an_end_is_given_up(tmp_path: Path) -> None:
    spec_of(tmp_path, "while True:\n    print('{}')")
    spec = CommandSource(kind="command", run=(sys.executable, "program.py"))
    program = Program(spec, spec.run[1:], tmp_path, PROGRAMS, (), REAL_CLOCK)
    with TemporaryFile() as kept, pytest.raises(BadSourceError, match="more than 1 million bytes"):
        program.run(Output(kept, spec, largest=2**20).take)


def test_a_program_is_ended_when_its_read_is_interrupted(tmp_path: Path) -> None:
    spec_of(tmp_path, "print(os.getpid(), flush=True)\ntime.sleep(600)")
    spec, pids = CommandSource(kind="command", run=(sys.executable, "program.py")), list[int]()
    program = Program(spec, spec.run[1:], tmp_path, PROGRAMS, (), REAL_CLOCK)

    def interrupted(piece: bytes) -> None:
        pids.append(int(piece))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run(interrupted)
    until(lambda: has_ended(pids[0]), what="the end of the program")


def test_a_loud_program_is_read_to_its_end_and_its_log_is_bounded(tmp_path: Path) -> None:
    rows, _, _ = read(tmp_path, f"for _ in range(5000):\n    print('x' * 2000, file=sys.stderr)\n    print({ROW!r})", "ref")
    assert len(rows) == 5000
    with pytest.raises(SourceUnavailableError) as caught:
        read(tmp_path, "sys.stderr.write('x' * 2_000_000 + '\\n' * 9 + 'the last word')\nsys.exit(2)")
    assert str(caught.value).endswith("| the last word")
    assert len(str(caught.value)) < 500


def test_a_program_sees_listed_variables_only_and_its_secrets_stand_nowhere(tmp_path: Path) -> None:
    environ = {**PROGRAMS, "EVENT_API_KEY": "k3y-of-the-service", "TAP_OURS": CONFIG, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    environ |= {"EVENTSYNC_ALLOW_COMMANDS": "1", "https_proxy": "http://proxy.example:3128", "REST_CRM": "other"}
    access = read_settings(environ, tmp_path).access
    words = "open('/proc/self/cmdline').read() + open(f'/proc/{os.getppid()}/cmdline').read()"
    seen = "json.dumps({'seen': sorted(os.environ), 'words': %s, 'config': open(sys.argv[1]).read(), 'in': sys.stdin.read()})"
    (row,), _, _ = read(tmp_path, f"print({seen % words})", access=access, config="OURS")
    allowed = {*PROGRAMS, "LC_ALL", "TZ", "https_proxy"}
    assert {*json.loads(row.cells["seen"])} - {"LC_CTYPE"} == allowed
    assert json.loads(row.cells["config"]) == json.loads(CONFIG)
    assert (TOKEN in row.cells["words"], row.cells["in"]) == (False, "")
    with pytest.raises(SourceUnavailableError) as caught:
        read(tmp_path, "sys.exit('bad token ' + json.load(open(sys.argv[1]))['token'])", access=access, config="OURS")
    assert "bad token [key]" in str(caught.value)


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (NO_ACCESS, "EVENTSYNC_ALLOW_COMMANDS is not 1"),
        (Access(programs=PROGRAMS), "TAP_OURS is not set"),
        (Access(programs=PROGRAMS, secrets={"TAP_OURS": SecretStr(TOKEN)}), "TAP_OURS is not JSON"),
    ],
)
def test_nothing_is_started_without_leave_or_its_configuration(tmp_path: Path, access: Access, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(tmp_path, "open('started', 'w')", access=access, config="OURS")
    assert not (tmp_path / "started").exists()
    assert TOKEN not in f"{caught.value} {caught.value.hint}"


def test_numbers_keep_their_digits_and_announced_columns_are_there(tmp_path: Path) -> None:
    schema = {"properties": {"ref": {}, "venue": {"properties": {"city": {"type": ["null", "string"]}}}}}
    messages = [
        json.dumps({"type": "SCHEMA", "stream": "events", "schema": schema, "key_properties": ["ref"]}),
        '{"type": "RECORD", "stream": "events", "record": {"ref": 2.50, "venue": null}}',
        '{"type": "STATE", "value": {"at": 12345678901234567890.10}}',
    ]
    resume = {"resume": ("{state}",)}
    rows, reading, cursor = read(tmp_path, _said("\n".join(messages)), "ref", "Venue.City", **SINGER, **resume)
    assert (column(rows, "ref"), column(rows, "Venue.City")) == (["2.50"], [""])
    assert (rows[0].location.place, reading.is_whole) == (f"{Path(sys.executable).name} program.py events:1", True)
    code = "print(json.dumps({'type': 'RECORD', 'stream': 'events', 'record': {'ref': open(sys.argv[-1]).read()}}))"
    rows, reading, again = read(tmp_path, code, **SINGER, **resume, since=cursor)
    assert (column(rows, "ref"), reading.is_whole, again) == (['{"at": 12345678901234567890.10}'], False, cursor)


STREAM_STATE = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "events"}, "stream_state": {"at": 1}}}
OTHER_STATE = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "venues"}, "stream_state": {"at": 2}}}


@pytest.mark.parametrize(
    ("states", "handed_back"),
    [
        ([STREAM_STATE, OTHER_STATE], [STREAM_STATE]),
        ([{"type": "GLOBAL", "global": {"shared_state": 3}}], [{"type": "GLOBAL", "global": {"shared_state": 3}}]),
        ([{"type": "LEGACY", "data": {"at": 4}}, {"data": {"at": 5}}], None),
    ],
    ids=["of streams", "of all", "of old connectors"],
)
def test_a_connector_is_given_the_state_that_it_sent(tmp_path: Path, states: list[Any], handed_back: Any) -> None:
    record = {"type": "RECORD", "record": {"stream": "events", "data": {"ref": "1"}}}
    said = _said("\n".join(map(json.dumps, [record, *({"type": "STATE", "state": state} for state in states)])))
    _, _, cursor = read(tmp_path, said, speaks="airbyte", stream="events", resume=("{state}",))
    assert json.loads(cursor.rpartition(" ")[0] or "null") == handed_back


def test_the_state_of_another_stream_is_not_handed_on(tmp_path: Path) -> None:
    code = f'print({RECORD!r})\nprint({RECORD.replace("events", "venues")!r})\nprint(\'{{"type": "STATE", "value": 1}}\')'
    _, _, cursor = read(tmp_path, code, **SINGER, resume=("{state}",))
    _, reading, _ = read(tmp_path, code, speaks="singer", stream="venues", resume=("{state}",), since=cursor)
    assert reading.is_whole


def test_a_record_is_deleted_if_its_mark_is_no_false_value(tmp_path: Path) -> None:
    code = "for mark in ('', None, False, 0, 0.0, 'no', 'FALSE', True, 10, '2026-05-03'):\n    print(json.dumps({'gone': mark}))"
    rows, _, _ = read(tmp_path, code, deleted="gone")
    assert [row.is_gone for row in rows] == [False] * 7 + [True] * 3


def test_a_program_runs_in_the_folder_of_its_mapping_file(tmp_path: Path) -> None:
    rows, _, _ = read(tmp_path, "print(json.dumps({'ref': os.getcwd()}))", "ref")
    assert column(rows, "ref") == [os.path.realpath(tmp_path)]


PAGES = Path(__file__).parents[3] / "docs"
_FEED = re.compile(r"```yaml\n(feed: .*?)```", re.DOTALL)
_SCRIPT = re.compile(r"```python\n(.*?)```", re.DOTALL)
MEETUP = """\
import json, sys
assert json.load(open(sys.argv[sys.argv.index("--config") + 1])) == {"token": "of-meetup"}
print(json.dumps({"type": "RECORD", "stream": "events", "record": {"id": 7, "name": "Jazz", "day": "2031-05-03"}}))
print(json.dumps({"type": "STATE", "value": {"events": "2031-05-03"}}))
"""


def test_the_feeds_that_the_page_shows_give_events(tmp_path: Path) -> None:
    section = (PAGES / "sources.md").read_text("utf-8").partition("## Programs\n")[2].partition("\n## ")[0]
    (script,) = _SCRIPT.findall(section)
    (tmp_path / "agenda.py").write_text(script, "utf-8")
    tap = tmp_path / "taps" / "meetup" / "bin" / "tap-meetup"
    tap.parent.mkdir(parents=True)
    tap.write_text(f"#!{sys.executable}\n{MEETUP}", "utf-8")
    tap.chmod(0o755)
    environ = {**PROGRAMS, "EVENTSYNC_ALLOW_COMMANDS": "1", "TAP_MEETUP": '{"token": "of-meetup"}'}
    access, titles = read_settings(environ, tmp_path).access, list[list[str]]()
    for text in _FEED.findall(section):
        mapping = parse_feed(text, tmp_path / "feed.yaml")
        mapper = compile_feed(mapping, Directory(channels={"city-agenda": 7}), datetime(2031, 1, 1, tzinfo=UTC))
        with open_source(mapping.source, tmp_path, mapper.columns, access=access).read() as reading:
            outcomes = list(mapper.over(reading.rows))
        titles.append([json.loads(one.body)["title"] for one in outcomes if isinstance(one, MappedRow)])
    assert titles == [["Jazz", "Blues"], ["Jazz"]]
