"""What a run logs, and tells OpenTelemetry as a collector receives it: one trace a run, and never at a run's expense."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from integration.collector import Span, collecting
from integration.desk import FEED, Desk, Said, lines
from integration.service import SECRET, Service

pytestmark = pytest.mark.slow
pytest.importorskip("opentelemetry.sdk")
PAGE = Path(__file__).parents[2] / "docs" / "observability.md"

WITHOUT_THE_EXTRA = """\
import sys
sys.modules["opentelemetry"] = None
from pipelines.cli.entry import main
main()
"""


def _logged(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]


def _about(span: Span, *names: str) -> tuple[object, ...]:
    return tuple(span.about.get(f"eventsync.{name}") for name in names)


def test_a_run_is_one_trace_of_its_phases_its_chunks_and_its_requests_and_its_numbers_are_counted(desk: Desk) -> None:
    desk.source([*lines(2_500), "x,,2031-99-01,19:30,poetry,"])
    with collecting() as collector:
        said = desk.run("--limit", "30", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, EVENTSYNC_TRACE_REQUESTS="1", code=0)
    (run,) = collector.named(f"run {FEED}")
    assert _about(run, "feed", "run_id", "exit_code") == (FEED, said.run["run_id"], 0)
    assert {span.trace_id for span in collector.spans} == {run.trace_id}
    assert [span.name for span in collector.below(run)] == ["stage", "publish"]
    (stage, publish) = collector.below(run)
    chunks = [chunk.about["eventsync.rows"] for chunk in collector.below(stage) if chunk.name == "chunk"]
    assert (sum(chunks), len(chunks) > 1) == (2_501, True)
    assert _about(stage, "outcome", "rows.new", "rows.rejected") == ("staged", 2_500, 1)
    assert _about(publish, "outcome", "rows.delivered", "rows.pending") == (said.run["outcome"], 30, 2_470)
    posted = [span for span in collector.below(publish) if span.name == "POST /api/public/v1/events"]
    assert sorted(span.about["eventsync.row_key"] for span in posted) == sorted(map(str, range(30)))
    assert {span.about["http.response.status_code"] for span in posted} == {201}
    assert all(span.about["eventsync.idempotency_key"] for span in posted)

    def counted(name: str, *abouts: str) -> dict[tuple[object, ...], float]:
        return {tuple(about[one] for one in abouts): count for about, count in collector.numbers[name]}

    assert counted("eventsync.rows.read", "eventsync.feed") == {(FEED,): 2_501}
    assert counted("eventsync.rows.settled", "eventsync.feed") == {(FEED,): 30}
    ended = counted("eventsync.rows.ended", "eventsync.phase", "eventsync.row.outcome")
    assert (ended["stage", "rejected"], ended["stage", "new"], ended["publish", "delivered"]) == (1, 2_500, 30)
    assert counted("eventsync.phase.duration", "eventsync.phase") == {("stage",): 1, ("publish",): 1}
    posts = [one for one in collector.numbers["http.client.request.duration"] if one[0]["http.request.method"] == "POST"]
    assert [count for _, count in posts] == [30]
    assert {(one["service.name"], one["service.version"]) for one in collector.resources} == {("eventsync", version("eventsync"))}
    table = PAGE.read_text("utf-8").partition("| metric | what it counts")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE)) == collector.numbers.keys()


def test_above_debug_rows_get_no_line_and_no_span_of_their_own_unless_asked_for_or_odd(desk: Desk, service: Service) -> None:
    desk.source(lines(40))
    with collecting() as collector:
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "EVENTSYNC_TRACE_REQUESTS": "0", "EVENTSYNC_LOG": "json"}
        logged = _logged(desk.run(**traced, code=0))
        assert {line["level"] for line in logged} == {"info"}
        assert not [line for line in logged if "row_key" in line]
        assert not [span for span in collector.spans if span.name.startswith("POST")]
        assert [span for span in collector.spans if span.name == "GET /api/public/v1/classifications"]
        service.switch(fault_per_mille=1000, faults="error_500", fault_attempts=1)
        desk.run_with(lines(44), **traced, code=0)
    posts = [span for span in collector.spans if span.name.startswith("POST")]
    assert [(span.is_error, span.about["http.response.status_code"]) for span in posts] == [(True, 500)] * 4


def test_at_debug_each_row_is_followed_and_lines_name_feed_run_and_trace_and_nothing_secret_travels(desk: Desk) -> None:
    desk.source(lines(3))
    token = "collector-token-7hQ2mX9vLr"
    (desk.folder / ".env").write_text(
        f"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{token}\nOTEL_SERVICE_NAME=town\n", "utf-8"
    )
    with collecting() as collector:
        said = desk.run(
            EVENTSYNC_LOG="json debug", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, EVENTSYNC_TRACE_REQUESTS="1", code=0
        )
    logged = _logged(said)
    assert {"phase begins", "phase ended"} <= {line["event"] for line in logged}
    run = (FEED, said.run["run_id"], collector.spans[0].trace_id)
    assert {(line["feed"], line["run_id"], line["trace_id"]) for line in logged} == {run}
    sent, answered = ([line for line in logged if line["event"] == word] for word in ("row is sent", "row has its answer"))
    assert sorted(line["row_key"] for line in sent) == ["0", "1", "2"]
    assert {(line["verdict"], line["status"], line["attempts"]) for line in answered} == {("receipt", 201, 1)}
    assert all(line["event_id"] and line["level"] == "debug" for line in answered)
    assert not [line for line in logged if "row_key" in line and line not in [*sent, *answered]]
    assert {headers["authorization"] for headers in collector.headers} == {f"Bearer {token}"}, "an .env file counts, too"
    assert {one["service.name"] for one in collector.resources} == {"town"}
    assert SECRET.encode() not in b"".join(collector.raw)
    assert token.encode() not in desk.written() + b"".join(collector.raw)

    shown = re.findall(r"^\{.*\}$", "\n".join(re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)), re.MULTILINE)
    assert len(shown) == 2
    for line in map(json.loads, shown):
        alike = [one.keys() - {"trace_id", "span_id"} for one in logged if one["event"] == line["event"]]
        assert line.keys() - {"trace_id", "span_id"} in alike, line


def test_a_run_that_is_refused_says_so_in_its_trace_and_in_its_lines(desk: Desk) -> None:
    desk.source(lines(2))
    env = {"EVENT_API_KEY": "sk-nobody-knows-this-one-0042", "EVENTSYNC_LOG": "json debug"}
    with collecting() as collector:
        said = desk.run(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **env, code=3)
    (run,), (stage,) = collector.named(f"run {FEED}"), collector.named("stage")
    assert (run.is_error, stage.is_error) == (True, True)
    assert _about(run, "outcome", "exit_code") == ("refused by the service", 3)
    assert b"0042" not in b"".join(collector.raw)
    (ended,) = [line for line in _logged(said) if line["event"] == "phase ended"]
    assert (ended["feed"], ended["run_id"], ended["exit_code"]) == (FEED, said.run["run_id"], 3)


def test_a_collector_that_is_away_holds_up_no_run_for_long(desk: Desk) -> None:
    desk.source(lines(3))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = desk.run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", code=0)
    assert said.run["publish"]["delivered"] == 3
    assert said.err.count("collector does not answer") == 1


def test_what_cannot_be_had_is_told_and_costs_the_run_nothing(desk: Desk) -> None:
    desk.source(lines(1))
    desk.run(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_PROTOCOL="grpc").assert_told(0, "http/protobuf")
    env = {**desk.env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    words = [sys.executable, "-c", WITHOUT_THE_EXTRA, "run", FEED, "--no-dagster"]
    plain = subprocess.run(words, cwd=desk.folder, env=env, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stderr
    assert "pip install 'eventsync[otel]'" in plain.stderr


def test_what_dagster_runs_in_two_steps_is_one_trace(desk: Desk) -> None:
    desk.source(lines(3))
    with collecting() as collector:
        said = desk.command("run", FEED, "--json", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, code=0)
    steps = collector.named(f"run {FEED}")
    assert [span.name for step in steps for span in collector.below(step)] == ["stage", "publish"]
    assert {step.trace_id for step in steps} == {steps[0].trace_id}
    assert {_about(step, "run_id", "launched_by") for step in steps} == {(said.run["run_id"], "cli")}
