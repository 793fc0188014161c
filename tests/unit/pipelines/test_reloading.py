"""Mapping files watched on a real disk, and a webserver at the wire that says whether it has reloaded."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest
from unit.pipelines.feed_files import feed

from pipelines.orchestration.webserver import DagsterRefusedError, Reloader, Webserver, watch

LOADED = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
IN_VAIN_S = 60.0
LOOKUP = "  locationName: {from: GENRE, do: [{lookup: ../lists/genres.csv}]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    feeds, lists = tmp_path / "feeds", tmp_path / "lists"
    feeds.mkdir()
    lists.mkdir()
    (lists / "genres.csv").write_text("genre,slug\nconcert,music\n", "utf-8")
    feed(feeds, more=LOOKUP, name="one")
    return feeds


def asking(folder: Path, *answers: object) -> Reloader:
    """A reloader of a webserver that gives these answers in turn, the last one for ever; a number is a bare status."""
    script = list(answers)

    def answer(_request: httpx.Request) -> httpx.Response:
        said = script.pop(0) if len(script) > 1 else script[0]
        is_status = isinstance(said, int)
        return httpx.Response(said) if is_status else httpx.Response(200, json={"data": {"reloadRepositoryLocation": said}})

    http = httpx.Client(base_url="http://dagster.example", transport=httpx.MockTransport(answer))
    return Reloader(Webserver(http), folder)


FAILED = {"__typename": "PythonError", "message": "no such module"}


@pytest.mark.parametrize(
    "said",
    [LOADED | {"locationOrLoadError": FAILED}, {"__typename": "RepositoryLocationNotFound", "message": "no such module"}],
)
def test_definitions_that_cannot_be_loaded_are_an_error_with_dagsters_own_words(folder: Path, said: object) -> None:
    with pytest.raises(DagsterRefusedError, match="no such module"):
        asking(folder, said).reload()


@contextmanager
def watching(folder: Path) -> Iterator[queue.Queue[str]]:
    """Watch the folder, beginning with what it holds; yields what is told."""
    told: queue.Queue[str] = queue.Queue()
    stop = Event()
    thread = Thread(target=watch, args=(asking(folder, LOADED), told.put, stop))
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
    two = folder / "two.yaml"
    with watching(folder) as told:
        feed(folder, name="two")
        assert "2 feeds" in told.get(timeout=IN_VAIN_S)
        two.write_text(two.read_text("utf-8").replace("title:", "titel:"), "utf-8")
        assert "1 feed, 1 broken" in told.get(timeout=IN_VAIN_S)
        assert "two.yaml:5:" in told.get(timeout=IN_VAIN_S)
        two.unlink()
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        genres = folder.parent / "lists" / "genres.csv"
        genres.write_text(genres.read_text("utf-8") + "play,theatre\n", "utf-8")
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        assert told.empty()


def test_a_dagster_that_would_not_reload_is_told_of_and_asked_again(folder: Path) -> None:
    reloader, told = asking(folder, 502, LOADED), list[str]()
    assert not reloader.reload_if_changed(told.append)
    assert "does not answer" in told[0]
    for _ in range(2):
        assert reloader.reload_if_changed(told.append)
    assert len(told) == 2
