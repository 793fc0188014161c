"""`eventsync metrics`: what Prometheus reads is true, whole, and there also while the state DB is not."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from unit.cli.conftest import ROWS, Desk

from pipelines.settings import current_settings
from pipelines.telemetry.metrics import CACHE_S, GAUGES, Gauge, MetricsPage, Sample, exposition, serving_metrics

FEED = ("feed", "town-hall")


def _parsed(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Each number by its name and labels, as Prometheus's own parser reads the page."""
    families = list(text_string_to_metric_families(text))
    assert [family.type for family in families] == ["gauge"] * len(families)
    return {family.name: {frozenset(one.labels.items()): one.value for one in family.samples} for family in families}


def _of(told: dict[frozenset[tuple[str, str]], float], *labels: tuple[str, str]) -> float:
    (value,) = [value for known, value in told.items() if {FEED, *labels} <= known]
    return value


@contextmanager
def _served(clock_s: list[float]) -> Iterator[tuple[str, int]]:
    page = MetricsPage(current_settings(), lambda: clock_s[0])
    with serving_metrics(page.gauges, "127.0.0.1", 0) as url:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        yield address.hostname, address.port


def _fetched(address: tuple[str, int], path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode(), answer.headers["content-type"]
    connection.close()
    return told


def test_the_numbers_are_those_of_the_feed(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        desk.source(ROWS[:-1])
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        status = desk.run("status", "--json").document["feeds"][0]
        said = desk.run("metrics")
    told = _parsed(said.out)
    assert said.code == 0
    assert list(told) == [name for name in GAUGES if name in told]
    assert GAUGES.keys() - told.keys() == {"eventsync_braked"}
    assert {state: _of(told["eventsync_rows"], ("state", state)) for state in status["counts"]} == status["counts"]
    assert _of(told["eventsync_rows_waiting"], ("state", "vanished")) == status["waiting"]["vanished"] == 1
    assert _of(told["eventsync_rows_waiting"], ("state", "conflict")) == 0, "a number to watch is there before it is needed"
    assert _of(told["eventsync_last_read_rows"], ("outcome", "read")) == 5
    assert _of(told["eventsync_gate_open"]) == 1
    ends, done = (_of(told[f"eventsync_{name}_timestamp_seconds"]) for name in ("last_run_end", "last_done"))
    assert ends == done >= _of(told["eventsync_last_run_start_timestamp_seconds"])


def test_a_run_that_a_brake_stopped_is_the_last_one_but_not_the_last_that_was_done(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        before = _of(_parsed(desk.run("metrics").out)["eventsync_last_done_timestamp_seconds"])
        desk.source([f"{number},,2030-05-01,19:30,,concert" for number in range(9)])
        assert desk.run("run", "town-hall", "--no-dagster").code == 5
        told = _parsed(desk.run("metrics").out)
    assert _of(told["eventsync_last_done_timestamp_seconds"]) == before
    assert _of(told["eventsync_last_run_exit_code"]) == 5
    assert _of(told["eventsync_gate_open"]) == 0
    assert _of(told["eventsync_braked"], ("brake", "rejected")) == 1


def test_a_file_for_the_collector_is_whole_at_any_moment(desk: Desk) -> None:
    assert desk.run("metrics", "--out", "eventsync.prom").code == 0
    assert _parsed((desk.folder / "eventsync.prom").read_text("utf-8"))
    assert sorted(path.name for path in desk.folder.iterdir() if path.is_file()) == ["events.csv", "eventsync.prom"]


@pytest.mark.usefixtures("desk")
def test_a_monitor_may_come_for_them() -> None:
    with _served([0.0]) as address:
        status, text, kind = _fetched(address)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert _parsed(text)["eventsync_state_db_up"] == {frozenset(): 1.0}
        assert _fetched(address, method="POST")[0] == 405


def test_a_state_db_that_cannot_be_read_is_a_number_too_and_heals(desk: Desk) -> None:
    clock_s = [100.0]
    with _served(clock_s) as address:
        desk.state.parent.mkdir()
        desk.state.write_bytes(b"no database at all, whatever its name says" * 100)
        assert _parsed(_fetched(address)[1])["eventsync_state_db_up"] == {frozenset(): 0.0}
        desk.state.unlink()
        clock_s[0] += CACHE_S + 0.1
        assert _parsed(_fetched(address)[1])["eventsync_state_db_up"] == {frozenset(): 1.0}
    assert desk.run("metrics", "--json").code == 0


def test_many_monitors_cost_as_much_as_one(desk: Desk) -> None:
    with desk.service():
        desk.run("run", "town-hall", "--no-dagster")
    page = MetricsPage(current_settings(), lambda: 50.0)
    first = page.gauges()
    asked: list[object] = []
    monitors = [threading.Thread(target=lambda: asked.append(page.gauges())) for _ in range(8)]
    for monitor in monitors:
        monitor.start()
    for monitor in monitors:
        monitor.join()
    assert all(each is first for each in asked)


def test_a_port_that_is_taken_is_told_as_such(desk: Desk) -> None:
    with _served([0.0]) as (host, port):
        said = desk.run("metrics", "--port", str(port), "--host", host)
    assert (said.code, "Address already in use" in said.err) == (2, True)


@pytest.mark.parametrize("text", ['C:\\feeds "new"\nline', "é ☃", "{}=,", ""])
def test_whatever_a_label_says_prometheus_reads_it_back(text: str) -> None:
    page = exposition([Gauge("eventsync_rows", "Rows.", (Sample({"feed": text, "state": "x"}, 1.5),))])
    ((family),) = text_string_to_metric_families(page)
    assert [(one.labels["feed"], one.value) for one in family.samples] == [(text, 1.5)]


def test_every_name_is_one_that_prometheus_takes() -> None:
    for name in GAUGES:
        assert re.fullmatch(r"eventsync_[a-z_]+", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
