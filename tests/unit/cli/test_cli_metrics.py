"""`eventsync metrics`: what Prometheus reads is true, whole, and there also while the state DB is not."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus import samples
from unit.cli.conftest import FEED, ROWS, Desk

from pipelines.settings import current_settings
from pipelines.telemetry.metrics import CACHE_S, GAUGES, Gauge, MetricsPage, Sample, exposition, serving_metrics


def value(page: str, name: str, **labels: str) -> float:
    (found,) = samples(page, f"eventsync_{name}", feed=FEED, **labels)
    return found


@contextmanager
def _served(clock_s: list[float]) -> Iterator[tuple[httpx.URL, httpx.Client]]:
    page = MetricsPage(current_settings(), lambda: clock_s[0])
    with serving_metrics(page.gauges, "127.0.0.1", 0) as url, httpx.Client(trust_env=False, timeout=60) as http:
        yield httpx.URL(url), http


def test_the_numbers_are_those_of_the_feed(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        desk.source(ROWS[:-1])
        desk.sync(code=0)
        status = desk.told("status")["feeds"][0]
        page = desk.run("metrics", code=0).out
    named = re.findall(r"^# TYPE (\w+) gauge$", page, re.MULTILINE)
    assert named == [name for name in GAUGES if name != "eventsync_braked"]
    assert {state: value(page, "rows", state=state) for state in status["counts"]} == status["counts"]
    assert value(page, "rows_waiting", state="vanished") == status["waiting"]["vanished"] == 1
    assert value(page, "rows_waiting", state="conflict") == 0, "a number to watch is there before it is needed"
    assert (value(page, "last_read_rows", outcome="read"), value(page, "gate_open")) == (5, 1)
    ends, done = (value(page, f"{name}_timestamp_seconds") for name in ("last_run_end", "last_done"))
    assert ends == done >= value(page, "last_run_start_timestamp_seconds")


def test_a_run_that_a_brake_stopped_is_the_last_one_but_not_the_last_that_was_done(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        before = value(desk.run("metrics").out, "last_done_timestamp_seconds")
        desk.source([f"{number},,2030-05-01,19:30,,concert" for number in range(9)])
        desk.sync(code=5)
        page = desk.run("metrics").out
    assert value(page, "last_done_timestamp_seconds") == before
    assert (value(page, "last_run_exit_code"), value(page, "gate_open"), value(page, "braked", brake="rejected")) == (5, 0, 1)


def test_a_file_for_the_collector_is_whole_at_any_moment(desk: Desk) -> None:
    desk.run("metrics", "--out", "eventsync.prom", code=0)
    assert samples((desk.folder / "eventsync.prom").read_text("utf-8"), "eventsync_state_db_up") == [1]
    assert sorted(path.name for path in desk.folder.iterdir() if path.is_file()) == ["events.csv", "eventsync.prom"]


def test_a_state_db_that_cannot_be_read_is_a_number_too_and_heals(desk: Desk) -> None:
    clock_s = [100.0]
    with _served(clock_s) as (url, http):
        desk.state.parent.mkdir()
        desk.state.write_bytes(b"no database at all, whatever its name says" * 100)
        assert samples(http.get(url).text, "eventsync_state_db_up") == [0]
        desk.state.unlink()
        clock_s[0] += CACHE_S + 0.1
        answer = http.get(url)
        assert samples(answer.text, "eventsync_state_db_up") == [1]
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert http.post(url).status_code == 405
        desk.run("metrics", "--port", str(url.port), "--host", url.host).assert_told(2, "Address already in use")
    desk.run("metrics", "--json", code=0)


def test_many_monitors_cost_as_much_as_one(desk: Desk) -> None:
    with desk.service():
        desk.sync()
    page = MetricsPage(current_settings(), lambda: 50.0)
    first, asked = page.gauges(), list[object]()
    monitors = [threading.Thread(target=lambda: asked.append(page.gauges())) for _ in range(8)]
    for monitor in monitors:
        monitor.start()
    for monitor in monitors:
        monitor.join()
    assert [each is first for each in asked] == [True] * 8


@pytest.mark.parametrize("text", ['C:\\feeds "new"\nline', "é ☃", "{}=,", ""])
def test_whatever_a_label_says_prometheus_reads_it_back(text: str) -> None:
    page = exposition([Gauge("eventsync_rows", "Rows.", (Sample({"feed": text, "state": "x"}, 1.5),))])
    assert samples(page, "eventsync_rows", feed=text) == [1.5]


def test_every_name_is_one_that_prometheus_takes() -> None:
    for name in GAUGES:
        assert re.fullmatch(r"eventsync_[a-z_]+(?<!_total)(?<!_count)(?<!_sum)(?<!_bucket)", name)
