"""Mapping files watched on a real disk, and a webserver at the wire that says whether it has reloaded."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from pipelines.orchestration.webserver import DagsterRefusedError, Reloader, Webserver, watch

FEED = """\
feed: {name}
source: {{kind: csv, path: ../events.csv}}
key: [ID]
event:
  channelId: "7"
  title: {{from: TITLE}}
  startAt: {{from: START}}
  timezone: Europe/Lisbon
  classifications: {{from: GENRE, do: [{{lookup: ../lists/genres.csv}}]}}
  approxLocation.city.placeId: lx
"""
LOADED = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
IN_VAIN_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    feeds, lists = tmp_path / "feeds", tmp_path / "lists"
    feeds.mkdir()
    lists.mkdir()
    (lists / "genres.csv").write_text("genre,slug\nconcert,music\n", "utf-8")
    write(feeds, "one")
    return feeds


def write(folder: Path, name: str, text: str = FEED) -> None:
    (folder / f"{name}.yaml").write_text(text.format(name=name), "utf-8")


def server(answer: Callable[[httpx.Request], httpx.Response]) -> Webserver:
    return Webserver(httpx.Client(base_url="http://dagster.example", transport=httpx.MockTransport(answer)))


def answering(said: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _request: httpx.Response(200, json={"data": {"reloadRepositoryLocation": said}})


FAILED = {"__typename": "PythonError", "message": "no such module"}


@pytest.mark.parametrize(
    "said",
    [LOADED | {"locationOrLoadError": FAILED}, {"__typename": "RepositoryLocationNotFound", "message": "no such module"}],
)
def test_definitions_that_cannot_be_loaded_are_an_error_with_dagsters_own_words(folder: Path, said: object) -> None:
    with pytest.raises(DagsterRefusedError, match="no such module"):
        Reloader(server(answering(said)), folder).reload()


@contextmanager
def watching(folder: Path, answer: Callable[[httpx.Request], httpx.Response]) -> Iterator[queue.Queue[str]]:
    """Watch the folder, beginning with what it holds; yields what is told."""
    told: queue.Queue[str] = queue.Queue()
    stop, asked = Event(), Reloader(server(answer), folder)
    thread = Thread(target=watch, args=(asked, told.put, stop))
    thread.start()
    try:
        assert "1 feed" in told.get(timeout=IN_VAIN_S)
        yield told
    finally:
        stop.set()
        thread.join(IN_VAIN_S)
        assert not thread.is_alive()


@pytest.mark.slow
def test_each_change_is_shown_once_and_a_broken_file_is_told_with_its_line(folder: Path) -> None:
    with watching(folder, answering(LOADED)) as told:
        write(folder, "two")
        assert "2 feeds" in told.get(timeout=IN_VAIN_S)
        write(folder, "two", FEED.replace("title:", "titel:"))
        assert "1 feed, 1 broken" in told.get(timeout=IN_VAIN_S)
        assert "two.yaml:5:" in told.get(timeout=IN_VAIN_S)
        (folder / "two.yaml").unlink()
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        genres = folder.parent / "lists" / "genres.csv"
        genres.write_text(genres.read_text("utf-8") + "play,theatre\n", "utf-8")
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        assert told.empty()


def test_a_dagster_that_would_not_reload_is_told_of_and_asked_again(folder: Path) -> None:
    answers = iter([httpx.Response(502), answering(LOADED)(httpx.Request("POST", "/"))])
    reloader, told = Reloader(server(lambda _request: next(answers)), folder), list[str]()
    assert not reloader.reload_if_changed(told.append)
    assert "does not answer" in told[0]
    for _ in range(2):
        assert reloader.reload_if_changed(told.append)
    assert len(told) == 2
